"""What every step of a pipeline knows, and how a step refuses."""
import dataclasses
from typing import Optional

from clrec_tf import errors
from clrec_tf.errors import UserError
from clrec_tf.preparation.item_features import ItemTable
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files.time_units import Clock

UNFINISHED = ".unfinished-"  # in names of files of a step, which are none of the data folder
FILE_ROWS = 2**40  # places of the rows of a file: its number times this, and on


@dataclasses.dataclass(frozen=True)
class Job:
    """One call of prepare.

    Attributes:
      settings: of the command.
      seed: --seed.
      identity: of the data set, see `identity.identity_of`.
      files: paths of the log, in order.
      partitions: groups of users, each of which is held in memory by one step.
      clock: by which time stamps are judged.
      folder: that is to become the data folder, on a file system of all workers.
      data_dir: its name, for messages.
      items: the format's own item file.
      impressions: paths of the impression log, in order.
    """
    settings: PrepareConfig
    seed: int
    identity: dict
    files: tuple[str, ...]
    partitions: int
    clock: Clock
    folder: str
    data_dir: str
    items: Optional[ItemTable] = None
    impressions: tuple[str, ...] = ()

    def with_place(self, text: str, place: int) -> str:
        """Text about a row of one file, with the file's name where there are several."""
        return f"{self.files[place // FILE_ROWS]}, {text}" if len(self.files) > 1 else text


@dataclasses.dataclass(frozen=True)
class Refusal:
    """An error that the user can act on, on its way to the command.

    Attributes:
      kind: name of its class.
      text: what it says.
      place: which part of the work it is of; of several the first is told.
    """
    kind: str
    text: str
    place: int = 0

    def raised(self) -> UserError:
        """The error."""
        return getattr(errors, self.kind)(self.text)


def refusal(error: UserError, place: int = 0) -> Refusal:
    """An error's refusal, by the nearest of the package's classes."""
    kind = next(base.__name__ for base in type(error).__mro__ if base.__module__ == errors.__name__)
    return Refusal(kind, str(error), place)
