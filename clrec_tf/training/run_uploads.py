"""A run's files on their way to a store, beside the training: checkpoints first, then the list that names them.

After each checkpoint the loop calls `save`, which keeps its files by hard links and returns; a thread uploads them.
One set of files may be under way and one wait: then `save` waits too. A store that fails until its deadline ends the
training at the next `check`, with the exit code for "try again".
"""
import dataclasses
import os
import queue
import shutil
import threading
from typing import Mapping, Optional

from absl import logging

from clrec_tf.errors import BusyError
from clrec_tf.settings.data import EXPORT_FOLDER
from clrec_tf.stores import transfer
from clrec_tf.stores.cache import Entry
from clrec_tf.stores.cache import entry_of
from clrec_tf.stores.folder import Folder
from clrec_tf.stores.folder import Version
from clrec_tf.stores.lease import Lease
from clrec_tf.stores.store_errors import TakenError
from clrec_tf.training import checkpoint_list
from clrec_tf.training import stored_list
from clrec_tf.training.checkpoints import BEST_FOLDER
from clrec_tf.training.checkpoints import LATEST_FOLDER
from clrec_tf.training.stored_list import Stored
from clrec_tf.training.stored_list import StoredList

_CHECKPOINTS = (LATEST_FOLDER, BEST_FOLDER)
_RUNS: dict[str, "RunUploads"] = {}  # by local --workdir, of this process


class NoUploads:
    """Of a run on a file system: nothing to do."""

    def save(self) -> None:
        """The folder has a new checkpoint."""

    def check(self) -> None:
        """Raises what went wrong since."""

    def finish(self) -> None:
        """Waits until everything is there."""


class RunUploads(NoUploads):
    """Of a run in a store.

    Args:
      remote: folder of the run.
      local: its local folder.
      place: an empty folder beside it, on the same file system.
      lease: of the folder.
      listed: the list that is there, of this training, with its version.
      keep: checkpoints kept, besides the best.
    """

    def __init__(self, remote: Folder, local: str, place: str, lease: Lease, listed: tuple[StoredList, Version],
                 keep: int):
        self._remote, self._local, self._place, self._lease, self._keep = remote, local, place, lease, keep
        self._listed, self._version = listed
        self._sets, self._waiting, self._fault = 0, queue.Queue(maxsize=1), None
        self._entries: dict[tuple, Entry] = {}  # of files that are in the store, by name, bytes and time
        self._sides: dict[str, tuple] = {}
        self._thread = threading.Thread(target=self._work, daemon=True, name="run-uploads")
        self._thread.start()

    def save(self):
        """See `NoUploads`. Raises: see `check`."""
        self._put(self._kept())

    def check(self):
        """See `NoUploads`. Raises: `StoreError`, or `BusyError` where another training has taken over."""
        if self._fault is not None:
            raise self._fault
        self._lease.check()

    def finish(self):
        """See `NoUploads`. Raises: see `check`."""
        if self._thread.is_alive():
            self._put(None)
            self._thread.join()
        self.check()

    def _put(self, kept):
        """Hands a set of files to the thread; waits while another one waits."""
        while True:
            self.check()
            try:
                return self._waiting.put(kept, timeout=0.2)
            except queue.Full:
                continue

    def abandon(self) -> None:
        """Ends the thread when it is through with what it has; the error of the training itself counts."""
        while self._thread.is_alive():
            try:
                self._waiting.put(None, timeout=0.2)
                self._thread.join()
            except queue.Full:
                continue

    def _kept(self) -> str:
        """A folder with the run's files as they are now: checkpoints, which never change, by links."""
        self._sets += 1
        folder = os.path.join(self._place, str(self._sets))
        for kind in _CHECKPOINTS:
            for prefix in checkpoint_list.kept(os.path.join(self._local, kind)):
                for path in checkpoint_list.checkpoint_files(prefix):
                    copy = os.path.join(folder, os.path.relpath(path, self._local))
                    os.makedirs(os.path.dirname(copy), exist_ok=True)
                    os.link(path, copy)
        for name in side_files(self._local):
            copy = os.path.join(folder, name)
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            shutil.copy2(os.path.join(self._local, name), copy)
        return folder

    def _work(self):
        while (folder := self._waiting.get()) is not None:
            try:
                self._upload(folder)
                shutil.rmtree(folder)
            except Exception as fault:  # pylint: disable=broad-exception-caught  (told by `check`)
                self._fault = fault
                return

    def _upload(self, folder: str) -> None:
        """Uploads one set: new checkpoints and changed files, then the list, then removes what it names no more."""
        stored = [self._stored(folder, prefix) for kind in _CHECKPOINTS
                  for prefix in checkpoint_list.kept_by_files(os.path.join(folder, kind))]
        self._upload_sides(folder)
        self._lease.check()
        before = self._listed
        self._listed = StoredList(self._lease.token, self._chosen(stored))
        try:
            self._version = self._remote.replace(stored_list.LIST, self._listed.content(), self._version,
                                                 self._lease.certain)
        except TakenError as error:
            raise BusyError(f"{self._remote.given}: another training has written its list of checkpoints "
                            f"({stored_list.LIST}); what that one has written stands: stop it to go on here") from error
        for key in before.keys() - self._listed.keys():
            self._remote.delete(key)

    def _chosen(self, stored: list[Stored]) -> tuple[Stored, ...]:
        """What the list names: this training's, and earlier ones while fewer than `keep` are newer."""
        latest = [one for one in stored if one.folder == LATEST_FOLDER]
        best = [one for one in stored if one.folder == BEST_FOLDER] or self._listed.of(BEST_FOLDER)
        known = {one.step for one in latest}
        earlier = [one for one in self._listed.of(LATEST_FOLDER)
                   if one.step not in known and one.step < max(known, default=0)]
        return (*sorted(earlier + latest, key=lambda one: one.step)[-self._keep:], *best[-1:])

    def _stored(self, folder, prefix) -> Stored:
        """One checkpoint, which is in the store then."""
        files = {}
        for path in checkpoint_list.checkpoint_files(prefix):
            name, facts = os.path.relpath(path, folder), os.stat(path)
            seen = (name, facts.st_size, facts.st_mtime_ns)
            if seen not in self._entries:
                kind, file = os.path.split(name)
                key = f"{kind}/{self._lease.token}-{os.path.basename(folder)}/{file}"
                entry = dataclasses.replace(entry_of(folder, name), name=key)
                self._remote.upload(entry.name, path)
                self._entries[seen] = entry
            files[name] = self._entries[seen]
        return Stored(os.path.relpath(prefix, folder), files)

    def _upload_sides(self, folder):
        changed = changed_sides(folder, self._sides)
        transfer.upload(self._remote, folder, changed)
        self._sides |= changed


def side_files(folder: str) -> list[str]:
    """Files of a run that belong to no checkpoint and no bundle, as a/b."""
    return [name for name in transfer.files_below(folder)
            if name.partition("/")[0] not in (*_CHECKPOINTS, EXPORT_FOLDER) and not name.endswith(".lock")
            and ".incomplete-" not in name]


def changed_sides(folder: str, before: Mapping[str, tuple]) -> dict[str, tuple]:
    """Name -> (bytes, time) of the `side_files` that differ from before."""
    facts = {name: os.stat(os.path.join(folder, name)) for name in side_files(folder)}
    facts = {name: (fact.st_size, fact.st_mtime_ns) for name, fact in facts.items()}
    return {name: fact for name, fact in facts.items() if before.get(name) != fact}


def register(local: str, uploads: RunUploads) -> None:
    """From now on `of` knows the run."""
    _RUNS[local] = uploads


def forget(local: str) -> None:
    """Ends what `register` began."""
    _RUNS.pop(local, None)


def of(workdir: str) -> NoUploads:
    """What a training in a folder tells of its checkpoints."""
    return _RUNS.get(workdir) or NoUploads()


def tidied(remote: Folder, listed: Optional[StoredList]) -> None:
    """Removes files of checkpoints that no list names, which a killed training left. A listing may miss some."""
    known = listed.keys() if listed else set()
    for name in remote.names():
        if name.partition("/")[0] in _CHECKPOINTS and name not in known:
            logging.info("removing %s from %s, which was never finished", name, remote.given)
            remote.delete(name)
