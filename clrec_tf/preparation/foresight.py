"""How well the value of an item feature can be foreseen at the next click: what decides whether intents by that
feature, as Multi-CLRec has them, can be told from a history.

Probabilities come from half of the users and are measured on the others, so that transitions met by chance are no
knowledge. Letters: N pairs of a click and the one after it.
"""
import numpy as np
import polars as pl

PRIOR_CLICKS = 5.0  # by which a value's transitions are mixed with how frequent values are anyway


def pairs(before: np.ndarray, after: np.ndarray, users: np.ndarray) -> pl.DataFrame:
    """How often each `before` and `after` stand together: `learned` of users of even numbers, `measured` of others.

    Args:
      before, after: int [N], values of a click and of its user's next, from 0.
      users: int [N].
    """
    even = users % 2 == 0
    return summed(pl.DataFrame(dict(before=before, after=after, learned=even.astype(np.int64),
                                    measured=(~even).astype(np.int64))))


def summed(found: pl.DataFrame) -> pl.DataFrame:
    """`pairs`, whose counts stand in several rows, with one row for each."""
    return found.group_by("before", "after").sum().sort("before", "after")


def figures(found: pl.DataFrame) -> dict:
    """What the value of a click says about that of the next.

    Args:
      found: `pairs`.

    Returns:
      entropy: of the next value if only frequencies are known, nats; entropy_given_last: if the last value is known
      too, both as cross-entropies; top1, top1_constant: how often the likeliest value comes, knowing that and not
      knowing it. Empty without pairs in both halves.
    """
    before, after, learned, measured = (found[name].to_numpy() for name in ("before", "after", "learned", "measured"))
    if not learned.any() or not measured.any():
        return {}
    size = int(max(before.max(), after.max())) + 1
    frequency = np.bincount(after, weights=learned, minlength=size) + 0.5
    frequency /= frequency.sum()
    totals = np.bincount(before, weights=learned, minlength=size)
    chances = (learned + PRIOR_CLICKS * frequency[after]) / (totals[before] + PRIOR_CLICKS)
    # The likeliest after each value: the largest count, of a value that was not met the most frequent of all.
    likeliest = np.full(size, frequency.argmax())
    order = np.argsort(learned, kind="stable")
    order = order[learned[order] > 0]
    likeliest[before[order]] = after[order]
    mean = lambda values: round(float(np.average(values, weights=measured)), 4)
    return dict(entropy=mean(-np.log(frequency[after])), entropy_given_last=mean(-np.log(chances)),
                top1=mean(likeliest[before] == after), top1_constant=mean(after == frequency.argmax()))


def pairs_of_features(clicks, mask: np.ndarray, users: np.ndarray, feature_rows: dict[str, np.ndarray]
                      ) -> dict[str, pl.DataFrame]:
    """`pairs` of each feature over training clicks; of several values by an item's first.

    Args:
      clicks: `splits.Clicks`, a user's together and in order.
      mask: bool [N], which are trained on.
      users: int [N], number of each click's user in the log.
      feature_rows: name -> [items of the log, width] int32.
    """
    numbers, items, own = users[mask], clicks.item[mask], clicks.user[mask]
    together = own[1:] == own[:-1]
    before, after, numbers = items[:-1][together], items[1:][together], numbers[1:][together]
    return {name: pairs(rows[before, 0], rows[after, 0], numbers) for name, rows in feature_rows.items()}


def of_features(found: dict[str, pl.DataFrame]) -> dict:
    """Name -> `figures` of its `pairs`, without those that have none."""
    known = {name: figures(counts) for name, counts in found.items()}
    return {name: values for name, values in known.items() if values}
