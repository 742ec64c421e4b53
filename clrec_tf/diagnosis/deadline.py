"""Runs checks side by side until a deadline: a disk or a name server that never answers holds up nothing else.

Each check has a thread of its own. Nothing ends a thread that waits for the kernel, so one that is late is left behind;
the process does not wait for it (see ``system/process_exit``).
"""
import threading
import time
from typing import Iterator
from typing import Sequence

from clrec_tf.diagnosis.findings import About
from clrec_tf.diagnosis.findings import Check
from clrec_tf.diagnosis.findings import Finding
from clrec_tf.errors import UserError


def found_by(checks: Sequence[Check], end: float, flag: str) -> Iterator[Finding]:
    """The findings of checks, in their order.

    Args:
      checks: run at the same time.
      end: on `time.monotonic`. A check that has not ended by then is a fault; what it found until then counts.
      flag: of the deadline and its value, named in that fault.
    """
    running = [_Running(check) for check in checks]
    for each in running:
        each.ended.wait(max(0.0, end - time.monotonic()))
        yield from each.so_far(flag)


class _Running:
    """A check on a thread of its own."""

    def __init__(self, check: Check):
        self.ended, self._check, self._found = threading.Event(), check, []
        threading.Thread(target=self._run, daemon=True, name=f"doctor-{check.name}").start()

    def so_far(self, flag: str) -> list[Finding]:
        """What was found, and a fault where the check has not ended."""
        about, ended = About(self._check.name, self._check.subject), self.ended.is_set()
        late = about.fault(f"the check did not end within {flag}", "see why it is so slow, or give more seconds")
        return [*self._found] + ([] if ended else [late])

    def _run(self):
        about = About(self._check.name, self._check.subject)
        try:
            for finding in self._check.find():
                self._found.append(finding)
        except UserError as error:
            self._found.append(about.fault(str(error), self._check.remedy))
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            self._found.append(about.fault(f"{error.strerror or error}{where}", self._check.remedy))
        except Exception as error:  # pylint: disable=broad-exception-caught  (one check does not end the others)
            self._found.append(about.fault(f"the check failed itself: {type(error).__name__}: {str(error)[:300]}",
                                           self._check.remedy))
        finally:
            self.ended.set()
