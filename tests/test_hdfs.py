"""The backend of HDFS, on pyarrow's local file system: no Hadoop is here. It renames too, but onto what is there."""
import pytest

from clrec_tf.stores.address import Address
from clrec_tf.stores.folder import Folder
from clrec_tf.stores.store_errors import VanishedError
from tests import store_conditions

arrow = pytest.importorskip("pyarrow.fs", exc_type=ImportError)
hdfs = pytest.importorskip("clrec_tf.stores.hdfs", exc_type=ImportError)


def test_files_are_whole_or_absent_and_conditions_hold(tmp_path):
    folder = Folder(Address("hdfs", "name:8020", "data/x"), "data_dir",
                    hdfs.FileSystem(arrow.LocalFileSystem(), str(tmp_path / "root")))
    assert folder.read("y") is None and folder.names() == {} and folder.head("y") is None
    second = store_conditions.check(folder)
    assert folder.read_version("x") == (b"2", second)
    (tmp_path / "file").write_bytes(b"0123456789" * 5)
    folder.upload("sub/z", str(tmp_path / "file"))
    folder.fetch("sub/z", str(tmp_path / "copy"), 50)
    assert (tmp_path / "copy").read_bytes() == b"0123456789" * 5
    assert folder.names() == {"sub/z": 50, "x": 1}
    with pytest.raises(VanishedError):
        folder.upload("gone", str(tmp_path / "no such file"))
    assert folder.names() == {"sub/z": 50, "x": 1} and len(list((tmp_path / "root/data/x").iterdir())) == 2
    folder.delete("x")
    folder.delete("x")
    with pytest.raises(VanishedError):
        folder.fetch("x", str(tmp_path / "copy"), 5)
