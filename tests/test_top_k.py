"""Exact top-k against a stable sort of everything: order, ties, short rows and every type of score that is ranked."""
import numpy as np
import pytest

from clrec_tf.models.top_k import top_k


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("shape", [(30,), (7, 30), (2, 3, 30), (0, 30)])
@pytest.mark.parametrize("k", [0, 1, 9, 30, 31])
def test_it_is_the_head_of_a_stable_sort(shape, dtype, k):
    scores = np.random.default_rng(0).integers(-4, 5, shape).astype(dtype)  # of nine values, so most are equal
    if dtype != np.int64:
        scores[scores == -4] = -np.inf
    order = np.argsort(-scores, axis=-1, kind="stable")[..., :k]
    places, values = top_k(scores, k)
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(scores, order, axis=-1))
    assert values.dtype == dtype


def test_ties_by_hand():
    places, scores = top_k(np.array([[1.0, 3.0, 3.0, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0, 0.0]]), 4)
    assert places.tolist() == [[1, 2, 4, 3], [0, 1, 2, 3]] and scores.tolist() == [[3, 3, 3, 2], [0, 0, 0, 0]]
