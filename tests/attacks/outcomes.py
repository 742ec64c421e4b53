"""What became of attacks on files: counted by how they ended, and told to the table at the end of the suite."""
import collections
import os
import time

FULL = os.environ.get("ATTACKS") == "full"


class Outcomes:
    """Context that counts attacks; at its end none may be lost.

    Args:
      request: pytest's, of the test.
      name: of the group.
    """

    def __init__(self, request, name: str):
        self._request, self._name, self._begun = request, name, time.monotonic()
        self.counts, self._lost = collections.Counter(), []

    def __enter__(self):
        return self

    def add(self, outcome: str, what: str = "") -> None:
        """One was tried; the outcome "lost" says that it got through, and `what` it was."""
        self.counts[outcome] += 1
        if outcome == "lost":
            self._lost.append(what)

    def __exit__(self, kind, error, trace):
        row = (self._name, sum(self.counts.values()), len(self._lost) + (error is not None),
               time.monotonic() - self._begun)
        self._request.node.user_properties.append(("attack", row))
        print(f"{self._name}: {dict(self.counts)}")
        if error is None:
            assert not self._lost, f"{len(self._lost)} were lost: {self._lost[:10]}"
