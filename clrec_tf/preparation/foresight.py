"""How well the value of an item feature can be foreseen at the next click: what decides whether intents by that
feature, as Multi-CLRec has them, can be told from a history.

Probabilities come from half of the users and are measured on the others, so that transitions met by chance are no
knowledge. Letters: N pairs of a click and the one after it.
"""
import numpy as np

PRIOR_CLICKS = 5.0  # by which a value's transitions are mixed with how frequent values are anyway


def foresight(before: np.ndarray, after: np.ndarray, users: np.ndarray) -> dict:
    """What the value of a click says about that of the next.

    Args:
      before, after: int [N], values of a click and of its user's next, from 0.
      users: int [N].

    Returns:
      entropy: of the next value if only frequencies are known, nats; entropy_given_last: if the last value is known
      too, both as cross-entropies; top1, top1_constant: how often the likeliest value comes, knowing that and not
      knowing it. Empty without pairs in both halves.
    """
    learned = users % 2 == 0
    if not learned.any() or learned.all():
        return {}
    size = int(max(before.max(), after.max())) + 1
    frequency = np.bincount(after[learned], minlength=size) + 0.5
    frequency /= frequency.sum()
    keys, counts = np.unique(before[learned].astype(np.int64) * size + after[learned], return_counts=True)
    totals = np.bincount(before[learned], minlength=size)
    measured, following = before[~learned], after[~learned]
    places = np.minimum(np.searchsorted(keys, measured.astype(np.int64) * size + following), len(keys) - 1)
    met = np.where(keys[places] == measured.astype(np.int64) * size + following, counts[places], 0)
    chances = (met + PRIOR_CLICKS * frequency[following]) / (totals[measured] + PRIOR_CLICKS)
    # The likeliest after each value: the largest count, of a value that was not met the most frequent of all.
    likeliest = np.full(size, frequency.argmax())
    order = np.argsort(counts, kind="stable")
    likeliest[keys[order] // size] = keys[order] % size
    rounded = lambda number: round(float(number), 4)
    return dict(entropy=rounded(-np.log(frequency[following]).mean()),
                entropy_given_last=rounded(-np.log(chances).mean()),
                top1=rounded((likeliest[measured] == following).mean()),
                top1_constant=rounded((following == frequency.argmax()).mean()))


def of_features(clicks, mask: np.ndarray, names, feature_rows) -> dict:
    """`foresight` of each feature over training clicks; of several values by an item's first.

    Args:
      clicks: `splits.Clicks`, a user's together and in order.
      mask: bool [N], which are trained on.
      names: of the features.
      feature_rows: [items of the log, width] int32 of each.

    Returns:
      name -> `foresight`, without those that have none.
    """
    users, items = clicks.user[mask], clicks.item[mask]
    pairs = users[1:] == users[:-1]
    before, after, users = items[:-1][pairs], items[1:][pairs], users[1:][pairs]
    found = {name: foresight(rows[before, 0], rows[after, 0], users)
             for name, rows in zip(names, feature_rows) if len(users)}
    return {name: figures for name, figures in found.items() if figures}
