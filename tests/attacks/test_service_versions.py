"""Attacks on the folder of versions: copies in any order, flipped bits, files cut short, models that say nothing."""
import os
import re
import shutil
import signal
import time

import grpc
import numpy as np
import pytest
from tensorflow_serving.apis import get_model_metadata_pb2, prediction_service_pb2_grpc

from clrec_tf.server.bodies import Job
from clrec_tf.server.instances import RETRIEVE
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.user_requests import UserRequest
from tests.attacks.conftest import FULL
from tests import exported
from tests.service_process import serving, wait_for
from tests.test_versions import publish, rewritten, started
from tests.test_versions import models  # pylint: disable=unused-import  # noqa: F401

HISTORIES = [[exported.original_id("int", number) for number in numbers] for numbers in ((3, 14, 15), (9, 26), (5,))]


def answers(engine):
    """What a version says."""
    options = SearchOptions(k=9, intents=1)
    return [answer["ids"] for answer in engine([Job(RETRIEVE, UserRequest(None, ids), options) for ids in HISTORIES])]


def files_of(folder):
    return sorted(os.path.relpath(os.path.join(parent, name), folder)
                  for parent, _, names in os.walk(folder) for name in names)


def test_copies_in_any_order_and_in_pieces(attacks, models, tmp_path):
    """After every step what is served is sound; when all is there, it is the copy."""
    publish(models[0], tmp_path, 1)
    versions = started(tmp_path)
    old = answers(versions.engine)
    with attacks("versions: copies in any order") as group:
        for seed in range(attacks.rounds(2, 40)):
            rng, target = np.random.default_rng(seed), tmp_path / str(seed + 2)
            names = list(rng.permutation(files_of(models[seed % 2])))
            for name in names:
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                with open(os.path.join(models[seed % 2], name), "rb") as file:
                    text = file.read()
                cut = int(rng.integers(len(text) + 1))
                for part in (text[:cut], text):
                    (target / name).write_bytes(part)
                    if rng.random() < .3:
                        before = versions.engine.version
                        versions.look()
                        complete = files_of(target) == sorted(names)
                        group.count(versions.engine.version == before or complete, f"seed {seed}: served half a copy")
            versions.look()
            group.count(versions.engine.version == seed + 2, f"seed {seed}: {versions.refusals}")
        group.count(old in (answers(started(tmp_path, wanted=number).engine) for number in (2, 3)), "other answers")


def test_flipped_bits(attacks, models, tmp_path):
    """One bit of one file of a version: it is refused, or says the same; flipped back, it is served."""
    publish(models[0], tmp_path, 1)
    publish(models[1], tmp_path, 2)
    new = answers(started(tmp_path, wanted=2).engine)
    versions = started(tmp_path, wanted=1)
    pin = tmp_path / "serve_version"
    with attacks("versions: flipped bits") as group:
        names = files_of(models[1])
        for seed in range(attacks.rounds(len(names), 200)):
            rng, name = np.random.default_rng(seed), names[seed % len(names)]
            shutil.rmtree(tmp_path / "2")
            publish(models[1], tmp_path, 2)
            path = tmp_path / "2" / name
            text = bytearray(path.read_bytes())
            place = int(rng.integers(len(text)))
            text[place] ^= 1 << int(rng.integers(8))
            path.write_bytes(text)
            pin.write_text("2")
            versions.look()
            held = versions.engine.version == 1 and 2 in versions.refusals or answers(versions.engine) == new
            group.count(held, f"seed {seed}: {name}, byte {place} makes another model")
            pin.unlink()
            versions.look()
        shutil.rmtree(tmp_path / "2")
        publish(models[1], tmp_path, 2)
        pin.write_text("2")
        versions.look()
        group.count(answers(versions.engine) == new, "a mended version is not served")


def test_models_that_say_nothing(attacks, models, tmp_path):
    """What the manifest says of its files is true, and the model is spoilt."""
    publish(models[0], tmp_path, 1)
    versions = started(tmp_path)
    spoilt = {"nan": lambda values: np.full_like(values, np.nan), "inf": lambda values: np.full_like(values, np.inf),
              "zero": np.zeros_like, "alike": lambda values: np.repeat(values[:1], len(values), axis=0),
              "one is nan": lambda values: np.concatenate([np.full_like(values[:1], np.nan), values[1:]])}
    with attacks("versions: models that say nothing") as group:
        for number, (name, change) in enumerate(spoilt.items(), 2):
            publish(models[1], tmp_path, number)
            rewritten(tmp_path / str(number), "index/vectors.npy", lambda path, change=change: np.save(
                path, change(np.load(path))))
            versions.look()
            group.count(versions.engine.version == 1 and number in versions.refusals, f"{name} is served")


@pytest.fixture(scope="module")
def scann(tmp_path_factory):
    """A version that searches by ScaNN."""
    return exported.world("int").export(tmp_path_factory.mktemp("scann"), index="scann", target_recall=0.5)


def test_files_cut_short_under_a_running_service(attacks, scann, tmp_path):
    """Every file of the version served, to nothing or a half, and all of them gone: the answers stay."""
    publish(scann, tmp_path, 1)
    known = HISTORIES[0]
    bodies = [{"signature_name": "retrieve", "instances": [{"history": known, "k": 5} | more]} for more in (
        {}, {"allow": known + HISTORIES[1]}, {"exclude": known}, {"exclude_seen": True})] + [
        {"signature_name": "encode_items", "instances": [{"ids": item} for item in known]}]

    def signatures():
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        request.model_spec.name = "clrec"
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            return stub.GetModelMetadata(request, timeout=20).metadata["signature_def"].ByteSize()

    def answers():
        given = [service.predict(body).json for body in bodies]
        return [{name: value for name, value in answer.items() if name != "request_id"} for answer in given]

    with attacks("versions: files cut short while served") as group, serving(tmp_path, "--grpc_port=0") as service:
        expected = answers()
        port = int(wait_for(lambda: re.search(r"gRPC at \S+:(\d+)", service.log), 20)[1])
        for name in files_of(tmp_path / "1"):
            path = tmp_path / "1" / name
            for size in (path.stat().st_size // 2, 0):
                os.truncate(path, size)
                group.count(answers() == expected, f"{name} cut to {size}")
        shutil.rmtree(tmp_path / "1")
        time.sleep(0.3)
        group.count(answers() == expected, "without its folder")
        group.count(service.request("/v1/models/clrec/metadata").status == 200, "metadata without its folder")
        group.count(signatures() > 500, "signatures without its folder")
        group.count(service.process.poll() is None and "Traceback" not in service.log, service.log[-500:])


def test_texts_in_the_file_that_names_a_version(attacks, models, tmp_path):
    publish(models[0], tmp_path, 1)
    publish(models[1], tmp_path, 2)
    versions = started(tmp_path, wanted=1)
    pin = tmp_path / "serve_version"
    with attacks("versions: the file serve_version") as group:
        for text in (b"", b"x", b"\xff", b"-2", b"2 1", b"02", b"2" * 10**6, b"../2", b"\0" * 99, b"9" * 18, b"2e0"):
            pin.write_bytes(text)
            versions.look()
            group.count(versions.engine.version == 1 and versions.complaint, f"{text[:20]} is taken for a number")
        pin.unlink()
        pin.mkdir()
        versions.look()
        group.count(versions.engine.version == 1 and versions.complaint, "a folder")
        pin.rmdir()
        pin.write_text("2")
        versions.look()
        group.count(versions.engine.version == 2 and not versions.complaint, "2 is not served")


def served(service):
    """The version that answers."""
    return int(service.request("/v1/models/clrec").json["model_version_status"][0]["version"])


@pytest.mark.skipif(not FULL, reason="starts a process for each; ATTACKS=full")
def test_kills_while_versions_come(attacks, models, tmp_path):
    """Whenever it is killed, it starts again with a sound version, and a later one is served."""
    publish(models[0], tmp_path, 1)
    with attacks("versions: kills while versions come") as group:
        for seed in range(attacks.rounds(1, 10)):
            with serving(tmp_path) as service:
                group.count(service.port and served(service) == seed + 1, f"kill {seed}: not the newest")
                publish(models[seed % 2], tmp_path, seed + 2)
                time.sleep(float(np.random.default_rng(seed).uniform(0.05, 0.6)))
                service.signal(signal.SIGKILL)
                service.exit_code()
        with serving(tmp_path) as service:
            group.count(served(service) == seed + 2, "not the newest in the end")
