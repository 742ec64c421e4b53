"""Days in a store: a day's data and training are in the store as soon as they are done, and the history comes last.

So a day that was killed is finished by the same command on any machine: its data set, its newest checkpoint and its
version are found there. Of `yesterday`, yesterday's model on today's data, nothing is kept: it is made in seconds.
"""
import contextlib
import os
from typing import Iterator, Optional

from clrec_tf.data.stored_data import makes_data_set
from clrec_tf.data.stored_data import reads_data_set
from clrec_tf.days import history
from clrec_tf.days.folders import DayFolders
from clrec_tf.days.folders import Days
from clrec_tf.days.history_figure import FIGURE_FILE
from clrec_tf.errors import BusyError
from clrec_tf.publishing.stored_exports import exports_below
from clrec_tf.settings.data import EXPORT_FOLDER
from clrec_tf.stores.address import Address
from clrec_tf.stores.folder import Folder
from clrec_tf.stores.lease import Lease
from clrec_tf.stores.lease import NAME as LEASE_FILE
from clrec_tf.stores.store_errors import TakenError
from clrec_tf.training.stored_run import keeps_run
from clrec_tf.training.stored_run import reads_run

_FOLDERS: dict[str, "StoredDays"] = {}  # by local folder of days, of this process


class StoredDays(Days):
    """The folder of days in a store.

    Args:
      remote: the folder.
      local: that stands for it.
      door: of the command.
      lease: of the folder, held.
    """

    def __init__(self, remote: Folder, local: str, door, lease: Lease):
        super().__init__(local)
        self._remote, self._door, self._lease = remote, door, lease
        found = remote.read_version(history.HISTORY_FILE)
        self._version = found and found[1]
        if found:
            with open(os.path.join(local, history.HISTORY_FILE), "wb") as file:
                file.write(found[0])

    @contextlib.contextmanager
    def opened(self, day: str, before: Optional[str]) -> Iterator[tuple[DayFolders, Optional[DayFolders]]]:
        """See `Days`. Raises: as the openers of data sets and runs."""
        root = os.path.join(self.days_dir, day)
        with contextlib.ExitStack() as stack:
            place = lambda opener, name: stack.enter_context(opener(
                self._remote.address.child(name), self._remote.flag, self._door))
            earlier = before and DayFolders(
                os.path.join(self.days_dir, before), place(reads_data_set, f"{before}/data"),
                place(reads_run, f"{before}/run"), "")
            if self._lease.left:  # of a daily that died: nobody renews those below either
                for name in ("data", "run"):
                    self._remote.delete(f"{day}/{name}/{LEASE_FILE}")
            data, run = place(makes_data_set, f"{day}/data"), place(keeps_run, f"{day}/run")
            yield DayFolders(root, data, run, os.path.join(root, "yesterday")), earlier or None

    def keep(self, name: str) -> None:
        """See `Days`. Raises: `BusyError` where another daily has written the history meanwhile."""
        self._lease.check()
        with open(os.path.join(self.days_dir, name), "rb") as file:
            content = file.read()
        if name == FIGURE_FILE:
            self._remote.write(name, content)
            return
        try:
            self._version = self._remote.replace(name, content, self._version, self._lease.certain)
        except TakenError as error:
            raise BusyError(f"{self._remote.given}: another daily has written {name} meanwhile: run again when it has "
                            "ended") from error


def of(days_dir: str) -> Days:
    """The days that a local folder has, or stands for."""
    return _FOLDERS.get(days_dir) or Days(days_dir)


@contextlib.contextmanager
def keeps_days(address: Address, flag: str, door) -> Iterator[str]:
    """A local folder that stands for one of days, with the export folder in it unless --export_dir names another.

    Raises:
      BusyError: another daily is at work there.
    """
    settings, remote = door.settings, door.folder(address, flag)
    with contextlib.ExitStack() as stack:
        local = os.path.join(stack.enter_context(door.scratch()), "days")
        os.mkdir(local)
        stack.enter_context(door.named(local, address))
        lease = stack.enter_context(Lease(door.folder(address, flag, settings.lease_s / 4), settings.lease_s, "daily"))
        if not door.values.get("export_dir"):
            place = os.path.join(local, EXPORT_FOLDER)
            stack.enter_context(exports_below(remote.child(EXPORT_FOLDER), place, door))
        _FOLDERS[local] = StoredDays(remote, local, door, lease)
        stack.callback(_FOLDERS.pop, local)
        yield local
