"""Splits and vocabularies against re-implementations by loop, and sums done by hand."""
import collections
import zlib

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import polars as pl
import pytest

from clrec_tf.preparation import splits
from clrec_tf.preparation.splits import Clicks
from clrec_tf.preparation.splits import TEST
from clrec_tf.preparation.splits import TRAIN
from clrec_tf.preparation.splits import VALID
from clrec_tf.preparation import vocabulary

DAY = 86_400
ITEMS = 6


@st.composite
def click_tables(draw):
    """Clicks of up to 6 users over 5 days, in the order `Clicks` demands."""
    events = st.tuples(st.integers(0, 5 * DAY), st.integers(0, ITEMS - 1))
    users = draw(st.lists(st.lists(events, min_size=1, max_size=7), min_size=1, max_size=6))
    rows = [(user, item, time) for user, own in enumerate(users) for time, item in sorted(own, key=lambda e: e[0])]
    user, item, time = zip(*rows)
    return Clicks(np.array(user, np.int32), np.array(item, np.int32), np.array(time, np.int64))


def by_user(clicks, *columns):
    rows_of = collections.defaultdict(list)
    for row in zip(clicks.user.tolist(), *(column.tolist() for column in columns)):
        rows_of[row[0]].append(row[1:])
    return rows_of


def as_dict(sequences):
    """user -> (target_count, [(item, item_id, timestamp)])."""
    events = list(zip(sequences.item.tolist(), sequences.item_id.tolist(), sequences.timestamp.tolist()))
    bounds = zip(sequences.offsets, sequences.offsets[1:])
    return {int(user): (int(count), events[begin:end])
            for user, count, (begin, end) in zip(sequences.user, sequences.target_count, bounds)}


def test_leave_one_out_by_hand():
    clicks = Clicks(np.array([0, 0, 0, 0, 1, 1, 2, 2, 2]), np.zeros(9, int), None)
    # User 1 has two clicks, so it only trains.
    assert splits.leave_one_out(clicks).tolist() == [TRAIN, TRAIN, VALID, TEST, TRAIN, TRAIN, TRAIN, VALID, TEST]


def test_last_days_by_hand():
    hours = np.array([0, 23, 24, 47, 48, 71]) * 3600  # days 0, 0, 1, 1, 2, 2 in UTC
    clicks = Clicks(np.zeros(6, np.int32), np.zeros(6, np.int32), hours)
    assert splits.last_days(clicks, 1, 1, 0.0).tolist() == [TRAIN, TRAIN, VALID, VALID, TEST, TEST]
    assert splits.last_days(clicks, 1, 0, 0.0).tolist() == [TRAIN, TRAIN, TRAIN, TRAIN, TEST, TEST]
    assert splits.last_days(clicks, 2, 1, 0.0).tolist() == [VALID, VALID, TEST, TEST, TEST, TEST]
    # One hour east, 23:00, 47:00 and 71:00 belong to the next days 1, 2 and 3.
    assert splits.last_days(clicks, 1, 1, 1.0).tolist() == [TRAIN, TRAIN, TRAIN, VALID, VALID, TEST]


@settings(max_examples=60, deadline=None)
@given(click_tables(), st.integers(1, 6))
def test_most_recent_and_leave_one_out_by_loop(clicks, length):
    kept = splits.most_recent(clicks, length)
    expected = {user: rows[-length:] for user, rows in by_user(clicks, clicks.item, clicks.timestamp).items()}
    assert by_user(kept, kept.item, kept.timestamp) == expected
    for parts in by_user(clicks, splits.leave_one_out(clicks)).values():
        parts = [part for part, in parts]
        assert parts == ([TRAIN] * (len(parts) - 2) + [VALID, TEST] if len(parts) >= 3 else [TRAIN] * len(parts))


@settings(max_examples=60, deadline=None)
@given(click_tables(), st.integers(1, 2), st.integers(0, 2), st.sampled_from([-5.5, 0.0, 8.0]))
def test_last_days_by_loop(clicks, test_days, valid_days, offset):
    days = [(second + int(offset * 3600)) // DAY for second in clicks.timestamp.tolist()]
    expected = [TEST if max(days) - day < test_days else VALID if max(days) - day < test_days + valid_days else TRAIN
                for day in days]
    assert splits.last_days(clicks, test_days, valid_days, offset).tolist() == expected


@settings(max_examples=120, deadline=None)
@given(click_tables(), st.booleans(), st.integers(1, 4), st.lists(st.integers(0, 3), min_size=ITEMS, max_size=ITEMS))
def test_sequences_by_loop(clicks, leave_one_out, min_length, ids):
    ids = np.array(ids, np.int32)
    part = splits.leave_one_out(clicks) if leave_one_out else splits.last_days(clicks, 1, 1, 0.0)
    rows = by_user(clicks, clicks.item, clicks.timestamp, part)
    train, evaluated = {}, {VALID: {}, TEST: {}}
    for user, events in rows.items():
        own = [(item, int(ids[item]), time) for item, time, p in events if p == TRAIN]
        known = [event for event in own if event[1]]
        if len(own) >= min_length and known:
            train[user] = (1, known)
        for which in (VALID, TEST):
            history = [(item, int(ids[item]), time) for item, time, p in events if p < which and ids[item]]
            # Ids are 1 and 2; 3 is a hash bucket, which a target may not have.
            targets = [(item, int(ids[item]) % 3, time) for item, time, p in events if p == which]
            if history and targets:
                evaluated[which][user] = (len(targets), history + targets)
    mask = splits.training_mask(clicks, part, min_length)
    assert as_dict(splits.training_sequences(clicks, mask, ids)) == train
    for which in (VALID, TEST):
        assert as_dict(splits.evaluation_sequences(clicks, part, which, ids, 2)) == evaluated[which]


@settings(max_examples=60, deadline=None)
@given(click_tables(), st.integers(1, 2), st.integers(0, 2))
def test_no_future_leaks_into_training_or_histories(clicks, test_days, valid_days):
    part = splits.last_days(clicks, test_days, valid_days, 0.0)
    ids = np.arange(1, ITEMS + 1, dtype=np.int32)
    first_test = clicks.timestamp[part == TEST].min()
    train = splits.training_sequences(clicks, splits.training_mask(clicks, part, 1), ids)
    first_held_out = clicks.timestamp[part != TRAIN].min()
    assert (train.timestamp // DAY < first_held_out // DAY).all()
    for which in (VALID, TEST):
        sequences = splits.evaluation_sequences(clicks, part, which, ids, ITEMS)
        for count, events in as_dict(sequences).values():
            history, targets = events[:-count], events[-count:]
            assert max(time for *_, time in history) // DAY < min(time for *_, time in targets) // DAY
            if which == VALID:
                assert max(time for *_, time in targets) < first_test


def test_empty_parts():
    clicks = Clicks(np.array([0, 1], np.int32), np.array([0, 1], np.int32), None)
    part = splits.leave_one_out(clicks)
    assert len(splits.evaluation_sequences(clicks, part, TEST, np.array([1, 2]), 2)) == 0
    assert len(splits.training_sequences(clicks, splits.training_mask(clicks, part, 2), np.array([1, 2]))) == 0


# Vocabularies.


def test_ids_fall_with_training_counts_and_ties_go_by_original_id():
    original = pl.Series(["10", "9", "b", "a", "unseen"])
    # Counts 2, 2, 3, 2, 0: b first; 9 before 10 as numbers; a after the numbers.
    built = vocabulary.build(original, np.array([2, 2, 3, 2, 0]), min_count=1, oov_buckets=0)
    assert [original[int(item)] for item in built.items] == ["b", "9", "10", "a"]
    assert built.counts.tolist() == [3, 2, 2, 2] and built.item_id.tolist() == [3, 2, 1, 4, 0]


def test_all_items_of_the_log_may_have_an_id():
    original = pl.Series(["unseen", "once", "twice"])
    built = vocabulary.build(original, np.array([0, 1, 2]), min_count=0, oov_buckets=3)
    assert built.items.tolist() == [2, 1, 0] and built.counts.tolist() == [2, 1, 0]
    assert built.item_id.tolist() == [3, 2, 1]  # nothing is left for the buckets


def test_buckets_hold_what_is_rare_or_unseen():
    original = pl.Series(["p", "q", "r"])
    built = vocabulary.build(original, np.array([2, 1, 0]), min_count=2, oov_buckets=5)
    assert built.items.tolist() == [0]
    assert built.item_id.tolist() == [1, 2 + zlib.crc32(b"q") % 5, 2 + zlib.crc32(b"r") % 5]


def test_bucket_is_a_published_checksum():
    assert vocabulary.bucket("123456789", 2 ** 40) == 0xCBF43926  # the check value of CRC-32


@pytest.mark.parametrize("ids, kind", [
    (["0", "12"], "int"), (["012"], "string"), (["1", "x"], "string"), (["1.0"], "string"), (["+1"], "string"),
    (["9" * 18], "int"), (["9" * 19], "string"), ([" 1"], "string"), (["1\u0663"], "string")])
def test_id_type(ids, kind):
    assert vocabulary.id_type(pl.Series(ids)) == kind


def test_single_valued_feature():
    # Items 0 and 1 are known, with 1 and 5 training clicks; item 2 is unseen and brings the value z.
    known = vocabulary.Vocabulary(np.array([2, 1, 0]), np.array([1, 0]), np.array([5, 1]))
    feature, rows, values = vocabulary.encode_feature("c", pl.Series(["x", "y", "z"]), known, 8, 3)
    assert (feature.rows, feature.width, feature.vocabulary_size) == (1 + 2 + 3, 1, 2) and values == ["y", "x"]
    assert rows.tolist() == [[2], [1], [3 + zlib.crc32(b"z") % 3]]
    feature, rows, _ = vocabulary.encode_feature("c", pl.Series([None, "y", "z"]), known, 8, 0)
    assert feature.rows == 2 and rows.tolist() == [[0], [1], [0]]


def test_several_valued_feature():
    known = vocabulary.Vocabulary(np.array([2, 1, 0]), np.array([1, 0]), np.array([5, 1]))
    lists = pl.Series([["p", "q", "r"], ["q"], ["s", "q"]])
    # Clicks: q 5 + 1, p 1, r cut off by max_values=2.
    feature, rows, values = vocabulary.encode_feature("t", lists, known, 2, 0)
    assert (feature.rows, feature.width, feature.vocabulary_size) == (3, 2, 2) and values == ["q", "p"]
    assert rows.tolist() == [[2, 1], [1, 0], [0, 1]]
    feature, rows, _ = vocabulary.encode_feature("t", pl.Series([[], None, []], dtype=pl.List(pl.String)), known, 2, 1)
    assert (feature.rows, feature.width) == (2, 1) and rows.tolist() == [[0], [0], [0]]
