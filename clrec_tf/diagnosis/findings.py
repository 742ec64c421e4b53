"""What a check is, and what it finds."""
import dataclasses
from typing import Callable
from typing import Iterable

OK, NOTE, FAULT = "ok", "note", "fault"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that a check found.

    Attributes:
      check: kind of check, such as "storage".
      subject: what was looked at, such as "--workdir=RUN" or "worker 1 at host:2222".
      state: "ok"; "note", which is good to know and no fault; or "fault".
      text: what is so.
      remedy: what helps; "" where nothing is wrong.
    """
    check: str
    subject: str
    state: str
    text: str
    remedy: str = ""


@dataclasses.dataclass(frozen=True)
class Check:
    """One check of one thing.

    Attributes:
      name, subject: those of its findings.
      find: gives the findings, one after the other. A `UserError` that it raises is a finding too.
      remedy: of such an error.
    """
    name: str
    subject: str
    find: Callable[[], Iterable[Finding]]
    remedy: str


@dataclasses.dataclass(frozen=True)
class About:
    """Makes findings of one check about one subject."""
    check: str
    subject: str

    def ok(self, text: str) -> Finding:
        """As it should be."""
        return Finding(self.check, self.subject, OK, text)

    def note(self, text: str, remedy: str = "") -> Finding:
        """Good to know."""
        return Finding(self.check, self.subject, NOTE, text, remedy)

    def fault(self, text: str, remedy: str) -> Finding:
        """Wrong."""
        return Finding(self.check, self.subject, FAULT, text, remedy)
