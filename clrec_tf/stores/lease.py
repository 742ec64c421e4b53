"""One writer at a time in a folder of a store: a lease, an object that is written on conditions and renewed.

What is promised: while a lease is renewed no second writer gets it. One that is not renewed for its time, which it
names, may be taken over; whoever waits measures that time by its own clock, from the moment at which it first saw the
lease, so clocks need not agree. A writer that lost its lease notices at `check`, and cannot replace a list that was
written since, if it writes that by `Folder.replace`. Where a store has no conditional writes
nothing keeps a second writer out, and a warning says so.
"""
import json
import os
import secrets
import socket
import threading
import time

from absl import logging

from clrec_tf.errors import BusyError
from clrec_tf.stores.folder import Folder
from clrec_tf.stores.store_errors import StoreError
from clrec_tf.stores.store_errors import TakenError

NAME = "in_use.json"
_CONTRADICTIONS = 30
_RENEWALS = 3  # in the time of a lease


class Lease:
    """Context in which this process alone writes in a folder.

    Args:
      folder: of the store, with a deadline well below `seconds`.
      seconds: without a renewal after which another may take it.
      doing: for messages, such as "training".

    Attributes:
      certain: whether the store keeps others out.
      token: of this lease alone.
      left: whether a lease that nobody renewed was found, so that what lies there may be half of something.

    Raises:
      BusyError: another renews it.
    """

    def __init__(self, folder: Folder, seconds: float, doing: str):
        self._folder, self._seconds, self._doing = folder, seconds, doing
        self.token, self.certain, self.left = secrets.token_hex(4), True, False
        self._renewed, self._version, self._fault, self._seen = 0, None, "", 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew_on, daemon=True, name="lease")

    def __enter__(self):
        self._version = self._take()
        try:
            self._folder.write(NAME, self._content(), "create")
            self.certain = False
            logging.warning("%s: the store has no conditional writes: nothing keeps a second %s out",
                            self._folder.given, self._doing)
        except TakenError:
            pass
        self._thread.start()
        return self

    def _take(self):
        """The version of the object that is now ours; waits for one whose owner may be dead."""
        contradictions = 0
        while contradictions < _CONTRADICTIONS:
            self._seen = time.monotonic()
            try:
                return self._folder.write(NAME, self._content(), "create")
            except TakenError:
                found = self._folder.read_version(NAME)
            if found and self._is_ours(found[0]):  # the store had written it before it answered badly
                return found[1]
            if not found:  # given back in between, or a store that says now one thing, now the other
                contradictions += 1
                time.sleep(min(1.0, self._seconds / 100))
            else:
                self._wait(*found)
                self._seen = time.monotonic()
                try:
                    version = self._folder.write(NAME, self._content(), found[1])
                    self.left = True
                    logging.warning("%s: %s has not been heard of for the time of its lease: going on in its place",
                                    self._folder.given, holder(found[0]))
                    return version
                except TakenError:
                    continue
        raise StoreError(f"{self._folder.given}: the store refuses to write {NAME} where there is none, as if there "
                         "were one: see whether a proxy or a cache stands before it; run the same command again")

    def _wait(self, content, version):
        """Waits for the time of another's lease; `BusyError` as soon as it is renewed."""
        seconds = _facts(content).get("seconds")
        seconds = seconds if isinstance(seconds, (int, float)) and 0 < seconds < 86_400 else self._seconds
        logging.info("%s is in use by %s: waiting up to %g s for a sign of life", self._folder.given, holder(content),
                     seconds)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, seconds / (4 * _RENEWALS)))
            found = self._folder.read_version(NAME)
            if not found:
                return
            if found[1].tag != version.tag or found[1].generation != version.generation:
                raise BusyError(f"{self._folder.given} is in use by another {self._doing}, {holder(found[0])} "
                                f"({self._folder.address.child(NAME)}): wait for its end, stop it, or choose another "
                                f"--{self._folder.flag}")

    def check(self) -> None:
        """`BusyError` where another has taken the lease, `StoreError` where it could not be renewed in time."""
        silent = time.monotonic() - self._seen
        if not self._fault and silent <= self._seconds:
            return
        if self._fault:
            raise BusyError(f"{self._folder.given} was taken over by another {self._doing} ({self._fault}), since this "
                            "one did not renew its lease in time: what that one has written stands; stop it to go on "
                            "here")
        raise StoreError(f"{self._folder.given}: the lease could not be renewed for {silent:.0f} s (--lease_s="
                         f"{self._seconds:g}): run the same command again when the store answers")

    def _renew_on(self):
        while not self._ended.wait(self._seconds / _RENEWALS):
            asked = time.monotonic()  # others count from when it stands there, which is not before
            try:
                self._renewed += 1
                self._version = self._folder.write(NAME, self._content(), self._version if self.certain else None)
                self._seen = asked
            except TakenError:
                self._look_again()
            except Exception as error:  # pylint: disable=broad-exception-caught  (told by `check`, in time)
                logging.warning("the lease of %s was not renewed: %s); it is tried again, until --lease_s=%g",
                                self._folder.given, str(error).partition("): ")[0], self._seconds)

    def _look_again(self):
        """Whether the object is another's, or a renewal of ours that was answered badly."""
        try:
            found = self._folder.read_version(NAME)
        except Exception as error:  # pylint: disable=broad-exception-caught
            logging.warning("the lease of %s cannot be read (%s)", self._folder.given, error)
            return
        if found and self._is_ours(found[0]):
            self._version = found[1]  # since when it stands there is not known: `_seen` stays
        else:
            self._fault = holder(found[0]) if found else "it was removed"

    def _is_ours(self, content):
        return _facts(content).get("token") == self.token

    def _content(self):
        return json.dumps(dict(token=self.token, process=os.getpid(), host=socket.gethostname(), seconds=self._seconds,
                               since=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), renewed=self._renewed,
                               doing=self._doing)).encode()

    def __exit__(self, kind, error, trace):
        self._ended.set()
        self._thread.join()
        try:
            found = self._folder.read(NAME)
            if found and self._is_ours(found):
                self._folder.delete(NAME)
        except Exception as fault:  # pylint: disable=broad-exception-caught  (it ends by itself)
            logging.warning("the lease of %s was not given back (%s); it ends in %g s", self._folder.given, fault,
                            self._seconds)


def _facts(content: bytes) -> dict:
    try:
        facts = json.loads(content)
    except (ValueError, RecursionError):
        facts = None
    return facts if isinstance(facts, dict) else {}


def holder(content: bytes) -> str:
    """Who wrote a lease, from the object's content."""
    facts = _facts(content)
    if not {"process", "host", "since"} <= facts.keys():
        return "an unknown process"
    return f"process {facts['process']} on host {facts['host']} since {facts['since']}"
