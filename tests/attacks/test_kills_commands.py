"""Commands are killed at random times, as a container is: process 1 of its namespace, the same host name each time.

Nothing that was there is lost or changed, nothing half done is taken for whole, and the same command, given again, is
itself killed or succeeds and tidies up; what it then leaves is what a command that nobody disturbed leaves. KILLS is
their number over all commands.
"""
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from clrec_tf.data import schema as schema_lib
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.training.checkpoint_list import checkpoint_hash
from clrec_tf.training.checkpoints import find_checkpoint
from tests.attacks.outcomes import FULL
from tests.attacks.outcomes import Outcomes
from tests import forked
from tests import small_run

pytestmark = [pytest.mark.attack, pytest.mark.slow]
KILLS = int(os.environ.get("KILLS", 100 if FULL else 8))
CHAIN = 3  # kills before a command is left to succeed
ROOT = pathlib.Path(__file__).parents[2]
NAMESPACES = 0x20020000  # CLONE_NEWPID | CLONE_NEWNS
# As `unshare --pid --fork --kill-child --mount-proc`.
CONTAINER = f"""
import ctypes, os, signal, sys
libc = ctypes.CDLL(None)
assert not libc.unshare({NAMESPACES}), "no right to make namespaces"
if child := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
assert not libc.mount(b"none", b"/proc", None, 0x44000, None)  # MS_REC | MS_PRIVATE
assert not libc.mount(b"proc", b"/proc", b"proc", 0xe, None)  # MS_NOSUID | MS_NODEV | MS_NOEXEC
assert os.getpid() == 1
"""
# What takes long and writes nothing, the imports, comes before "ready".
COMMAND = """
import runpy, sys
import clrec_tf.export, clrec_tf.prepare, clrec_tf.train, clrec_tf.update_index
import clrec_tf.training.loop, clrec_tf.training.runtime
print("ready", flush=True)
sys.argv = sys.argv[1:]
del sys.modules["clrec_tf." + sys.argv[0]]
runpy.run_module("clrec_tf." + sys.argv[0], run_name="__main__")
"""
MODEL = ["--embedding_dim=8", "--max_history=6", "--attention_heads=2", "--queue_size=40", "--batch_size=16",
         "--target_mode=sliding", "--shuffle_shards=2", "--log_every_steps=1", "--validate_every=0.5",
         "--checkpoint_every_steps=4", "--steps_per_call=2", "--epochs=2", "--recall_k=5"]


class Command:
    """One command, killed again and again.

    Args:
      arguments: module and flags.
      container: code that takes it into one, or none.
    """

    def __init__(self, container, *arguments):
        self._command = [sys.executable, "-c", container + COMMAND, *map(str, arguments)]
        self._container, self.seconds = container, 0.0

    def start(self):
        """The process and the one that does the work, when it is about to begin."""
        process = forked.Popen(self._command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = process.stdout.readline()
        assert line == "ready\n", process.communicate()[1][-2000:]
        return process

    def finish(self):
        """Runs it to its end; how long it took stands in `seconds`."""
        process, begin = self.start(), time.monotonic()
        _, text = process.communicate(timeout=300)
        self.seconds = time.monotonic() - begin
        assert process.returncode == 0 and "Traceback" not in text, text[-3000:]

    def kill(self, delay) -> bool:
        """Kills it after some seconds; False if it was faster."""
        process = self.start()
        try:
            process.communicate(timeout=delay)
            return False
        except subprocess.TimeoutExpired:
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
            worker = children.read_text().split()[:1] if self._container else []
            process.kill()
            process.communicate()
            while worker and pathlib.Path(f"/proc/{worker[0]}").exists():  # until process 1 has gone too
                time.sleep(0.01)
            return True


@pytest.fixture(name="container", scope="module")
def fixture_container():
    if forked.run([sys.executable, "-c", CONTAINER], capture_output=True).returncode:
        print("no right to make process-id namespaces: killed as ordinary processes")
        return ""
    return CONTAINER


def attack(outcomes, command, kills, check, left, again):
    """Kills a command in chains.

    Args:
      outcomes: see there.
      command: a `Command` that was finished once.
      kills: how many.
      check: () -> None; asserts after a kill that all there is is sound.
      left: () -> what a command that succeeded leaves, to be as it was at first.
      again: () -> None; makes place for the next chain.
    """
    expected, chance = left(), random.Random(command.seconds)
    again()
    for number in range(1, kills + 1):
        killed = command.kill(chance.uniform(0, 0.85 * command.seconds))  # few are faster
        try:
            check()
            if number % CHAIN == 0 or number == kills:
                command.finish()
                check()
                assert left() == expected, "another result than of a command that nobody disturbed"
                again()
            outcomes.add("held" if killed else "finished before")
        except Exception as error:  # pylint: disable=broad-exception-caught
            outcomes.add("lost", f"kill {number}: {error!r}"[:1500])
            again()


def tree(folder) -> dict[str, str]:
    """Name -> sha256 of every file."""
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(pathlib.Path(folder).rglob("*")) if path.is_file()}


@pytest.fixture(name="world", scope="module")
def fixture_world(tmp_path_factory):
    """A folder with a prepared log, and a run on it that its command finished."""
    folder = tmp_path_factory.mktemp("kills")
    small_run.prepared(folder)
    trained = Command("", "train", f"--data_dir={folder}/data", f"--workdir={folder}/run", *MODEL)
    trained.finish()
    return folder


def test_prepare(request, container, tmp_path):
    (tmp_path / "log.csv").write_text(small_run.click_log(users=3000, items=300))
    data = tmp_path / "place" / "data"
    command = Command(container, "prepare", f"--input={tmp_path}/log.csv", f"--data_dir={data}",
                      "--feature_columns=category", "--shard_records=16")
    command.finish()

    def check():
        if data.exists():
            schema_lib.load_manifest(str(data), "sha256")

    def left():
        return sorted(os.listdir(tmp_path / "place")), tree(data)

    with Outcomes(request, "kills of prepare") as outcomes:
        attack(outcomes, command, KILLS // 4, check, left, lambda: shutil.rmtree(data))


def test_train(request, container, world, tmp_path):
    run = tmp_path / "run"
    command = Command(container, "train", f"--data_dir={world}/data", f"--workdir={run}", *MODEL)
    command.finish()
    most = [0]

    def check():
        """No step is lost that a checkpoint held."""
        if list((run / "checkpoints").glob("*.index")):
            step = int(find_checkpoint(str(run), "latest").rpartition("-")[2])
            assert step >= most[0], f"step {step} after {most[0]}"
            most[0] = step

    def left():
        names = [name for name in os.listdir(run) if name != "summaries"]
        inside = [sorted(os.listdir(run / folder)) for folder in ("checkpoints", "best")]
        return (sorted(names), inside, small_run.losses(run),
                *(checkpoint_hash(find_checkpoint(str(run), which)) for which in ("latest", "best")))

    def again():
        shutil.rmtree(run)
        most[0] = 0

    with Outcomes(request, "kills of train") as outcomes:
        attack(outcomes, command, KILLS // 4, check, left, again)


class Versions:
    """What is checked of a folder of versions: none changes, each is whole, and nothing else is left there."""

    def __init__(self, folder):
        self.folder, self._known = folder, {}

    def numbers(self):
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit())

    def check(self):
        for number in self.numbers():
            found = tree(self.folder / str(number))
            if number not in self._known:
                load_bundle(str(self.folder / str(number)))
            assert self._known.setdefault(number, found) == found, f"version {number} was changed"

    def left(self):
        """The files there, and what the newest version finds."""
        bundle = load_bundle(str(self.folder))
        found, _ = bundle.index.search(bundle.item_vectors()[:4], 9)
        names = sorted(name for name in os.listdir(self.folder) if not name.isdigit())
        return names, bundle.item_ids[found].tolist(), int(np.count_nonzero(bundle.live))


def test_export(request, container, world, tmp_path):
    versions = Versions(tmp_path / "export")
    command = Command(container, "export", f"--data_dir={world}/data", f"--workdir={world}/run",
                      f"--export_dir={tmp_path}/export", "--recall_k=5")
    command.finish()
    with Outcomes(request, "kills of export") as outcomes:
        attack(outcomes, command, KILLS // 4, versions.check, versions.left, lambda: None)


def test_update_index(request, container, world, tmp_path):
    """Each update adds a version in which the same item has moved."""
    versions = Versions(tmp_path / "export")
    Command("", "export", f"--data_dir={world}/data", f"--workdir={world}/run", f"--export_dir={tmp_path}/export",
            "--recall_k=5").finish()
    bundle = load_bundle(str(tmp_path / "export"))
    moved, gone, back = bundle.item_ids[:3].tolist()
    lines = [{"id": moved, "vector": bundle.item_vectors()[7].tolist()}, {"id": back}]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "gone.txt").write_text(f"{gone}\n")
    command = Command(container, "update_index", f"--export_dir={tmp_path}/export/1", f"--upsert={tmp_path}/items.jsonl",
                      f"--withdraw={tmp_path}/gone.txt", "--target_recall=0.5")
    command.finish()
    with Outcomes(request, "kills of update_index") as outcomes:
        attack(outcomes, command, KILLS // 4, versions.check, versions.left, lambda: None)
