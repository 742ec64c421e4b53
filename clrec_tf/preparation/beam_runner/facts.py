"""What steps find out about their parts of a log: frames and tallies, each merged with those of the other parts.

A merge neither minds the order of the parts nor how they are grouped, so that Beam may combine them as it likes.
"""
from typing import Any, Iterable

import apache_beam as beam
import polars as pl

from clrec_tf.tabular_files.tally import Tally

PLACE = "place"  # of a row in the log: rises with file and row
HEAD = 1000  # rows by which a form is judged
_HELD = 32  # values that are merged at a time
_SUMS, _LEAST, _MOST = ("count", "learned", "measured"), (PLACE, "row"), ("last",)


def merged(name: str, found: list) -> Any:
    """One value of several of the same name.

    The first word of the name says what is done: "tally" adds up; "list" joins; "rows" stacks frames; "head" keeps the
    first rows; "counts" has one row for each value of the columns that are neither summed nor extremes; "first" keeps
    the rows that are the first to say something of an item.
    """
    rule = name.partition(" ")[0]
    if rule == "tally":
        return sum(found, Tally())
    if rule == "list":
        return [one for each in found for one in each]
    if len({tuple(one.schema.items()) for one in found}) > 1:  # of files that `reading.files_alike` will refuse
        found = [one.with_columns(pl.exclude(PLACE).cast(pl.String)) for one in found]
    frame = pl.concat(found)
    if rule == "counts":
        return counted(frame)
    if rule == "head":
        return frame.sort(PLACE).head(HEAD)
    return first_to_say(frame) if rule == "first" else frame


def counted(frame: pl.DataFrame) -> pl.DataFrame:
    """One row for each value of the columns that are neither summed nor extremes."""
    keys = [name for name in frame.columns if name not in (*_SUMS, *_LEAST, *_MOST)]
    return frame.group_by(keys).agg(*(pl.col(name).sum() for name in _SUMS if name in frame.columns),
                                    *(pl.col(name).min() for name in _LEAST if name in frame.columns),
                                    *(pl.col(name).max() for name in _MOST if name in frame.columns)).select(
                                        frame.columns)


def first_to_say(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows that are the first of their item, or the first in time to say its title or a feature.

    Args:
      frame: item, `PLACE`, optional timestamp and order, title and f:<feature>.
    """
    by = [name for name in ("timestamp", "order") if name in frame.columns] + [PLACE]
    kept = [frame.sort(PLACE).unique("item", keep="first")]
    for name in frame.columns:
        if name == "title" or name.startswith("f:"):
            kept.append(frame.drop_nulls(name).sort(by).unique("item", keep="first", maintain_order=True))
    return pl.concat(kept).unique(PLACE)


class Merge(beam.CombineFn):
    """Combines pairs of a name and a value of one name."""

    def create_accumulator(self):
        return []

    def add_input(self, mutable_accumulator, element):
        mutable_accumulator.append(element)
        return self.compact(mutable_accumulator) if len(mutable_accumulator) >= _HELD else mutable_accumulator

    def merge_accumulators(self, accumulators: Iterable[list]):
        return self.compact([one for accumulator in accumulators for one in accumulator])

    def compact(self, accumulator):
        by_name = {}
        for name, value in accumulator:
            by_name.setdefault(name, []).append(value)
        return [(name, merged(name, found)) for name, found in by_name.items()]

    def extract_output(self, accumulator):
        return dict(self.compact(accumulator))
