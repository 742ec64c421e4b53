"""A run and its data set are kept apart, in folders as in stores."""
import os

from clrec_tf.errors import UserError
from clrec_tf.stores import address as addresses


def check_apart(workdir: str, data_dir: str) -> None:
    """`UserError` where a run is to be kept in the folder of a data set, or in one inside it.

    Args:
      workdir: path or address.
      data_dir: path or address; "" where none is given.
    """
    if not data_dir or addresses.is_address(workdir) != addresses.is_address(data_dir):
        return
    data, run = _parts(data_dir, "data_dir"), _parts(workdir, "workdir")
    if run[:len(data)] == data:
        raise UserError(f"--workdir={workdir} is {'equal to' if run == data else 'inside'} --data_dir={data_dir}: a "
                        "data set and a run are kept apart; choose another --workdir")


def _parts(place: str, flag: str) -> list[str]:
    if addresses.is_address(place):
        return str(addresses.parse(place, flag)).split("/")
    return os.path.realpath(place).rstrip(os.sep).split(os.sep)
