"""The manifests' training, each role a pod of its own: a worker dies, the chief dies, all goes on to the end."""
import contextlib
import http.client
import json
import os
import pathlib
import signal

import pytest

from tests import kubernetes_manifests as manifests
from tests import pods
from tests import small_run
from tests.local_cluster import progress_of
from tests.local_cluster import queue_of
from tests.local_cluster import values
from tests.local_cluster import wait_for
from tests.prepared_data import read_split

pytestmark = [pytest.mark.cluster, pytest.mark.long]

BATCH, EPOCHS, STEPS = 4, 2, 4
# What a person puts into a copy of the overlay: flags of a run, and an evaluator.
FLAGS = f"""
--stages=prepare,train,export
--input=/data/clicks.csv
--user_column=user_id
--item_column=item_id
--timestamp_column=timestamp
--feature_columns=category
--shard_records=64
--data_dir=/data/data
--workdir=/data/run
--embedding_dim=8
--max_history=6
--attention_heads=2
--queue_size=40
--batch_size={BATCH}
--target_mode=sliding
--epochs={EPOCHS}
--shuffle_shards=2
--steps_per_call={STEPS}
--log_every_steps=20
--checkpoint_every_steps=200
--recall_k=5
--threads=1
--parallel_ops=4
--validation_by=evaluator
"""
EVALUATOR = """
apiVersion: batch/v1
kind: Job
metadata: {name: clrec-evaluator}
spec: {completions: 1, parallelism: 1}
"""


def overlay(folder: pathlib.Path, way: str) -> list[dict]:
    """A run of its own on base-jobs, and over it one as a JobSet: copies of the overlays, as the README says."""
    jobs, jobset = folder.resolve() / "jobs", folder.resolve() / "jobset"
    for each, lines in ((jobs, [
            f"resources: [{os.path.relpath(manifests.FOLDER / 'base-jobs', jobs)}]",
            f"components: [{os.path.relpath(manifests.FOLDER / 'components' / 'metrics', jobs)}]",
            "patches: [{path: evaluator.yaml}]",
            "configMapGenerator: [{name: clrec-flags, behavior: merge, files: [train.flags]}]",
            "generatorOptions: {disableNameSuffixHash: true, immutable: true}"]), (jobset, [
                "resources: [../jobs]",
                f"components: [{os.path.relpath(manifests.FOLDER / 'components' / 'jobset', jobset)}]"])):
        each.mkdir(parents=True)
        (each / "kustomization.yaml").write_text("\n".join(
            ["apiVersion: kustomize.config.k8s.io/v1beta1", "kind: Kustomization", *lines]), encoding="utf-8")
    (jobs / "train.flags").write_text(FLAGS, encoding="utf-8")
    (jobs / "evaluator.yaml").write_text(EVALUATOR, encoding="utf-8")
    return manifests.build(folder / way)


class Run:
    """The pods of a training, started as the Job controller starts them."""

    def __init__(self, node: pods.Node, objects: list[dict], data: pathlib.Path):
        self.node, self.roles, self.workdir, self.pods = node, manifests.roles(objects), data / "run", {}

    def start(self, role: str, index: int = 0) -> None:
        """One pod, under its name, at a new address."""
        job = self.roles[role]
        name = f"{role}-{index}"
        self.pods[name] = self.node.start(name, job.job["spec"]["template"], job.hosts()[index],
                                          {"JOB_COMPLETION_INDEX": str(index)})

    def start_all(self) -> None:
        """All pods of all roles."""
        for name, role in self.roles.items():
            for index in range(role.job["spec"]["completions"]):
                self.start(name, index)

    def step(self) -> int:
        """The last step that the chief has told; an AssertionError if it has ended."""
        chief = self.pods["chief-0"]
        assert chief.process.poll() is None, chief.log[-3000:]
        return max(small_run.losses(self.workdir), default=0) if (self.workdir / "metrics.jsonl").exists() else 0

    def wait_for_step(self, step: int) -> None:
        """Until the chief has told it; what all have printed where it does not come."""
        try:
            wait_for(lambda: self.step() >= step, f"step {step}", 300)
        except AssertionError as error:
            logs = "\n".join(f"{name}: {pod.log[-1500:]}" for name, pod in self.pods.items())
            raise AssertionError(f"{error}\n{logs}") from None

    def metrics(self, pod: pods.Pod) -> str:
        """What Prometheus reads of a role, asked from the node."""
        port, = [port["containerPort"] for port in self.roles[pod.name.split("-")[0]].container["ports"]
                 if port["name"] == "metrics"]
        with self.node.inside(), contextlib.closing(http.client.HTTPConnection(pod.address, port, timeout=20)) as client:
            client.request("GET", "/metrics")
            return client.getresponse().read().decode()

    def checkpoint(self) -> dict:
        """Values of the latest checkpoint."""
        return values(self.workdir)

    def end_others(self) -> None:
        """What deleting the Jobs does when the chief has gone: SIGTERM, and nobody needs the grace to be over."""
        others = {name: pod for name, pod in self.pods.items() if name != "chief-0" and pod.process.poll() is None}
        for pod in others.values():
            pod.signal(signal.SIGTERM)
        codes = {name: pod.ended(60) for name, pod in others.items()}
        assert {code for name, code in codes.items() if name != "evaluator-0"} == {75}

    def assert_whole(self, repeated: int) -> None:
        """Both epochs were trained whole, at most `repeated` steps of them twice, and a bundle of their end is there."""
        last = self.checkpoint()
        done, updates = progress_of(last), next(int(value) for name, value in last.items() if "iterations" in name)
        assert done["repeated_steps"] <= repeated and done["step"] <= updates <= done["step"] + done["repeated_steps"]
        targets = sum(len(record["item_id"]) - 1 for record in read_split(str(self.workdir.parent / "data"), "train"))
        pools = len(done["position"]["pools"])  # each ends with a batch that may be smaller
        assert targets / BATCH <= done["step"] / EPOCHS < targets / BATCH + pools
        assert (self.workdir / "export" / "1" / "saved_model.pb").exists()
        scored = (self.workdir / "evaluations.jsonl").read_text(encoding="utf-8").splitlines()
        assert done["step"] in [json.loads(line)["step"] for line in scored]  # the evaluator's last


@contextlib.contextmanager
def running(tmp_path, way, users):
    """A `Run` of a small log, all of whose pods have been started."""
    if reason := pods.unavailable():
        pytest.skip(reason)
    objects = overlay(tmp_path / "overlay", way)
    data = tmp_path / "data"
    data.mkdir()
    (data / "clicks.csv").write_text(small_run.click_log(users=users), encoding="utf-8")
    with pods.Node(tmp_path, objects, {"clrec-data": data}) as node:
        run = Run(node, objects, data)
        run.start_all()
        yield run


def test_a_dead_worker_is_replaced_at_another_address_and_trains_on(tmp_path):
    with running(tmp_path, "jobs", users=4000) as run:
        run.wait_for_step(400)
        for pod in run.pods.values():
            assert "clrec_" in run.metrics(pod)
        killed, before = run.pods["worker-1"], queue_of(run.checkpoint(), "count", 1)
        assert killed.kill() == 128 + signal.SIGKILL
        step = run.step()
        run.start("worker", 1)  # as the Job controller does: the name, not the address, is the pod's
        assert run.pods["worker-1"].address != killed.address
        run.wait_for_step(step + 200)  # the others went on
        wait_for(lambda: run.wait_for_step(run.step() + 200) or queue_of(run.checkpoint(), "count", 1) > before,
                 "a step of the new worker")
        assert run.pods["chief-0"].ended(300) == 0, run.pods["chief-0"].log[-3000:]
        run.end_others()
        run.assert_whole(repeated=STEPS)


def test_a_dead_chief_takes_all_roles_along_and_they_go_on_from_its_checkpoint(tmp_path):
    with running(tmp_path, "jobset", users=500) as run:
        run.wait_for_step(400)
        assert run.pods["chief-0"].kill() == 128 + signal.SIGKILL
        step = progress_of(run.checkpoint())["step"]
        run.end_others()
        run.start_all()  # as the JobSet controller does with BlockingRecreate
        assert run.pods["chief-0"].ended(300) == 0, run.pods["chief-0"].log[-3000:]
        assert f"going on from /data/run/checkpoints/step-{step}" in run.pods["chief-0"].log
        run.end_others()
        run.assert_whole(repeated=0)
