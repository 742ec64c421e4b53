"""Versions: which is served, what is refused and why, and that whoever asks meanwhile is answered."""
import concurrent.futures
import contextlib
import gc
import hashlib
import json
import os
import pathlib
import shutil
import signal
import threading
import time
import weakref

import pytest

from clrec_tf.errors import DataError
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.server.model_status import metadata
from clrec_tf.server.model_status import version_states
from clrec_tf.server.engine import Engine
from clrec_tf.server.metrics import Metrics
from clrec_tf.server.versions import Versions
from clrec_tf.system import json_files
from clrec_tf import update_index
from tests import exported
from tests.service_process import START_S, answer_of, ask, read_all, serving, wait_for
from tests.test_command_line import command

pytestmark = pytest.mark.usefixtures("unfrozen_afterwards")
HISTORY = [exported.original_id("int", number) for number in (3, 14, 15)]
REQUEST = json.dumps({"signature_name": "retrieve", "instances": [{"history": HISTORY, "k": 5}]}).encode()
PREDICT, STATUS = "/v1/models/clrec:predict", "/v1/models/clrec"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of two bundles that answer differently."""
    folder = tmp_path_factory.mktemp("models")
    return [exported.world("int", seed).export(folder / str(seed), checkpoint_hash="ab"[seed] * 64) for seed in (0, 1)]


def publish(model, export_dir, number, how=""):
    """Puts a bundle into a folder under a number, damaged or not; it appears at once."""
    scratch = pathlib.Path(export_dir) / f".{number}"
    shutil.copytree(model, scratch)
    spoil(scratch, how)
    os.rename(scratch, pathlib.Path(export_dir) / str(number))


def spoil(folder, how):
    """Damages a version."""
    manifest = folder / "manifest.json"
    facts = json.loads(manifest.read_text())
    facts = json_files.unsealed(facts)  # as of before there were seals
    if how == "corrupt":
        path = folder / "variables" / "variables.data-00000-of-00001"
        path.write_bytes(path.read_bytes()[:-1] + b"\x5a")
    elif how == "format":
        manifest.write_text(json.dumps(facts | {"format_version": 1}))
    elif how == "half":
        manifest.write_text(manifest.read_text()[:100])
    elif how == "missing":
        shutil.rmtree(folder / "index")
    elif how == "unlike":  # the manifest lies about what the tower takes: only calling it shows that
        manifest.write_text(json.dumps(facts | {"uses_time": True}))
    elif how == "mixed":
        other = pathlib.Path(exported.world("int").export(folder.parent / "x", checkpoint_hash="e" * 64))
        shutil.rmtree(folder / "index")
        shutil.copytree(other / "index", folder / "index")
        theirs = json.loads((other / "manifest.json").read_text())["files"]
        facts["files"] = {name: theirs[name] if name.startswith("index/") else entry
                          for name, entry in facts["files"].items()}
        manifest.write_text(json.dumps(facts))
        shutil.rmtree(folder.parent / "x")


def rewritten(folder, name, write):
    """A version of which one file was written anew, and its manifest with it: nothing differs from what it says."""
    path = os.path.join(folder, name)
    write(path)
    manifest = os.path.join(folder, "manifest.json")
    with open(manifest, encoding="utf-8") as file:
        facts = json_files.unsealed(json.load(file))
    with open(path, "rb") as file:
        facts["files"][name] = dict(bytes=os.path.getsize(path), sha256=hashlib.file_digest(file, "sha256").hexdigest())
    with open(manifest, "w", encoding="utf-8") as file:
        json.dump(json_files.sealed(facts), file)


DAMAGE = {"corrupt": "variables.data-00000-of-00001 differs from the manifest", "half": "manifest.json is damaged",
          "format": "format_version=1, this program reads", "mixed": "mixes parts of different checkpoints",
          "missing": "is missing though the manifest lists it", "unlike": "cannot be served"}


def engine_of(bundle):
    return Engine(bundle, SearchOptions(k=5), lambda stage, seconds: None)


def started(folder, wanted=0, **told):
    versions = Versions(str(folder), wanted, engine_of, **told)
    versions.start()
    return versions


def test_the_newest_sound_version_is_served_and_damaged_ones_are_named(models, tmp_path):
    publish(models[0], tmp_path, 2)
    (tmp_path / "3").mkdir()  # half-written: no manifest yet
    for number, how in enumerate(DAMAGE, 4):
        publish(models[1], tmp_path, number, how)
    refused, served = [], []
    versions = started(tmp_path, swapped=served.append, refused=lambda: refused.append(1))
    assert versions.engine.version == 2 and served == [versions.engine]
    assert sorted(versions.refusals) == [4, 5, 6, 7, 8, 9] and len(refused) == 6
    for number, text in enumerate(DAMAGE.values(), 4):
        where = "version 9" if number == 9 else f"{tmp_path}/{number}"
        assert text in versions.refusals[number] and where in versions.refusals[number]
    engine = versions.engine
    versions.look()
    assert versions.engine is engine and len(refused) == 6  # nothing is tried twice
    publish(models[1], tmp_path, 30)  # a sound one
    versions.look()
    assert versions.engine.version == 30
    shutil.rmtree(tmp_path / "5")
    versions.look()
    assert 5 not in versions.refusals and 4 in versions.refusals
    shutil.rmtree(tmp_path)
    versions.look()
    assert versions.engine.version == 30  # from memory


def test_a_version_is_served_by_its_folder_and_one_made_anew_is_another(models, tmp_path):
    publish(models[0], tmp_path, 7)
    versions = started(tmp_path)
    first = versions.engine
    assert first.version == 7  # though exported as 1
    versions.look()
    assert versions.engine is first
    shutil.rmtree(tmp_path / "7")
    publish(models[1], tmp_path, 7)
    versions.look()
    assert versions.engine is not first and versions.engine.bundle.manifest["checkpoint_hash"] == "b" * 64
    spoil(tmp_path / "7", "half")
    versions.look()
    assert versions.engine.version == 7 and "is damaged" in versions.refusals[7]
    shutil.rmtree(tmp_path / "7")
    publish(models[0], tmp_path, 7)
    versions.look()
    assert versions.engine.bundle.manifest["checkpoint_hash"] == "a" * 64 and not versions.refusals


def test_a_version_replaced_in_place_is_noticed_by_size_and_by_when_it_was_written(models, tmp_path):
    publish(models[0], tmp_path, 7)
    manifest = tmp_path / "7" / "manifest.json"
    before, versions = manifest.stat(), started(tmp_path)
    text = manifest.read_text()
    for text in (text, text + "\n"):  # the first is of the same size too
        first = versions.engine
        manifest.write_text(text)
        os.utime(manifest, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert manifest.stat().st_ino == before.st_ino and manifest.stat().st_mtime_ns == before.st_mtime_ns
        versions.look()
        assert versions.engine is not first
        first = versions.engine
        versions.look()
        assert versions.engine is first


def test_what_can_be_retrieved_is_counted(models, tmp_path, caplog):
    publish(models[0], tmp_path, 1)
    (tmp_path / "gone.txt").write_text(f"{HISTORY[0]}\n{HISTORY[1]}\n")
    (tmp_path / "more.txt").write_text(f"{HISTORY[2]}\n")
    (tmp_path / "new.jsonl").write_text(json.dumps({"id": 7, "like": HISTORY}))
    update_index.update_bundle(str(tmp_path), str(tmp_path / "new.jsonl"), str(tmp_path / "gone.txt"), 0.9)
    metrics = Metrics()
    with caplog.at_level("INFO", logger="absl"):
        versions = started(tmp_path, swapped=metrics.swapped)
    assert f"{exported.ITEMS - 1} items, updated index" in caplog.text
    assert f"clrec_model_items {exported.ITEMS - 1}.0\n".encode() in metrics.text()
    facts = metadata("clrec", versions.engine)["metadata"]["bundle"]
    assert {name: facts[name] for name in ("items", "fresh", "withdrawn")} == dict(
        items=exported.ITEMS - 1, fresh=1, withdrawn=2)
    update_index.update_bundle(str(tmp_path), "", str(tmp_path / "more.txt"), 0.9)
    versions.look()
    assert f"clrec_model_items {exported.ITEMS - 2}.0\n".encode() in metrics.text()


def test_a_version_spoilt_after_it_was_loaded_stays_rather_than_an_older_one(models, tmp_path):
    publish(models[0], tmp_path, 1)
    publish(models[1], tmp_path, 2)
    versions = started(tmp_path)
    spoil(tmp_path / "2", "half")
    for _ in range(3):
        versions.look()
        assert versions.engine.version == 2 and list(versions.refusals) == [2]
    shutil.rmtree(tmp_path / "2")  # whoever takes it away wants the older one
    versions.look()
    assert versions.engine.version == 1 and not versions.refusals


def test_a_sound_version_below_a_damaged_one_is_served_too(models, tmp_path):
    publish(models[0], tmp_path, 1)
    versions = started(tmp_path)
    publish(models[1], tmp_path, 5, "half")
    versions.look()
    publish(models[1], tmp_path, 3)
    versions.look()
    versions.look()
    assert versions.engine.version == 3 and list(versions.refusals) == [5]


def test_the_file_goes_before_the_flag_and_both_before_the_newest(models, tmp_path):
    for number in (1, 2, 3):
        publish(models[number % 2], tmp_path, number)
    assert started(tmp_path).engine.version == 3
    versions = started(tmp_path, wanted=2)
    assert versions.engine.version == 2
    pin = tmp_path / "serve_version"
    pin.write_text("1\n")
    versions.look()
    assert versions.engine.version == 1 and started(tmp_path, wanted=2).engine.version == 1
    for text in ("9", "", "-1", "0", "one", "²", "9" * 5000, "3\n2"):
        pin.write_text(text)
        versions.look()
        assert versions.engine.version == 1
        told = {entry["version"]: entry["status"]["error_message"] for entry in version_states(versions)}
        assert "write the number of a version" in told["1"] if text != "9" else "version 9 is asked" in told["9"]
        with pytest.raises(DataError, match="write the number of a version, or remove|version 9 is asked for"):
            started(tmp_path)
    assert "version 9 is asked for" in versions.refusals[9] and "[1, 2, 3]" in versions.refusals[9]
    pin.unlink()
    versions.look()
    assert versions.engine.version == 2 and not versions.refusals
    assert [entry["status"]["error_message"] for entry in version_states(versions)] == [""]
    pin.write_text("9")
    versions.look()
    publish(models[1], tmp_path, 9)  # what was asked for comes later
    versions.look()
    assert versions.engine.version == 9 and not versions.refusals


@pytest.fixture
def collector_at_rest():
    """The collector runs only where it is told to."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("collector_at_rest")
def test_replaced_versions_are_freed(models, tmp_path):
    publish(models[0], tmp_path, 1)
    versions, gone = started(tmp_path), []
    for number in range(2, 5):
        bundle = versions.engine.bundle
        gone += [weakref.ref(part) for part in (versions.engine, bundle, bundle.tower, bundle.tower.items,
                                                bundle.index, bundle.tower.signatures["retrieve"].graph)]
        del bundle
        publish(models[0], tmp_path, number)
        versions.look()
    versions.look()  # the collector runs at the look after a swap, when the last requests are done
    assert versions.engine.version == 4 and [ref() for ref in gone] == [None] * 18


class Load:
    """Clients that ask without pause, each on a connection that is kept alive; `answers` has (status, ids)."""

    def __init__(self, service, clients=4):
        self.stop, self.answers, self.failures, self._service = threading.Event(), [], [], service
        service.port  # pylint: disable=pointless-statement  (waits)
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def _ask(self):
        with contextlib.closing(self._service.client()) as client:
            while not self.stop.is_set():
                try:
                    answer = ask(client, PREDICT, REQUEST)
                except OSError as error:
                    self.failures.append(repr(error))
                    return
                found = answer.json
                if answer.status != 200:
                    self.failures.append(answer)
                    return
                self.answers.append(tuple(found["predictions"][0]["ids"]))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        wait_for(lambda: len(self.answers) > 20 or self.failures, 30)
        assert not self.failures, (self.failures, self._service.log)
        return self

    def __exit__(self, *error):
        self.stop.set()
        for thread in self._threads:
            thread.join()


def states(service):
    answer = service.request(STATUS).json["model_version_status"]
    return {int(entry["version"]): (entry["state"], entry["status"]["error_message"]) for entry in answer}


def served(service):
    return [number for number, (state, _) in states(service).items() if state == "AVAILABLE"]


def answers_of(models):
    """Ids that either model gives."""
    found = []
    for model in models:
        versions = started(pathlib.Path(model).parent)
        from clrec_tf.server.bodies import Job  # pylint: disable=import-outside-toplevel
        from clrec_tf.server.instances import RETRIEVE  # pylint: disable=import-outside-toplevel
        from clrec_tf.retrieval.user_requests import UserRequest  # pylint: disable=import-outside-toplevel
        [answer] = versions.engine([Job(RETRIEVE, UserRequest(None, HISTORY), SearchOptions(k=5, intents=1))])
        found.append(tuple(answer["ids"]))
    assert found[0] != found[1]
    return found


def test_the_life_of_a_service_under_load(models, tmp_path):
    old, new = answers_of(models)
    publish(models[0], tmp_path, 1)
    with serving(tmp_path) as service:
        with Load(service) as load:
            (tmp_path / "2").mkdir()  # begun, without a manifest: no version yet
            for number, how in enumerate(("corrupt", "mixed", "format"), 3):
                publish(models[1], tmp_path, number, how)
            wait_for(lambda: len(states(service)) == 4, 20)
            assert served(service) == [1] and set(load.answers) == {old}
            assert all(DAMAGE[how] in states(service)[number][1] for number, how in
                       enumerate(("corrupt", "mixed", "format"), 3))
            publish(models[1], tmp_path, 6)
            wait_for(lambda: served(service) == [6], 20)
            wait_for(lambda: load.answers[-20:] == [new] * 20, 20)
            (tmp_path / "serve_version").write_text("1")
            wait_for(lambda: served(service) == [1], 20)
            (tmp_path / "serve_version").unlink()
            wait_for(lambda: served(service) == [6], 20)
            shutil.rmtree(tmp_path / "6")
            publish(models[0], tmp_path, 6)  # the same number made anew
            wait_for(lambda: load.answers[-20:] == [old] * 20, 20)
            shutil.rmtree(tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-gone")))  # gone all at once
            before = len(load.answers)
            time.sleep(0.5)
            assert served(service) == [6] and len(load.answers) > before
        assert not load.failures and set(load.answers) == {old, new}
        found = service.metrics()
        assert found["clrec_model_version"] == 6 and found["clrec_versions_refused_total"] >= 3
        assert found['clrec_requests_total{signature="retrieve",status="200"}'] == len(load.answers)
        tmp_path.mkdir()
        publish(models[1], tmp_path, 1)
        service.signal(signal.SIGKILL)
        assert service.exit_code() == -signal.SIGKILL
    with serving(tmp_path, "--drain_s=1", "--poll_s=600") as service:  # after a kill as after an end
        with Load(service, 1) as load:
            publish(models[0], tmp_path, 2)
            time.sleep(0.3)
            assert served(service) == [1]  # the next look is far away
            service.signal(signal.SIGHUP)
            wait_for(lambda: served(service) == [2], 20)
            end_under_load(service)
        assert not [failure for failure in load.failures if not isinstance(failure, str)]


def test_a_hangup_while_it_loads_does_not_end_it(models, tmp_path):
    publish(models[0], tmp_path, 1)
    with serving(tmp_path) as service:
        wait_for(lambda: "loading from" in service.log, START_S)
        service.signal(signal.SIGHUP)
        assert service.port and service.request("/readyz").status == 200


def end_under_load(service):
    """SIGTERM: not ready, but answering; then an end that answers what was accepted."""
    def client(number):
        """Asks until its connection is told to close, or is refused."""
        count = 0
        while True:
            try:
                connection = service.connect()
            except ConnectionRefusedError:
                return count
            with contextlib.closing(connection):
                head = (f"POST {PREDICT} HTTP/1.1\r\nconnection: close\r\n"
                        f"content-length: {len(REQUEST)}\r\n\r\n").encode()
                try:
                    connection.sendall(head + REQUEST[:number])
                    time.sleep(0.02)
                    connection.sendall(REQUEST[number:])
                    text = read_all(connection)
                except OSError:
                    continue
                # Whatever was accepted has its whole answer: nothing at all only comes from a closed listener's queue.
                assert not text or answer_of(text).status == 200, text
                count += bool(text)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(client, number) for number in range(4)]
        time.sleep(0.2)
        service.signal(signal.SIGTERM)
        wait_for(lambda: service.request("/readyz").status == 503, 1)
        answer = service.predict(REQUEST)
        assert answer.status == 200 and answer.headers["connection"] == "close"
        assert service.request("/healthz").status == 200
        assert service.exit_code(20) == 0
        assert all(found.result() > 3 for found in clients)
    assert "accepting ends in 1 s" in service.log and "every accepted request was answered" in service.log
    assert "Traceback" not in service.log


def test_a_second_signal_ends_at_once(models, tmp_path):
    publish(models[0], tmp_path, 1)
    with serving(tmp_path, "--drain_s=600") as service, contextlib.closing(service.connect()) as idle:
        with serving(tmp_path, f"--port={service.port}") as second:  # the later flag counts
            assert second.exit_code() == 2
            assert f"--port={service.port} cannot be listened at (Address already in use): give another" in second.log
            assert "Traceback" not in second.log
        service.signal(signal.SIGTERM)
        wait_for(lambda: service.request("/readyz").status == 503, 5)
        begun = time.monotonic()
        service.signal(signal.SIGTERM)
        assert service.exit_code(10) == 0 and time.monotonic() - begun < 3
        assert "ended at once" in service.log and idle.recv(1) == b""


@pytest.mark.parametrize("what, text", [
    ("nothing", "holds no complete version: run python -m clrec_tf.export"),
    ("damaged", "differs from the manifest"),
    ("pinned", "version 5 is asked for")])
def test_without_a_version_that_can_be_served_it_says_so_and_ends(models, tmp_path, what, text):
    if what != "nothing":
        publish(models[0], tmp_path, 1, "corrupt" if what == "damaged" else "")
    result = command("serve", f"--export_dir={tmp_path}", "--port=0", *["--serve_version=5"] * (what == "pinned"))
    assert result.returncode == 2 and text in result.stderr.splitlines()[-1] and "Traceback" not in result.stderr
