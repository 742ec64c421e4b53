"""What several test modules share."""
import gc
import multiprocessing
import os
import pathlib
import re

import pytest

import clrec_tf  # noqa: F401  pylint: disable=unused-import  (before tf.keras is used: Keras 2 for TFRS)
from clrec_tf.system import locks
from tests import s3_server


def pytest_collection_modifyitems(items) -> None:
    """Modules with long tests come first: of several processes none is left with one when the others have ended."""
    long = {item.path for item in items if any(map(item.get_closest_marker, ("slow", "cluster")))}
    items.sort(key=lambda item: item.path not in long)


def pytest_collection_finish() -> None:
    """The collector need not go through all that was imported, half a second each time."""
    gc.freeze()


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """Folder of the real data sets: $CLREC_DATA, or ../shared/data beside the repository."""
    default = pathlib.Path(__file__).parents[2] / "shared" / "data"
    folder = pathlib.Path(os.environ.get("CLREC_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist: set CLREC_DATA to the folder of the real data sets")
    return folder


@pytest.fixture(scope="module")
def endpoint() -> str:
    """The address of a server of S3 in this process."""
    with s3_server.moto() as address:
        yield address


@pytest.fixture
def store(endpoint, monkeypatch, request) -> s3_server.Bucket:
    """A bucket of the test's own behind a proxy, which the environment points at."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[-40:].strip("-")
    s3_server.make_bucket(endpoint, name)
    with s3_server.proxy(endpoint) as (address, faults):
        s3_server.point_at(address, monkeypatch)
        yield s3_server.Bucket(name, faults)


@pytest.fixture
def quick_children(monkeypatch) -> None:
    """Measuring processes (lab/children.py) are forked from one that has imported TensorFlow: their memory is not theirs
    alone, all else is."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.preloaded"])
    monkeypatch.setattr(multiprocessing, "get_context", lambda kind: context)


@pytest.fixture(scope="module")
def unfrozen_afterwards() -> None:
    """What the server's `Versions.start` hid from the collector is shown to it again: the process has more to do."""
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.fixture
def without_locks(monkeypatch) -> None:
    """Locks are taken as on a file system that has none."""
    take = locks.take

    def uncertain(path, **settings):
        lock = take(path, **settings)
        lock.certain = False
        return lock

    monkeypatch.setattr(locks, "take", uncertain)
