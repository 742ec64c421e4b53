"""Whether a model recommends the same to everybody, whatever they clicked: then it has collapsed.

Letters: U users, K vectors of each that are searched, V items, d width.
"""
from typing import Hashable
from typing import Sequence

import numpy as np

from clrec_tf.evaluation.protocols import top_items
from clrec_tf.evaluation.protocols import vector_scorer

LENGTH = 10  # of the lists compared
SAMPLE = 200  # users
SCORES = 2 * 10**7  # at once, which in large catalogues leaves fewer users, at least twice the following
ENOUGH = 10  # different histories, fewer of which may well agree in their lists
_SAME = 1e-5  # difference of numbers that are computed the same way, beside the largest of them


def sample_rows(users: int, size: int = SAMPLE) -> np.ndarray:
    """At most `size` positions, evenly spread over so many users."""
    return np.unique(np.linspace(0, users - 1, min(users, size)).round().astype(int))


def same_for_everybody(user_vectors: np.ndarray, item_vectors: np.ndarray, histories: Sequence[Hashable]) -> str:
    """What is the same for all users, in words that go on after "the same list for everybody:"; "" where nothing is.

    In a small catalogue healthy lists may agree, as those of five items do that have a clear order of quality. There
    only vectors or scores that are all equal count.

    Args:
      user_vectors: float [U,d] or [U,K,d].
      item_vectors: float [V,d].
      histories: [U], what each user clicked; the same list for the same history says nothing.
    """
    users = user_vectors.reshape(len(user_vectors), -1, user_vectors.shape[-1])
    different = len(set(histories))
    if different < 2 or len(item_vectors) < 2:
        return ""
    if _equal(users, users[:1]):
        return f"all {len(users)} users tried have the same vector, though {different} histories differ"
    rows = sample_rows(len(users), max(2 * ENOUGH, SCORES // len(item_vectors)))
    different = len({histories[row] for row in rows})
    scores = vector_scorer(users[rows], item_vectors)(0, len(rows))
    if _equal(scores, scores[:, :1]):
        return f"all {len(item_vectors)} items have the same score for each of the {len(rows)} users tried"
    if different < ENOUGH or len(item_vectors) <= 2 * LENGTH or commonest_share(scores) < 1.0:
        return ""
    return (f"all {len(rows)} users tried have the same {LENGTH} items in the same order, though {different} "
            "histories differ")


def commonest_share(scores: np.ndarray) -> float:
    """Share of the users whose first `LENGTH` items, in order, are the most frequent ones: scores [U,V] -> [0, 1]."""
    _, counts = np.unique(top_items(scores, LENGTH), axis=0, return_counts=True)
    return float(counts.max() / len(scores))


def _equal(values, reference):
    """Whether nothing differs from its reference; NaN differs."""
    return bool(np.abs(values - reference).max() <= _SAME * np.abs(values).max())
