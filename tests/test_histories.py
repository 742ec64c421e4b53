"""Cuts to the last T clicks and time gaps, in NumPy and TensorFlow, against slices of Python lists."""
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.data import histories

BOTH = pytest.mark.parametrize("ops,array", [(np, np.asarray), (tf, tf.constant)], ids=["numpy", "tensorflow"])
LENGTHS = st.lists(st.integers(0, 6), min_size=1, max_size=5)


def cut(values, length):
    """The last of the values, and how many places of a row they leave empty."""
    latest = values[-length:]
    return latest, length - len(latest)


@BOTH
@settings(max_examples=60, deadline=None)
@given(lengths=LENGTHS, skipped=st.integers(0, 3), most=st.integers(1, 7))
def test_last_clicks_are_a_slice_padded_at_the_right(ops, array, lengths, skipped, most):
    splits = skipped + np.append(0, np.cumsum(lengths))
    places, mask = histories.last_clicks(array(splits[:-1]), array(splits[1:]), most, ops)
    for row, (begin, end) in enumerate(zip(splits, splits[1:])):
        latest, empty = cut(list(range(begin, end)), most)
        assert np.asarray(places)[row].tolist() == latest + [0] * empty
        assert np.asarray(mask)[row].tolist() == [True] * len(latest) + [False] * empty


@settings(max_examples=60, deadline=None)
@given(known=st.integers(1, 4).flatmap(lambda width: st.lists(
    st.lists(st.booleans(), min_size=width, max_size=width), min_size=1, max_size=4)), most=st.integers(1, 5))
def test_last_known_clicks_leave_out_unknown_ones_wherever_they_stand(known, most):
    values = 10 + np.arange(np.size(known)).reshape(np.shape(known))
    latest = histories.last_known_values(tf.constant(values), tf.constant(known), most, -7).numpy()
    for row, clicks in enumerate(known):
        expected, empty = cut([int(value) for value, is_known in zip(values[row], clicks) if is_known], most)
        assert latest[row].tolist() == expected + [-7] * empty
        assert values[row][histories.last_known(np.array(clicks), most)].tolist() == expected


@BOTH
def test_time_gaps(ops, array):
    request, click = array(np.array([[1000]])), array(np.array([[400, 1000, 1001]]))
    np.testing.assert_array_equal(histories.time_gaps(request, click, array(np.ones((1, 3), bool)), ops), [[600, 0, 0]])
    # Unknown: a click without time, padding, and all clicks of a request without time.
    mask = array(np.array([[True, True, False], [True, True, True]]))
    gaps = histories.time_gaps(array(np.array([[9], [0]])), array(np.array([[4, 0, 4], [4, 5, 6]])), mask, ops)
    np.testing.assert_array_equal(gaps, [[5, -1, -1], [-1, -1, -1]])


@BOTH
def test_dwell_times(ops, array):
    mask = array(np.array([[True, True, True, False]]))
    np.testing.assert_array_equal(
        histories.dwell_times(array(np.array([[0, 7, -3, 5]])), mask, ops), [[0, 7, -1, -1]])
