"""The frame of all attacks: what was tried, what held, and what was lost, as a table at the end."""
import os
import pathlib
import time

import pytest

from tests.attacks.watched_service import watched
from tests import exported

FULL = os.environ.get("ATTACKS") == "full"
_MOST_S = 1140  # of all attacks with ATTACKS=full; what has not begun by then is skipped
_BEGUN = time.monotonic()


class Group:
    """Attacks of one kind.

    Attributes:
      tried: their number.
      lost: what each that was lost did.
    """

    def __init__(self, name: str):
        self.name, self.tried, self.lost = name, 0, []

    def count(self, held, what: str) -> None:
        """One was tried; `what` says of one that was lost what it did."""
        self.tried += 1
        if not held:
            self.lost.append(what)


class Attacks:
    """Groups of one test: `with attacks("name") as group: group.count(held, what)`; none may be lost."""

    def __init__(self, note):
        self._note, self._group, self._begun = note, None, 0.0

    def __call__(self, name: str) -> "Attacks":
        self._group, self._begun = Group(name), time.monotonic()
        return self

    def __enter__(self) -> Group:
        return self._group

    def __exit__(self, kind, error, trace):
        group = self._group
        if error is not None:
            group.count(False, repr(error)[:300])
        self._note((group.name, group.tried, len(group.lost), time.monotonic() - self._begun))
        if error is None:
            assert group.tried, f"{group.name}: nothing was tried"
            assert not group.lost, f"{len(group.lost)} of {group.tried} were lost: {group.lost[:5]}"

    @staticmethod
    def rounds(quick: int, full: int) -> int:
        """How many to try."""
        return full if FULL else quick


@pytest.fixture
def attacks(request) -> Attacks:
    """See `Attacks`."""
    return Attacks(lambda row: request.node.user_properties.append(("attack", row)))


@pytest.fixture(scope="session")
def target():
    """One service, which all attacks share."""
    with watched(exported.bundle_folder("int").rpartition("/")[0], "--max_connections=2000") as found:
        yield found


def pytest_collection_modifyitems(items):
    """All tests beside this file are attacks."""
    here = pathlib.Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.attack)


def pytest_runtest_setup(item):
    """Ends in time: those in full have a process of their own, the few of each kind come after other tests."""
    if FULL and item.get_closest_marker("attack") and time.monotonic() - _BEGUN > _MOST_S:
        pytest.skip(f"{_MOST_S} s are over")


def pytest_terminal_summary(terminalreporter):
    """The table."""
    rows = [row for reports in terminalreporter.stats.values() for report in reports
            if getattr(report, "when", "") == "call" for name, row in report.user_properties if name == "attack"]
    if not rows:
        return
    terminalreporter.section(f"attacks ({'all' if FULL else 'a few of each'})")
    width = max(len(row[0]) for row in rows)
    terminalreporter.write_line(f"{'group':{width}}  tried   held   lost  seconds")
    for name, tried, lost, seconds in sorted(rows) + [("all", *(sum(row[i] for row in rows) for i in (1, 2, 3)))]:
        terminalreporter.write_line(f"{name:{width}} {tried:6} {tried - lost:6} {lost:6} {seconds:8.1f}")
