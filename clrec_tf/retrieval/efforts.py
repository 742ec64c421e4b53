"""How much a ScaNN index searches, by number of results and popularity: leaves of its partition, candidates re-scored.

What is asked for fewer results than an index was tuned for would be answered with fewer candidates, and what is found
then is worse than what was measured. So the effort is a table over k, found by `tuning`; between its rows it is
interpolated, up to twice the last k it grows in proportion, and beyond all leaves are searched.

An effort is a part of an index' parameters: {"effort": [[k, leaves_to_search, reorder], …]}, ascending, which holds at
every popularity; and "effort_at", [[popularity, [[k, …], …]], …], what is enough at single ones. Indexes of before
there were tables have `leaves_to_search` and `reorder`, candidates per result.
"""
import math
from typing import Optional
from typing import Sequence

SMALLEST = 50  # results that candidates are re-scored for, however few are asked for
BEYOND = 32  # candidates per result far beyond the table
GROWTH = 2  # times the last k of a table, up to which it is continued
Row = tuple[int, int, int]


def candidates(per_result: int, k: int) -> int:
    """Candidates re-scored for k results."""
    return per_result * max(k, SMALLEST)


def table(rows: Sequence[Row]) -> dict:
    """Parameters of rows (k, leaves_to_search, reorder) for every popularity."""
    return {"effort": _ascending(rows)}


def tables(by_popularity: dict[float, Sequence[Row]]) -> dict:
    """Parameters of rows by popularity, of the same k."""
    every = [(max(row[0] for row in rows), max(row[1] for row in rows), max(row[2] for row in rows))
             for rows in zip(*by_popularity.values())]
    return table(every) | {"effort_at": [[popularity, _ascending(rows)] for popularity, rows in
                                         sorted(by_popularity.items())]}


def _ascending(rows) -> list[list[int]]:
    """Rows of which none searches less than one of a smaller k."""
    leaves = reorder = 0
    ascending = []
    for k, row_leaves, row_reorder in sorted(rows):
        leaves, reorder = max(leaves, row_leaves), max(reorder, row_reorder)
        ascending.append([k, leaves, reorder])
    return ascending


def uniform(leaves_to_search: int, per_result: int) -> dict:
    """Parameters that search as many leaves whatever k is."""
    return dict(leaves_to_search=leaves_to_search, reorder=per_result)


def at(parameters: dict, k: int, popularities: Optional[tuple[float, float]] = None) -> tuple[int, int]:
    """(leaves to search, candidates re-scored) for k results, at most all leaves and all items.

    Args:
      parameters: of an index.
      k: results.
      popularities: least and largest α of the queries; None: any.
    """
    leaves, size = parameters["leaves"], parameters["size"]
    if "effort" not in parameters:
        return parameters["leaves_to_search"], min(size, candidates(parameters["reorder"], k))
    rows = [parameters["effort"]]
    if popularities is not None and "effort_at" in parameters:
        rows = _between(parameters["effort_at"], *popularities)
    efforts = [_of_table(each, k, leaves) for each in rows]
    return min(leaves, max(few for few, _ in efforts)), min(size, max(k, *(reorder for _, reorder in efforts)))


def _between(effort_at, lowest, highest):
    """The tables of the popularities from the last one up to `lowest` to the first one from `highest` on."""
    values = [popularity for popularity, _ in effort_at]
    first = max((place for place, value in enumerate(values) if value <= lowest), default=0)
    last = min((place for place, value in enumerate(values) if value >= highest), default=len(values) - 1)
    return [rows for _, rows in effort_at[first:last + 1]]


def _of_table(rows, k, leaves):
    """(leaves, candidates) for k by one table."""
    before = rows[0]
    for row in rows:
        if k <= row[0]:
            share = (k - before[0]) / (row[0] - before[0]) if row[0] > before[0] else 1.0
            return tuple(math.ceil(low + share * (high - low)) for low, high in zip(before[1:], row[1:]))
        before = row
    if k <= GROWTH * before[0]:
        return tuple(math.ceil(value * k / before[0]) for value in before[1:])
    return leaves, candidates(BEYOND, k)
