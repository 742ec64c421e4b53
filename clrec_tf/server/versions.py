"""Which version is served: the newest complete one, or the one asked for, followed while the service runs."""
import gc
import threading
import time
from typing import Callable
from typing import Optional

from absl import logging

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.retrieval.bundle import Bundle
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.server.engine import Engine
from clrec_tf.server.refusals import Refusals
from clrec_tf.server import stored_folder
from clrec_tf.server.trial import try_out
from clrec_tf.server.version_folder import Seen
from clrec_tf.stores.store_errors import StoreError


class Versions:
    """Loads, swaps and refuses versions.

    The version in use is replaced by one assignment when the next one is ready: checked, warmed up, and tried on
    held-out users; requests that began with the old one end with it. A version that cannot be loaded is refused and
    logged, and what is served stays; it is tried again, see `Refusals`.

    Args:
      export_dir: folder of versions.
      wanted: number of --serve_version, 0 for the newest.
      make: makes an engine of a loaded bundle.
      swapped: called with the engine that is served from now on.
      refused: called whenever a version is refused.
      unreachable: called whenever the store of a folder failed at a look.
    """

    def __init__(self, export_dir: str, wanted: int, make: Callable[[Bundle], Engine],
                 swapped: Callable[[Engine], None] = lambda engine: None, refused: Callable[[], None] = lambda: None,
                 unreachable: Callable[[], None] = lambda: None):
        self._folder, self._unreachable = stored_folder.of(export_dir), unreachable
        self.export_dir, self._wanted, self._make = export_dir, wanted, make
        self._swapped, self._refused = swapped, refused
        self._served: Optional[Seen] = None
        self._stop, self._look_now, self._asked = threading.Event(), threading.Event(), threading.Event()
        self._thread = None
        self._replaced = False  # whether the latest look left an old engine behind
        self.engine: Optional[Engine] = None
        self.loading = False  # ScaNN reads its files with Python's lock held: a second for a million items
        self._refusals = Refusals()
        self.complaint = ""  # of the latest look, logged once: why what is served may not be what is wanted

    @property
    def refusals(self) -> dict[int, str]:
        """By version, why it is not served."""
        return self._refusals.texts

    def start(self) -> None:
        """Loads the version to begin with: that asked for, or the newest that can be loaded.

        Raises:
          DataError: there is none.
        """
        # Modules stay, versions come and go: the collector need not walk through modules to find an old version.
        gc.collect()
        gc.freeze()
        asked_for = self._folder.pinned(self._wanted)
        if asked_for:
            self._swap(self._seen(asked_for))
            return
        numbers = self._folder.complete()
        if not numbers:
            raise DataError(f"--export_dir={self.export_dir} holds no complete version: run python -m clrec_tf.export "
                            "first, and give the folder that holds the numbered ones")
        for number in reversed(numbers):
            try:
                return self._swap(self._seen(number))
            except UserError as error:
                last = error
        raise last

    def follow(self, poll_s: float) -> None:
        """Looks for changes every `poll_s` seconds on a thread of its own; with 0, only when `look_now` is called."""
        def loop():
            while not self._stop.is_set():
                self._look_now.wait(poll_s or None)
                self._look_now.clear()
                if not self._stop.is_set():
                    self.look()
        self._thread = threading.Thread(target=loop, name="versions", daemon=True)
        self._thread.start()

    def look_now(self) -> None:
        """Looks at once, also at what was refused."""
        self._asked.set()
        self._look_now.set()

    def stop(self) -> None:
        """Stops looking, without waiting for a version that is being loaded."""
        self._stop.set()
        self._look_now.set()

    def look(self) -> None:
        """Swaps to the version that is to be served now, if it is another one and sound.

        That is the one asked for; or the newest that is not refused, none if the folder is gone or emptied.
        """
        if self._replaced:  # its last requests are done: graphs hang in cycles that only the collector finds
            self._replaced = False
            gc.collect()
        if self._asked.is_set():
            self._asked.clear()
            self._refusals.retry()
        try:
            asked_for = self._folder.pinned(self._wanted)
            problem = self._choose(asked_for)
            for number in self.refusals:  # of versions that are gone and that nobody asks for
                if number != asked_for and not self._seen(number).manifest:
                    self._refusals.drop(number)
        except Exception as error:  # pylint: disable=broad-except  (the next look may find better)
            problem = error
        if isinstance(problem, StoreError):
            self._unreachable()
        if problem and str(problem) != self.complaint:
            logging.error("served is still version %d: %s", self.engine.version, problem,
                          exc_info=None if isinstance(problem, UserError) else problem)
        self.complaint = str(problem or "")

    def _choose(self, asked_for: int) -> Optional[UserError]:
        """Serves the version asked for, or the newest that can be; what was wrong with the first tried, if anything."""
        problem = None
        for number in [asked_for] if asked_for else reversed(self._folder.complete()):
            candidate = self._seen(number)
            if candidate.manifest and (number, candidate.manifest) == (self._served.number, self._served.manifest):
                self._refusals.drop(number)  # damaged after it was loaded, and restored
                break
            if (candidate.manifest or asked_for) and self._refusals.due(candidate):
                try:
                    self._swap(candidate)
                    break
                except UserError as error:
                    problem = problem or error
            if number == self._served.number:
                break  # damaged after it was loaded: what is served stays, rather than an older version
        return problem

    def _swap(self, candidate: Seen):
        number, started, self.loading = candidate.number, time.perf_counter(), True
        try:
            if not candidate.manifest:
                raise DataError(f"version {number} is asked for, and {self.export_dir} has no complete one of that "
                                f"number, it has {self._folder.complete()}")
            engine = self._make(load_bundle(self._folder.fetched(number)))
            engine.version = number  # the folder's, also where one was copied under another number
            engine.warm_up()
            try_out(engine)
        except Exception as error:
            reason = error if isinstance(error, UserError) else DataError(
                f"version {number} cannot be served ({type(error).__name__}: {error}): export again")
            self._refuse(candidate, reason)
            if reason is error:
                raise
            raise reason from error
        finally:
            self.loading = False
        self._replaced = self.engine is not None
        self._served, self.engine = candidate, engine
        self._refusals.drop(number)
        self._swapped(engine)
        bundle, took = engine.bundle, time.perf_counter() - started
        logging.info("version %d stands ready after %.1f s: %d items, %s index", number, took, bundle.counts["items"],
                     bundle.manifest["index"]["kind"])

    def _refuse(self, candidate, error):
        new, pause_s = self._refusals.add(candidate, str(error))
        if new:
            self._refused()
        logging.error("version %d is refused%s, and tried again in %g s, or when its files change: %s",
                      candidate.number, "" if new else " again", pause_s, error)

    def _seen(self, number):
        return self._folder.seen(number)
