"""AUC of each user's next click against one random item: the protocol of HPMN, and the same with both rows per user.

The positive is the user's next click, the negative an item drawn uniformly from all others of the log (it may stand in
the history). `auc/coin_flip` has one row per user, by a fair coin the positive or the negative; `auc/paired` both.
Rows of all users are compared with each other, so scores have to agree across users.

Scores: the model's (the cosine), and `_rebiased`: score/ρ + log p̂(y), p̂(y) = (clicks of y + 1)/(clicks + items). A
contrastive model on clicks learns log p(y|x)/p(y); against uniform negatives the best scorer is p(y|x), and this is it.

An item without training clicks is outside the vocabulary and has no vector: its score is 0, that of a zero vector, and
p̂ counts it 0 times; most-popular likewise. Nothing is known of it, so the score stands between what a user is drawn to
and what not. `auc/unknown_positives` and `auc/unknown_negatives` are their shares, u⁺ and u⁻; `auc/ceiling` =
1 − u⁺u⁻/2 is what the paired AUC can reach, since two unknown items tie. Where there are such items, `…/known` is the
metric among the users of whom both items are known, by which a model can be judged if these are enough.
"""
from typing import Callable

import numpy as np
import tensorflow as tf

from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.data.user_draws import labels
from clrec_tf.data.user_draws import NEGATIVE
from clrec_tf.data.user_draws import user_draws
from clrec_tf.errors import UserError
from clrec_tf.evaluation.auc import auc
from clrec_tf.evaluation.auc import bootstrap_auc
from clrec_tf.evaluation.report import MOST_POPULAR
from clrec_tf.losses.contrastive import attended_logits

METRICS = ("auc/coin_flip", "auc/paired", "auc/coin_flip_rebiased", "auc/paired_rebiased")


Join = Callable[[np.ndarray], np.ndarray]  # logits of a user's vectors [K,U] -> [U]


def summed(logits: np.ndarray) -> np.ndarray:
    """log Σ_k e^{φ_k}: [K,U] -> [U]."""
    return np.logaddexp.reduce(logits)


def largest(logits: np.ndarray) -> np.ndarray:
    """max_k φ_k: [K,U] -> [U]."""
    return logits.max(axis=0)


def read_by_candidate(logits: np.ndarray) -> np.ndarray:
    """`losses.contrastive.attended_logits` over the slots: [K,U] -> [U]."""
    return attended_logits(tf.constant(logits), axis=0).numpy()


def join_of(model) -> Join:
    """How a `TwoTower` makes one logit of those of a user's several vectors or slots: as its rankings, or its loss,
    do."""
    if model.target_aware:
        return read_by_candidate
    return largest if model.score_temperature is None else summed


def auc_metrics(user_vectors: np.ndarray, item_vectors: np.ndarray, temperature: float, users: EvaluationSet,
                counts: np.ndarray, log_items: int, seed: int, detailed: bool = True, join: Join = summed) -> dict:
    """The AUCs of one model, and with `detailed` their 95 % intervals and most-popular beside them.

    Args:
      user_vectors: [U,d] or [U,K,d], ready to be compared, in the order of `users`.
      item_vectors: [V,d], row i = item i + 1, ready to be compared.
      temperature: ρ.
      users: U users.
      counts: int [V], training clicks of items 1..V.
      log_items: items of the whole log, of which V are in the vocabulary.
      seed: of coins, negatives and bootstrap.
      detailed: see above; validation passes False.
      join: see `pair_scores`.

    Returns:
      {name: float or int}, names see the module. Where the rows are all of one kind the metric is missing.

    Raises:
      UserError: the log has one item only, or a score is not finite.
    """
    targets = users.next_clicks
    known = (targets >= 1) & (targets <= len(counts))
    items = np.stack([np.where(known, targets, 0), draw_negatives(users, len(counts), log_items, seed)])  # [2,U]
    scores = pair_scores(user_vectors, item_vectors, items, temperature, join)
    if not np.isfinite(scores).all():
        raise UserError("a score is NaN or infinite: the model has diverged; evaluate an earlier checkpoint or train "
                        "with a lower --learning_rate")
    clicks = np.append(0, counts)[items]
    rebiased = scores / temperature + np.log((clicks + 1) / (counts.sum() + max(log_items, len(counts))))
    coins, both_known = labels(seed, users.user_ids), (items > 0).all(axis=0)
    unknown = (items == 0).mean(axis=1)
    result = {"auc/items": int(log_items), "auc/unknown_positives": float(unknown[0]),
              "auc/unknown_negatives": float(unknown[1]), "auc/ceiling": float(1 - unknown.prod() / 2)}
    groups = {"": np.ones(len(coins), bool)} | ({} if both_known.all() else {"/known": both_known})
    for ending, kept in groups.items():
        columns = [scores[:, kept], rebiased[:, kept], clicks[:, kept]]
        for kind, rows in (("coin_flip", _coin_rows(coins[kept])), ("paired", _all_rows(kept.sum()))):
            result |= _of_rows(f"auc/{kind}", ending, columns, rows, seed, detailed)
    return result


def draw_negatives(users: EvaluationSet, num_items: int, log_items: int, seed: int) -> np.ndarray:
    """An item of each user, uniform among the log's items other than the next click.

    Args:
      users: U users.
      num_items: V.
      log_items: items of the log; the number of items outside the vocabulary follows from it.
      seed: see `data.user_draws`.

    Returns:
      int64 [U]: item ids, 0 for an item outside the vocabulary.
    """
    targets = users.next_clicks.astype(np.int64)
    outside = (targets < 1) | (targets > num_items)
    size = max(log_items, num_items + int(outside.any()))
    if size < 2:
        raise UserError("--auc: the log has one item only, and no other that it could be compared with")
    # The items outside take the numbers after V. Which of them the next click is makes no difference: say, the last.
    targets = np.where(outside, size, targets)
    drawn = 1 + np.floor(user_draws(seed, NEGATIVE, users.user_ids) * (size - 1)).astype(np.int64)
    drawn += drawn >= targets
    return np.where(drawn <= num_items, drawn, 0)


def pair_scores(user_vectors: np.ndarray, item_vectors: np.ndarray, items: np.ndarray, temperature: float,
                join: Join = summed) -> np.ndarray:
    """Scores of users with their own items: [U,d], [V,d], ids int [N,U] -> float64 [N,U]; 0 for id 0.

    Args:
      user_vectors, item_vectors, items: see above; of several vectors [U,K,d].
      temperature: ρ.
      join: makes one logit of those of several vectors, see `join_of`.
    """
    vectors = user_vectors if user_vectors.ndim == 3 else user_vectors[:, None]
    of_vectors = [np.einsum("ukd,ud->ku", vectors, item_vectors[np.maximum(ids, 1) - 1], dtype=np.float64)
                  for ids in items]
    products = [scores[0] if len(scores) == 1 else temperature * join(scores / temperature) for scores in of_vectors]
    # Rounded like the scores of `protocols.vector_scorer`, and for its reason.
    return np.where(items > 0, np.stack(products).astype(np.float32), 0.0).astype(np.float64)


def _coin_rows(coins):
    """(row of [2,U] positives and negatives, user) of one row per user."""
    return np.where(coins, 0, 1), np.arange(len(coins))


def _all_rows(users):
    return np.repeat([0, 1], users), np.tile(np.arange(users), 2)


def _of_rows(name, ending, columns, rows, seed, detailed):
    """The metrics of one choice of rows: columns are scores [2,U] of the model, its rebiased ones, and clicks."""
    kind, user = rows
    positive = kind == 0
    if not 0 < np.count_nonzero(positive) < len(positive):
        return {}
    chosen = np.stack([values[kind, user] for values in columns])
    names = (name + ending, f"{name}_rebiased{ending}", MOST_POPULAR + name + ending)[:3 if detailed else 2]
    result = {key: auc(scores, positive) for key, scores in zip(names, chosen)}
    if detailed:
        for key, low, high in zip(names, *bootstrap_auc(chosen[:2], user, positive, seed)):
            result |= {f"{key}/low": float(low), f"{key}/high": float(high)} if np.isfinite(low) else {}
    return result
