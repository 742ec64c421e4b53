"""What several test modules share."""
import os
import pathlib

import pytest

import clrec_tf  # noqa: F401  pylint: disable=unused-import  (before TensorFlow: it chooses Keras 2)


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """Folder of the real data sets: $CLREC_DATA, or ../shared/data beside the repository."""
    default = pathlib.Path(__file__).parents[2] / "shared" / "data"
    folder = pathlib.Path(os.environ.get("CLREC_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist: set CLREC_DATA to the folder of the real data sets")
    return folder


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items):
    """Tests with a cluster run one after the other in one process, where several run tests (-n): they share clusters,
    and two clusters at a time are too much for two cores."""
    for item in items:
        if item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.xdist_group("cluster"))
