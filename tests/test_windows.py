"""Windows of --target_mode=all: each click after the first is a target once, and batches are what a loop cuts."""
import collections

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.data.assignments import Assignments
from clrec_tf.data.epoch_plan import EpochPlan
from clrec_tf.data.input_pipeline import training_dataset
from clrec_tf.data import schema as schema_lib
from clrec_tf.data.windows import cut_windows
from clrec_tf.data.windows import pool_windows
from tests.prepared_data import prepare_text
from tests.prepared_data import read_split
from tests.test_input_pipeline import one_shard

T, B, PRIME = 6, 16, 53


def cut(targets, max_history, seed):
    """`cut_windows` as a list of (sequence, first, count)."""
    parts = cut_windows(tf.constant(targets, tf.int64), max_history, tf.constant([seed, 5], tf.int64))
    return list(zip(*(part.numpy().tolist() for part in parts)))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(1, 9), st.integers(0, 10**6))
def test_every_target_is_in_one_window(targets, max_history, seed):
    windows = cut(targets, max_history, seed)
    found = [(sequence, first + i) for sequence, first, count in windows for i in range(count)]
    assert found == [(sequence, i) for sequence, count in enumerate(targets) for i in range(count)]
    assert all(1 <= count <= max_history for _, _, count in windows)
    for sequence, count in enumerate(targets):
        own = [size for number, _, size in windows if number == sequence]
        assert len(own) == -(-count // max_history)
        assert all(size == max_history for size in own[1:-1])


def test_the_first_window_has_every_length_equally_often():
    """Of 2T + 2 targets three windows are made: the first holds 2..T of them, as the last holds T + 2 less that."""
    firsts = [count for _, first, count in cut([2 * T + 2] * 10_000, T, 3) if first == 0]
    counts = np.bincount(firsts, minlength=T + 1)
    assert not counts[:2].any() and len(counts) == T + 1
    np.testing.assert_allclose(counts[2:] / 10_000, 1 / (T - 1), atol=4 * np.sqrt(.2 * .8 / 10_000))
    per_seed = {tuple(count for _, first, count in cut([2 * T + 2] * 6, T, seed) if first == 0) for seed in range(20)}
    assert len(per_seed) > 15


@pytest.mark.parametrize("targets", range(T + 1))
def test_a_sequence_of_at_most_t_targets_is_one_window(targets):
    for seed in range(8):
        assert cut([targets], T, seed) == [(0, 0, targets)] * (targets > 0)


def log(users, least=2, most=40, seed=0):
    """A log in which no user clicks an item twice, so that the item tells which of its clicks it is."""
    rng, lines = np.random.default_rng(seed), ["user_id,item_id,timestamp,category,stayed"]
    for user in range(users):
        start, stride, second = rng.integers(PRIME), rng.integers(1, PRIME), 1_600_000_000
        for click in range(rng.integers(least, most)):
            second += int(rng.integers(0, 1000))
            item, category, stayed = (start + click * stride) % PRIME, rng.integers(4), rng.integers(-1, 90)
            lines.append(f"{user},{item},{second},c{category},{stayed}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return prepare_text(tmp_path_factory.mktemp("windows"), log(60), shard_records=9, feature_columns=("category",),
                        dwell_column="stayed", min_train_length=1)


def batches(data, epochs=1, batch_size=B, max_history=T, shuffle_shards=2, seed=0, time_dropout=0.0):
    """The plan and its batches, of a folder or of (folder, schema, manifest)."""
    folder, schema, manifest = data if isinstance(data, tuple) else (
        data, schema_lib.load_schema(data), schema_lib.load_manifest(data))
    plan = EpochPlan(manifest.shards["train"], batch_size, shuffle_shards, "all", seed, max_history)
    dataset = training_dataset(folder, schema, manifest, plan, Assignments(plan, epochs).remaining(), max_history,
                               time_dropout)
    return plan, list(dataset.as_numpy_iterator())


def windows_of(batch):
    """(user, weight, history rows, target rows, gaps, dwell) of each window, checked to be laid out as documented."""
    ends, (size, length) = np.cumsum(batch["length"]), batch["history"].shape[:2]
    assert length == batch["length"].max() and ends[-1] == len(batch["target"]) == len(batch["weight"])
    for w, (end, count) in enumerate(zip(ends, batch["length"])):
        rows = slice(end - count, end)
        np.testing.assert_array_equal(batch["row"][rows], w * length + np.arange(count))
        assert not batch["history"][w, count:].any() and len(set(batch["user_id"][rows])) == 1
        for name in ("time_gap", "dwell"):
            assert name not in batch or (batch[name][w, count:] == -1).all()
        yield (int(batch["user_id"][end - 1]), batch["weight"][rows].tolist(), batch["history"][w, :count].tolist(),
               batch["target"][rows].tolist(), *(batch[name][w, :count].tolist() for name in ("time_gap", "dwell")
                                                 if name in batch))
    assert size == len(ends)


def test_an_epoch_hands_out_every_click_after_the_first_once(data_dir):
    records = {record["user_id"][0]: record for record in read_split(data_dir, "train")}
    rows = {user: [list(row) for row in zip(record["item_id"], record["f:category"])]
            for user, record in records.items()}
    assert all(len({row[0] for row in of_user}) == len(of_user) for of_user in rows.values())
    plan, read = batches(data_dir, epochs=3)
    assert len(read) == sum(plan.steps(epoch) for epoch in range(3))
    cuts = []
    for epoch, end in enumerate(np.cumsum([plan.steps(epoch) for epoch in range(3)])):
        found, begins = collections.Counter(), set()
        for batch in read[end - plan.steps(epoch):end]:
            for user, weights, history, targets, gaps, dwell in windows_of(batch):
                first = rows[user].index(history[0])
                last = first + len(history)
                assert history == rows[user][first:last] and targets == rows[user][first + 1:last + 1]
                assert weights == records[user]["weight"] * len(targets)
                times = records[user]["timestamp"]
                assert gaps == [times[click + 1] - times[click] for click in range(first, last)]
                assert dwell == [seconds if seconds >= 0 else -1 for seconds in records[user]["dwell"][first:last]]
                found.update((user, click) for click in range(first + 1, last + 1))
                begins.add((user, first))
        assert found == collections.Counter((user, click) for user in rows for click in range(1, len(rows[user])))
        assert sum(found.values()) == plan.examples
        cuts.append(begins)
    assert cuts[0] != cuts[1] != cuts[2]  # windows begin elsewhere in each epoch


def test_weights_and_unknown_times_go_with_their_windows(tmp_path):
    """Gaps are to the next click; a time ≤ 0 is unknown, an earlier one of the next click counts as 0."""
    data = one_shard(tmp_path, dict(item_id=[1, 2, 3], timestamp=[10, 15, 22], weight=[0.0]),
                     dict(item_id=[4, 5, 6, 7], timestamp=[0, 70, 50, 60], weight=[2.5]),
                     dict(item_id=[8, 9], timestamp=[30, 0]), dict(item_id=[10]))
    plan, read = batches(data, batch_size=100)
    assert plan.examples == 6 and len(read) == 1
    found = {user: rest for user, *rest in windows_of(read[0])}
    assert {user: (weights, [row[0] for row in history], [row[0] for row in targets], gaps)
            for user, (weights, history, targets, gaps) in found.items()} == {
                0: ([0, 0], [1, 2], [2, 3], [5, 7]), 1: ([2.5] * 3, [4, 5, 6], [5, 6, 7], [-1, 0, 10]),
                2: ([1], [8], [9], [-1])}


@pytest.mark.parametrize("batch_size,max_history,shuffle_shards", [
    (1, 1, 1), (1, 9, 1), (3, 9, 2), (16, 6, 2), (500, 6, 1), (50, 40, 100), (64, 200, 3)])
def test_batches_have_about_as_many_targets_each(data_dir, batch_size, max_history, shuffle_shards):
    plan, read = batches(data_dir, batch_size=batch_size, max_history=max_history, shuffle_shards=shuffle_shards)
    assert len(read) == plan.steps(0) and sum(len(batch["target"]) for batch in read) == plan.examples
    begin, least = 0, max(batch_size, max_history)
    for pool in plan.pools(0):
        sizes = np.array([len(batch["target"]) for batch in read[begin:begin + pool.batches]])
        begin += pool.batches
        # Equal shares, but for the windows that stand on the borders.
        assert sizes.min() > 0 and np.abs(sizes - sizes.mean()).max() <= max_history
        assert pool.batches == max(sizes.sum() // least, 1)
        assert sizes.mean() >= min(least, sizes.sum()) and sizes.mean() < 2 * least
    if max_history == 1:
        assert all((batch["length"] == 1).all() for batch in read)


def pool_of(lengths):
    return {"splits": tf.constant(np.append(0, np.cumsum(lengths)), tf.int64)}


def test_windows_of_a_batch_have_similar_lengths_and_batches_come_in_any_order():
    lengths = np.random.default_rng(0).geometric(1 / 25, 20_000) + 1
    plan = EpochPlan((schema_lib.Shard("a", len(lengths), int(lengths.sum()), 0, ""),), 256, 1, "all", 0, 50)
    windows = {name: part.numpy() for name, part in pool_windows(
        pool_of(lengths), tf.constant([0, 0], tf.int64), plan).items()}
    number, begins = len(windows["order"]), windows["begins"]
    assert number == plan.steps(0) and sorted(windows["order"]) == list(range(number))
    assert not np.array_equal(windows["order"], np.arange(number))
    parts = np.split(windows["counts"], begins[1:-1])
    room = sum(len(part) * part.max() for part in parts)
    shuffled = np.random.default_rng(1).permutation(windows["counts"])
    unsorted = sum(len(part) * part.max() for part in np.split(shuffled, begins[1:-1]))
    total = windows["counts"].sum()
    assert 1 - total / room < .06 and 1 - total / unsorted > .4
    # Short and long windows are trained side by side: neighbouring batches differ in length, the trend is none.
    longest = np.array([parts[batch].max() for batch in windows["order"]])
    half = len(longest) // 2
    assert abs(longest[:half].mean() - longest[half:].mean()) < 3 and np.mean(np.diff(longest) == 0) < .5


def test_only_neighbouring_windows_of_a_shuffle_are_sorted_together():
    """Else each epoch would put the same short sequences into the same batch."""
    lengths = np.tile([2, 3, 4, 5], 5000)  # windows of one click to four
    plan = EpochPlan((schema_lib.Shard("a", len(lengths), int(lengths.sum()), 0, ""),), 100, 1, "all", 0, 4)
    first, second = (pool_windows(pool_of(lengths), tf.constant([epoch, 0], tf.int64), plan) for epoch in (0, 1))
    ones = [part["sequences"].numpy()[part["counts"].numpy() == 1] for part in (first, second)]
    assert np.array_equal(np.sort(ones[0]), np.sort(ones[1])) and np.mean(ones[0] == ones[1]) < .01
    groups = np.flatnonzero(np.diff(first["counts"].numpy()) < 0)  # where the lengths begin anew
    assert len(groups) == 500 // 64 - 1


def test_time_dropout_hides_the_times_of_whole_windows(data_dir):
    hidden = []
    for batch in batches(data_dir, epochs=12, time_dropout=.25)[1]:
        for *_, gaps, dwell in windows_of(batch):
            assert (np.array(gaps) == -1).all() or (np.array(gaps) >= 0).all()
            assert min(gaps) >= 0 or (np.array(dwell) == -1).all()
            hidden.append(min(gaps) < 0)
    assert len(hidden) > 1000 and abs(np.mean(hidden) - .25) < .05


def test_going_on_and_seeds(data_dir):
    _, whole = batches(data_dir, epochs=2)
    again, other = batches(data_dir, epochs=2)[1], batches(data_dir, epochs=2, seed=1)[1]
    for one, two in zip(whole, again):
        tf.nest.map_structure(np.testing.assert_array_equal, one, two)
    assert len({tuple(batch["seed"]) for batch in whole}) == len(whole)  # each step draws numbers of its own
    assert [batch["target"].tolist() for batch in whole] != [batch["target"].tolist() for batch in other]
