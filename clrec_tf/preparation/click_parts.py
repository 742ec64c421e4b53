"""Clicks of all users, some users at a time: in memory while they are few, else in files of the scratch folder."""
import dataclasses
import os
import shutil
from typing import Callable, Iterator, Sequence, Union

import numpy as np
import polars as pl

from clrec_tf.preparation.rows import POSITION
from clrec_tf.preparation.splits import Clicks
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.system.progress import progress
from clrec_tf.system import scratch

ENTRY = "entry:"  # column of a context column's entries, by its place
_PART = "part"


@dataclasses.dataclass(frozen=True)
class ClickParts:
    """Clicks by user: each part has whole users, whose numbers come after those of the part before.

    Attributes:
      parts: tables, or files of them.
    """
    parts: tuple[Union[pl.DataFrame, str], ...]

    def __iter__(self) -> Iterator[Clicks]:
        for part in self.parts:
            yield clicks_of(part if isinstance(part, pl.DataFrame) else pl.read_parquet(part, glob=False))


def clicks_of(frame: pl.DataFrame) -> Clicks:
    """A table's columns as arrays."""
    column = lambda name: frame[name].to_numpy() if name in frame.columns else None
    entries = [name for name in frame.columns if name.startswith(ENTRY)]
    return Clicks(column("user"), column("item"), column("timestamp"), column("dwell"), column("kind"),
                  frame.select(entries).to_numpy() if entries else None)


def by_users(coded: pl.LazyFrame, clicks_of_users: np.ndarray, in_memory: bool, settings: PrepareConfig
             ) -> list[Union[pl.DataFrame, str]]:
    """Parts of whole users, about --clicks_in_memory each, whose rows are in no order.

    Args:
      coded: user (number), and whatever belongs to a click.
      clicks_of_users: [users] how many rows each user has.
      in_memory: whether one part in memory is to hold all; else they are folders.
      settings: of the command.
    """
    if in_memory:
        return [coded.collect(engine="streaming")]
    parts = (np.cumsum(clicks_of_users) - 1) // settings.clicks_in_memory
    number = pl.DataFrame({"user": np.arange(len(parts), dtype=np.int32), _PART: parts.astype(np.int32)})
    folder = scratch.new_folder(settings.scratch_dir, "users-")
    with scratch.write_errors(settings.scratch_dir):
        coded.join(number.lazy(), on="user", how="left").sink_parquet(
            pl.PartitionBy(folder, key=_PART, include_key=False, approximate_bytes_per_file=None),
            compression="lz4", engine="streaming")
    return [os.path.join(folder, f"{_PART}={part}") for part in np.unique(parts)]


def in_order(parts: Sequence[Union[pl.DataFrame, str]], by: Sequence[str], keep: Callable[[Clicks], np.ndarray],
             settings: PrepareConfig) -> ClickParts:
    """The clicks of each user by time.

    Args:
      parts: see `by_users`.
      by: columns that order a user's clicks, before `POSITION` does.
      keep: a part's clicks -> which of them stay, [N] bool.
      settings: of the command.
    """
    done = []
    with progress("sorting clicks", "parts", len(parts)) as shown:
        for part in parts:
            frame = part if isinstance(part, pl.DataFrame) else pl.read_parquet(os.path.join(part, "*.parquet"))
            frame = frame.sort("user", *by, POSITION).drop(POSITION, *(name for name in by if name == "order"))
            frame = frame.filter(pl.Series(keep(clicks_of(frame))))
            if isinstance(part, str):
                path = f"{part}.parquet"
                with scratch.write_errors(settings.scratch_dir):
                    frame.write_parquet(path, compression="lz4")
                shutil.rmtree(part)
                frame = path
            done.append(frame)
            shown.update()
    return ClickParts(tuple(done))
