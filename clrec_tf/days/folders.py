"""Where a day's things are."""
import dataclasses
import os


@dataclasses.dataclass(frozen=True)
class DayFolders:
    """The folders of one day."""
    root: str

    @property
    def data(self) -> str:
        """Its data set."""
        return os.path.join(self.root, "data")

    @property
    def run(self) -> str:
        """Its training."""
        return os.path.join(self.root, "run")

    @property
    def yesterday(self) -> str:
        """Yesterday's model on its data."""
        return os.path.join(self.root, "yesterday")
