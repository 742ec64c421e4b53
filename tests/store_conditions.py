"""What every store has to do with writes on conditions."""
import pytest

from clrec_tf.stores.folder import Folder
from clrec_tf.stores.folder import Version
from clrec_tf.stores.store_errors import TakenError


def check(folder: Folder) -> Version:
    """Leaves the object x with the content b"2"; returns its version."""
    first = folder.write("x", b"1", "create")
    with pytest.raises(TakenError):
        folder.write("x", b"2", "create")
    second = folder.write("x", b"2", first)
    with pytest.raises(TakenError):
        folder.write("x", b"3", first)
    assert folder.read_version("x")[0] == b"2" and folder.read_version("x")[1].tag == second.tag
    return second
