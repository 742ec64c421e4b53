"""What several test modules share."""
import multiprocessing
import os
import pathlib

import pytest

import clrec_tf  # noqa: F401  pylint: disable=unused-import  (before TensorFlow: it chooses Keras 2)
from clrec_tf.system import locks


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """Folder of the real data sets: $CLREC_DATA, or ../shared/data beside the repository."""
    default = pathlib.Path(__file__).parents[2] / "shared" / "data"
    folder = pathlib.Path(os.environ.get("CLREC_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist: set CLREC_DATA to the folder of the real data sets")
    return folder


@pytest.fixture
def quick_children(monkeypatch) -> None:
    """Measuring processes (lab/children.py) are forked from one that has imported TensorFlow: their memory is not theirs
    alone, all else is."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.preloaded"])
    monkeypatch.setattr(multiprocessing, "get_context", lambda kind: context)


@pytest.fixture
def without_locks(monkeypatch) -> None:
    """Locks are taken as on a file system that has none."""
    take = locks.take

    def uncertain(path, **settings):
        lock = take(path, **settings)
        lock.certain = False
        return lock

    monkeypatch.setattr(locks, "take", uncertain)
