"""The manifests build, fit Kubernetes's schemas, start one cluster and are locked down. No controller runs here."""
import os
import re
import sys

import pytest

from clrec_tf.errors import BusyError, ClusterError, DiskFullError
from clrec_tf.publishing.tf_serving import BATCHING_FILE, MODELS_FILE
from tests import forked
from tests import kubernetes_manifests as manifests


def test_there_are_both_ways_to_run_and_examples_of_each_with_gpus_and_without():
    assert manifests.RUNS == ["base-jobs", "base-jobset", "overlays/taobao-jobs", "overlays/taobao-jobs-gpu",
                              "overlays/taobao-jobset", "overlays/taobao-jobset-gpu"]


@pytest.mark.parametrize("version", manifests.VERSIONS)
@pytest.mark.parametrize("variant", [*manifests.OTHERS, manifests.MONITORED, manifests.TFJOB, *manifests.WITH_METRICS,
                                     *manifests.VARIANTS])
def test_objects_fit_the_schemas_of_kubernetes(variant, version):
    assert not manifests.core_problems(manifests.built(variant), version)


@pytest.mark.parametrize("variant", [variant for variant in manifests.VARIANTS if "jobset" in variant])
def test_the_jobset_fits_its_schema_and_succeeds_with_the_chief(shared_data, variant):
    objects = manifests.built(variant)
    jobset, = manifests.of_kind(objects, "JobSet")
    assert not manifests.crd_problems(jobset, manifests.crd(shared_data, "JobSet"))
    spec = jobset["spec"]
    assert spec["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["chief"]}
    assert spec["failurePolicy"]["maxRestarts"] > 0 and spec["failurePolicy"]["restartStrategy"] == "BlockingRecreate"
    assert [(r["action"], r["onJobFailureReasons"]) for r in spec["failurePolicy"]["rules"]] == [
        ("FailJobSet", ["PodFailurePolicy"])]
    assert spec["network"] == {"enableDNSHostnames": True, "subdomain": "clrec", "publishNotReadyAddresses": True}
    assert not manifests.of_kind(objects, "Job") and not manifests.of_kind(objects, "Service")


@pytest.mark.parametrize("variant", manifests.VARIANTS)
def test_every_pod_derives_the_cluster_of_the_pods(variant):
    objects = manifests.built(variant)
    sizes = {name: role.job["spec"]["completions"] for name, role in manifests.roles(objects).items()}
    assert sizes == dict(chief=1, worker=4, ps=2, evaluator=1) if "taobao" in variant else sizes == dict(
        chief=1, worker=2, ps=1, evaluator=0)
    assert not manifests.cluster_problems(objects)


@pytest.mark.parametrize("variant", [*manifests.VARIANTS, manifests.TFJOB])
def test_pods_are_locked_down(variant):
    for role in manifests.roles(manifests.built(variant)).values():
        assert not manifests.security_problems(role)


@pytest.mark.parametrize("variant", manifests.VARIANTS)
def test_roles_end_and_restart_as_they_should(variant):
    roles = manifests.roles(manifests.built(variant))
    for name, role in roles.items():
        spec = role.job["spec"]
        assert spec["completionMode"] == "Indexed" and spec["parallelism"] == spec["completions"]
        assert role.pod["restartPolicy"] == "Never"  # what podFailurePolicy asks for
        on_exit, *rest = spec["podFailurePolicy"]["rules"]
        retried = {DiskFullError.exit_code, BusyError.exit_code, ClusterError.exit_code}
        assert not retried & set(on_exit["onExitCodes"]["values"])
        assert on_exit["action"] == "FailJob" and on_exit["onExitCodes"] == {
            "containerName": role.container["name"], "operator": "In", "values": [2]}
        alone = name in ("worker", "evaluator")  # replaced alone; the others take everything with them
        assert [rule["action"] for rule in rest] == ["Ignore"] * alone and (spec["backoffLimit"] > 0) == alone
    grace = {name: role.pod["terminationGracePeriodSeconds"] for name, role in roles.items()}
    for name in ("worker", "ps"):  # they serve until the chief has saved its checkpoint
        container = roles[name].container
        assert grace["chief"] < grace[name] and "lifecycle" not in container
        assert container["startupProbe"]["tcpSocket"] == container["readinessProbe"]["tcpSocket"] == {"port": "grpc"}
    for name in ("chief", "worker", "ps"):
        assert roles[name].container["ports"] == [{"name": "grpc", "containerPort": 2222}]


@pytest.mark.parametrize("variant", manifests.VARIANTS)
def test_pods_reach_each_other_and_names_only(variant):
    objects = manifests.built(variant)
    policy = manifests.of_kind(objects, "NetworkPolicy")[0]["spec"]
    run = policy["podSelector"]["matchLabels"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"} and run
    for role in manifests.roles(objects).values():
        assert run.items() <= role.job["spec"]["template"]["metadata"]["labels"].items()
    own = [{"podSelector": {"matchLabels": run}}]
    assert policy["ingress"] == [{"from": own, "ports": [{"protocol": "TCP", "port": 2222}]}]
    peers, names = policy["egress"]
    assert peers == {"to": own, "ports": [{"protocol": "TCP", "port": 2222}]}
    assert len(names["to"]) == 1 and {"namespaceSelector", "podSelector"} == set(names["to"][0])
    assert {(port["protocol"], port["port"]) for port in names["ports"]} == {("UDP", 53), ("TCP", 53)}
    for service in manifests.of_kind(objects, "Service"):
        spec = service["spec"]
        assert spec["clusterIP"] == "None" and spec["publishNotReadyAddresses"] is True and spec["selector"] == run
        assert {role.pod["subdomain"] for role in manifests.roles(objects).values()} == {service["metadata"]["name"]}


@pytest.mark.parametrize("variant", manifests.VARIANTS)
def test_what_the_pods_mount_exists_and_the_flags_can_be_read(tmp_path, variant):
    objects = manifests.built(variant)
    claim, export = manifests.of_kind(manifests.built("storage"), "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == export["spec"]["accessModes"] == ["ReadWriteMany"]
    for role in manifests.roles(objects).values():
        volumes = {volume["name"]: volume for volume in role.pod["volumes"]}
        mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in role.container["volumeMounts"]}
        assert mounts["/data"]["persistentVolumeClaim"] == {"claimName": claim["metadata"]["name"]}
        folder, name = os.path.split(role.container["args"][-1].removeprefix("--flagfile="))
        text = manifests.config_maps(objects)[mounts[folder]["configMap"]["name"]][name]
    for path in re.findall(r"^--(?:data_dir|workdir|export_dir|input)=(.*)", text, re.MULTILINE):
        assert path.startswith("/data/")
    flagfile = tmp_path / "train.flags"
    flagfile.write_text(text.replace(manifests.IN_IMAGE, str(manifests.ROOT)), encoding="utf-8")
    code = ("import sys; from absl import flags; from clrec_tf import command_line; command_line.define_flags(); "
            "flags.FLAGS(sys.argv); c = command_line.read_flags(); print(c.paths.data_dir, c.paths.workdir)")
    ran = forked.run([sys.executable, "-c", code, f"--flagfile={flagfile}"], cwd=manifests.ROOT,
                     capture_output=True, text=True, check=False)
    assert ran.returncode == 0 and all(path.startswith("/data/") for path in ran.stdout.split()), ran.stderr[-500:]


@pytest.mark.parametrize("variant", manifests.WITH_COMPONENTS)
def test_components_add_a_gpu_to_workers_and_a_secret_as_files(variant):
    for name, role in manifests.roles(manifests.built(variant)).items():
        assert role.container["resources"]["limits"].get("nvidia.com/gpu") == (1 if name == "worker" else None)
        mount, = [mount for mount in role.container["volumeMounts"] if mount["mountPath"] == "/secrets"]
        volume, = [volume for volume in role.pod["volumes"] if volume["name"] == mount["name"]]
        assert mount["readOnly"] and volume["secret"] == {"secretName": "clrec-credentials", "defaultMode": 0o440}


@pytest.mark.parametrize("way", ["jobs", "jobset"])
def test_the_example_with_gpus_differs_from_its_twin_by_a_component(way):
    plain, gpu = (manifests.built(f"overlays/taobao-{way}{end}") for end in ("", "-gpu"))
    for name, role in manifests.roles(gpu).items():
        assert role.container["image"] == "clrec-tf:0.1-gpu" and role.job["spec"]["completions"] > 0
        role.container["image"] = "clrec-tf:0.1"
        if name == "worker":
            assert role.container["resources"]["limits"].pop("nvidia.com/gpu") == 1
            assert role.pod.pop("tolerations") == [
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert gpu == plain


def test_the_image_holds_what_the_pods_run_and_writes_to_mounts_only():
    text = (manifests.FOLDER / "Dockerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    sources = [source for line in copied for source in line.split()]
    ignored = (manifests.FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for source in sources:
        assert (manifests.ROOT / source).exists() and f"!{source}" in ignored
    assert f"COPY launch/tf_config.py launch/scheduled_day.py {manifests.IN_IMAGE}/launch/" in text
    assert f"COPY configs {manifests.IN_IMAGE}/configs" in text
    for variable in ("HOME", "TMPDIR", "MPLCONFIGDIR", "XDG_CACHE_HOME"):
        assert re.search(rf"\b{variable}=/tmp\b", text)
    assert re.search(r"^USER 10001:10001$", text, re.MULTILINE) and "--require-hashes" in text
    assert re.search(r"^ARG BASE$", text, re.MULTILINE) and "BASE=python:3.11-slim@sha256:" in text  # no tag by default
    for image in re.findall(r"^FROM\s*(\S+)", text, re.MULTILINE):
        assert image == "${BASE}"


def test_tensorflow_serving_reads_what_an_export_writes_and_is_locked_down():
    yaml = pytest.importorskip("yaml")
    objects = list(yaml.safe_load_all((manifests.FOLDER / "tf_serving.yaml").read_text(encoding="utf-8")))
    for version in manifests.VERSIONS:
        assert not manifests.core_problems(objects, version)
    deployment, service = objects
    pod = deployment["spec"]["template"]["spec"]
    container, = pod["containers"]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert mounts["/models/clrec"]["readOnly"] and set(mounts) == {"/models/clrec", "/tmp"}
    assert {f"--model_config_file=/models/clrec/{MODELS_FILE}", "--enable_batching=true",
            f"--batching_parameters_file=/models/clrec/{BATCHING_FILE}"} <= set(container["args"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {f"--port={ports['grpc']}", f"--rest_api_port={ports['rest']}"} <= set(container["args"])
    assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [(8500, "grpc"), (8501, "rest")]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"] == labels
    assert container["readinessProbe"]["httpGet"] == {"path": "/v1/models/clrec/metadata", "port": "rest"}
    problems = manifests.security_problems(manifests.Role("serving", deployment, ""))
    assert problems == ["serving: writes to {'/tmp'}"]  # and not to /data, as the pods of a run do
