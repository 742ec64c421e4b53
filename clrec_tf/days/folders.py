"""Where a day's things are."""
import contextlib
import dataclasses
import os
from typing import Iterator, Optional


@dataclasses.dataclass(frozen=True)
class DayFolders:
    """The folders of one day.

    Attributes:
      root: of the day.
      data: its data set.
      run: its training.
      yesterday: yesterday's model on its data.
    """
    root: str
    data: str
    run: str
    yesterday: str

    @classmethod
    def below(cls, root: str) -> "DayFolders":
        """Where they are on a file system."""
        return cls(root, *(os.path.join(root, name) for name in ("data", "run", "yesterday")))


class Days:
    """The folder of days on a file system.

    Args:
      days_dir: the folder.
    """

    def __init__(self, days_dir: str):
        self.days_dir = days_dir

    @contextlib.contextmanager
    def opened(self, day: str, before: Optional[str]) -> Iterator[tuple[DayFolders, Optional[DayFolders]]]:
        """Context with the folders of a day to work in, and of an earlier one to read, None where there is none."""
        yield self._below(day), self._below(before) if before else None

    def keep(self, name: str) -> None:
        """A file beside the days has changed."""

    def _below(self, day):
        return DayFolders.below(os.path.join(self.days_dir, day))
