"""What each role of a cluster takes from stores: the chief the run, chief and workers the data, servers nothing."""
import contextlib
from typing import Iterator

from clrec_tf.data.stored_data import shares_data_set
from clrec_tf.errors import UserError
from clrec_tf.stores.address import Address
from clrec_tf.training.cluster.roles import Task
from clrec_tf.training.stored_run import keeps_run


@contextlib.contextmanager
def opens_nothing(address: Address, flag: str, door) -> Iterator[str]:
    """A folder that this role does not read."""
    del flag
    with door.scratch() as place, door.named(place, address):
        yield place


def data_opener(task: Task):
    """Opener of --data_dir: in a cluster all machines need it at the same path."""
    return opens_nothing if task.role == "ps" else shares_data_set


def run_opener(task: Task, values: dict):
    """Opener of --workdir.

    Raises:
      UserError: settings by which other roles than the chief would write there.
    """
    if values["validation_by"] == "evaluator":
        raise UserError("--validation_by=evaluator with a --workdir in a store: only the chief writes there; leave it "
                        "out, and the chief validates")
    if values["checkpoint_io"] != "chief":
        raise UserError(f"--checkpoint_io={values['checkpoint_io']} with a --workdir in a store: parameter servers do "
                        "not see it; give --checkpoint_io=chief")
    return keeps_run if task.role == "chief" else opens_nothing
