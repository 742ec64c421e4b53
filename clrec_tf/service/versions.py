"""Which version is served: the newest complete one, or the one asked for, followed while the service runs."""
import dataclasses
import gc
import os
import threading
import time
from typing import Callable, Optional

from absl import logging

from clrec_tf.errors import DataError, UserError
from clrec_tf.serving.bundle import Bundle, load_bundle
from clrec_tf.serving.manifest import MANIFEST_FILE, complete_versions, is_number
from clrec_tf.service.engine import Engine

PIN_FILE = "serve_version"


@dataclasses.dataclass(frozen=True)
class _Seen:
    """A version folder as it was looked at, by its manifest; one that was made anew under the same number is another.

    Whether it is there at all, `changed` tells: 0 if not.
    """
    number: int
    inode: int = 0
    changed: int = 0
    size: int = 0
    status_changed: int = 0  # which no copying tool sets back, unlike `changed`


class Versions:
    """Loads, swaps and refuses versions.

    The version in use is replaced by one assignment when the next one stands ready, warm and checked; requests that
    began with the old one end with it. A version that cannot be loaded is refused and named, and what is served stays.

    Args:
      export_dir: folder of versions.
      wanted: number of --serve_version, 0 for the newest.
      make: makes an engine of a loaded bundle.
      swapped: told the engine that is served from now on.
      refused: told whenever a version is refused.
    """

    def __init__(self, export_dir: str, wanted: int, make: Callable[[Bundle], Engine],
                 swapped: Callable[[Engine], None] = lambda engine: None, refused: Callable[[], None] = lambda: None):
        self._export_dir, self._wanted, self._make = export_dir, wanted, make
        self._swapped, self._refused = swapped, refused
        self._served: Optional[_Seen] = None
        self._stop, self._look_now = threading.Event(), threading.Event()
        self._thread = None
        self._replaced = False  # whether the latest look left an old engine behind
        self.engine: Optional[Engine] = None
        self.loading = False  # ScaNN reads its files with Python's lock held: a second for a million items
        self.refusals: dict[int, str] = {}  # by version, why it is not served
        self.complaint = ""  # of the latest look, logged once: why what is served may not be what is wanted
        self._refused_as: set[_Seen] = set()

    def start(self) -> None:
        """Loads the version to begin with: that asked for, or the newest that can be loaded.

        Raises:
          DataError: there is none.
        """
        # What is loaded by now stays, versions go: the collector need not walk through modules to find a version.
        gc.collect()
        gc.freeze()
        pinned = self._pinned()
        if pinned:
            self._swap(pinned)
            return
        numbers = complete_versions(self._export_dir)
        if not numbers:
            raise DataError(f"--export_dir={self._export_dir} holds no complete version: run python -m clrec_tf.export "
                            "first, and give the folder that holds the numbered ones")
        for number in reversed(numbers):
            try:
                return self._swap(number)
            except UserError as error:
                last = error
        raise last

    def follow(self, poll_s: float) -> None:
        """Looks for changes every `poll_s` seconds from now on, on a thread of its own."""
        def loop():
            while not self._stop.is_set():
                self._look_now.wait(poll_s)
                self._look_now.clear()
                if not self._stop.is_set():
                    self.look()
        self._thread = threading.Thread(target=loop, name="versions", daemon=True)
        self._thread.start()

    def look_now(self) -> None:
        """Looks at once."""
        self._look_now.set()

    def stop(self) -> None:
        """Looks no more; a version that is being loaded is not waited for."""
        self._stop.set()
        self._look_now.set()

    def look(self) -> None:
        """Swaps to the version that is to be served now, if it is another one and sound.

        That is the one asked for; or the newest that was not refused, none if the folder is gone or emptied.
        """
        if self._replaced:  # its last requests are done: graphs hang in cycles that only the collector finds
            self._replaced = False
            gc.collect()
        try:
            pinned = self._pinned()
            for number in [pinned] if pinned else reversed(complete_versions(self._export_dir)):
                seen = self._seen(number)
                if seen not in self._refused_as and (pinned or seen.changed):
                    if seen != self._served:
                        self._swap(number)
                    break
                if number == self._served.number:
                    break  # it was spoilt after it was loaded; what is served stays, rather than an older version
            self._forget_refusals(pinned)
            self.complaint = ""
        except Exception as error:  # pylint: disable=broad-except  (the next look may find better)
            if str(error) != self.complaint:
                logging.error("served is still version %d: %s", self.engine.version, error,
                              exc_info=not isinstance(error, UserError))
            self.complaint = str(error)

    def _forget_refusals(self, pinned):
        """Of versions that are gone and that nobody asks for."""
        for number in list(self.refusals):
            if number != pinned and not self._seen(number).changed:
                self.refusals.pop(number)

    def _swap(self, number):
        seen, started, self.loading = self._seen(number), time.perf_counter(), True
        try:
            if not seen.changed:
                raise DataError(f"version {number} is asked for, and {self._export_dir} has no complete one of that "
                                f"number, it has {complete_versions(self._export_dir)}")
            engine = self._make(load_bundle(os.path.join(self._export_dir, str(number))))
            engine.version = number  # the folder's, also where one was copied under another number
            engine.warm_up()
        except Exception as error:
            told = error if isinstance(error, UserError) else DataError(
                f"version {number} cannot be served ({type(error).__name__}: {error}): export again")
            self._refuse(number, seen, told)
            if told is error:
                raise
            raise told from error
        finally:
            self.loading = False
        self._replaced = self.engine is not None
        self._served, self.engine = seen, engine
        self.refusals.pop(number, None)
        self._swapped(engine)
        bundle, took = engine.bundle, time.perf_counter() - started
        logging.info("version %d stands ready after %.1f s: %d items, %s index", number, took, bundle.counts["items"],
                     bundle.manifest["index"]["kind"])

    def _refuse(self, number, seen, error):
        self._refused_as.add(seen)
        self.refusals[number] = str(error)
        self._refused()
        logging.error("version %d is refused: %s", number, error)

    def _seen(self, number):
        try:
            found = os.stat(os.path.join(self._export_dir, str(number), MANIFEST_FILE))
        except OSError:
            return _Seen(number)
        return _Seen(number, found.st_ino, found.st_mtime_ns, found.st_size, found.st_ctime_ns)

    def _pinned(self):
        """The number in the file that goes before the flag, or that of the flag; 0 for the newest."""
        path = os.path.join(self._export_dir, PIN_FILE)
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read().strip()
        except FileNotFoundError:
            return self._wanted
        except (OSError, UnicodeError) as error:
            raise DataError(f"{path} cannot be read ({error}): write the number of a version, or remove it") from error
        if not (is_number(text) and len(text) < 11 and 0 < int(text) < 2**31):
            raise DataError(f"{path} holds {text[:40]!r}: write the number of a version, or remove the file")
        return int(text)
