"""Whether intents mean something: one pure NumPy function per measure. Which names they get: `intent_report`.

Letters: V items (item i in row i - 1), H intents, N user vectors, U users, W categories per item. An item's route is
the intent of its largest probability; `routes` int [V] holds them.
"""
import numpy as np

from clrec_tf.models.top_k import top_k


def probabilities(logits):
    """p_{h|item}, the softmax over h of routing logits [V,H] -> float64 [V,H]."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True), dtype=np.float64)
    return powers / powers.sum(axis=1, keepdims=True)


def soft_shares(routing, clicks):
    """π_h, the mean routing probability of a click. Args: routing [V,H] probabilities; clicks [V]. Returns [H]."""
    return clicks @ routing / clicks.sum()


def route_shares(routes, clicks, num_intents):
    """The share of clicks on the items of each route, [H]. Args: routes, clicks [V]."""
    return np.bincount(routes, weights=clicks, minlength=num_intents) / clicks.sum()


def effective_number(shares):
    """exp(entropy): how many equal shares would be as uncertain. Args: shares [n] that sum to 1."""
    positive = shares[shares > 0]
    return float(np.exp(-(positive * np.log(positive)).sum()))


def category_purity(routes, clicks, categories):
    """Of an intent's clicks, the share on items that have its most frequent category; mean over clicks.

    An item of several categories has each of them; one without any has a category 0 of its own.

    Args:
      routes, clicks: [V].
      categories: int [V,W], 0 = empty place.
    """
    pairs = _pairs(categories)
    intents, totals = _totals(routes, categories[pairs], pairs[0], clicks[pairs[0]])
    largest = np.zeros(routes.max() + 1)
    np.maximum.at(largest, intents, totals)
    return float(largest.sum() / clicks.sum())


def effective_categories(routes, clicks, categories):
    """`effective_number` of the categories of each intent's clicks; mean over clicks.

    A click on an item of several categories is shared evenly among them. Args: see `category_purity`.
    """
    pairs = _pairs(categories)
    weights = clicks / np.bincount(pairs[0], minlength=len(clicks))
    intents, totals = _totals(routes, categories[pairs], pairs[0], weights[pairs[0]])
    sums = np.bincount(routes, weights=clicks)
    numbers = [effective_number(totals[intents == intent] / sums[intent]) if sums[intent] else 0.0
               for intent in range(len(sums))]
    return float(sums @ numbers / clicks.sum())


def _pairs(categories):
    """Places (item, column) of every item's distinct categories; column 0 of items without any."""
    kept = categories > 0
    for column in range(1, categories.shape[1]):
        kept[:, column] &= (categories[:, :column] != categories[:, column:column + 1]).all(axis=1)
    kept[:, 0] |= ~kept.any(axis=1)
    return np.nonzero(kept)


def _totals(routes, values, items, weights):
    """Intents [n] and sums of weights [n] of every pair of an intent and a category that occurs."""
    span = values.max() + 1
    keys, places = np.unique(routes[items] * span + values, return_inverse=True)
    return keys // span, np.bincount(places, weights=weights)


def own_share(listed, routes, numbers):
    """The share of a vector's items that are routed to its own intent.

    Args:
      listed: int [N,k], item ids from 1.
      routes: [V].
      numbers: int [N], the intent of each vector.

    Returns:
      [N].
    """
    return (routes[listed - 1] == numbers[:, None]).mean(axis=1)


def chance_of_own(routes, numbers):
    """What `own_share` of k items drawn at random is on average, [N]: its intent's share of the items."""
    return (np.bincount(routes, minlength=numbers.max() + 1) / len(routes))[numbers]


def themes(listed, routes):
    """What a vector brings: the route of most of its items, the lowest of several. Args: see `own_share`. [N]."""
    brought = routes[listed - 1]
    same = (brought[:, :, None] == brought[:, None, :]).sum(axis=2)
    return np.where(same == same.max(axis=1, keepdims=True), brought, np.iinfo(brought.dtype).max).min(axis=1)


def distinct(numbers):
    """How many different numbers each row [U,K] holds, [U]."""
    return 1 + np.count_nonzero(np.diff(np.sort(numbers, axis=1)), axis=1)


def mean_entropy(weights):
    """Mean entropy of rows of weights [U,H] that sum to 1, nats: 0 where one vector has all of it, at most log H."""
    logs = np.log(np.maximum(weights, np.finfo(np.float32).tiny))
    return float(-(weights * logs).sum(axis=1).mean())


def log_loss(chances):
    """Mean of −log of the chance [N] that was given to what happened, nats."""
    return float(-np.log(np.maximum(chances, np.finfo(np.float32).tiny)).mean())


def calibration_error(chances, happened, bins=10):
    """How far predicted chances are from what happens: Σ_bins (share of the cases)·|mean chance − frequency|.

    Args:
      chances: [N] in 0..1, taken together in equal bins.
      happened: bool [N].
    """
    places = np.minimum((chances * bins).astype(int), bins - 1)
    differences = np.bincount(places, weights=chances - happened, minlength=bins)
    return float(np.abs(differences).sum() / len(chances))


def hit_rate(numbers, wanted):
    """How often the wanted intent [U] is among a user's first [U,K]."""
    return float((numbers == wanted[:, None]).any(axis=1).mean())


def constant_hit_rate(wanted, count):
    """`hit_rate` of the `count` intents that are wanted most often, the same for every user."""
    return float(top_k(np.bincount(wanted), count)[1].sum() / len(wanted))
