"""How much a ScaNN index searches, by the number of results: leaves of its partition, and candidates that are re-scored.

What is asked for fewer results than an index was tuned for would be answered with fewer candidates, and what is found
then is worse than what was measured. So the effort is a table over k, found by `tuning`, and between its rows the next
larger one counts; beyond the last all leaves are searched.

An effort is a part of an index' parameters: {"effort": [[k, leaves_to_search, reorder], …]}, ascending. Indexes of
before there were tables have `leaves_to_search` and `reorder`, candidates per result.
"""
SMALLEST = 50  # results that candidates are re-scored for, however few are asked for
BEYOND = 32  # candidates per result beyond the table


def candidates(per_result: int, k: int) -> int:
    """Candidates re-scored for k results."""
    return per_result * max(k, SMALLEST)


def table(rows: list[tuple[int, int, int]]) -> dict:
    """Parameters of rows (k, leaves_to_search, reorder); no row searches less than those of smaller k."""
    leaves = reorder = 0
    effort = []
    for k, row_leaves, row_reorder in sorted(rows):
        leaves, reorder = max(leaves, row_leaves), max(reorder, row_reorder)
        effort.append([k, leaves, reorder])
    return {"effort": effort}


def uniform(leaves_to_search: int, per_result: int) -> dict:
    """Parameters that search as many leaves whatever k is."""
    return dict(leaves_to_search=leaves_to_search, reorder=per_result)


def at(parameters: dict, k: int) -> tuple[int, int]:
    """(leaves to search, candidates re-scored) for k results, at most all leaves and all items."""
    leaves, size = parameters["leaves"], parameters["size"]
    if "effort" not in parameters:
        return parameters["leaves_to_search"], min(size, candidates(parameters["reorder"], k))
    for row_k, row_leaves, row_reorder in parameters["effort"]:
        if k <= row_k:
            return row_leaves, min(size, max(row_reorder, k))
    return leaves, min(size, candidates(BEYOND, k))
