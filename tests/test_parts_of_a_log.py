"""What is summed, chosen or dealt over parts of a log, against plain loops over the whole."""
import collections

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import polars as pl
import pytest

from clrec_tf.config import PrepareConfig
from clrec_tf.errors import DiskFullError
from clrec_tf.preparation import rows
from clrec_tf.preparation.dealt_records import DealtRecords
from clrec_tf.preparation.first_values import FirstValues
from clrec_tf.system import scratch
from clrec_tf.tabular_files.room import Room
from clrec_tf.tabular_files.value_counts import ValueCounts

PARTS = st.lists(st.lists(st.integers(-3, 9), max_size=9), max_size=6)


@given(PARTS)
def test_value_counts_are_those_of_a_counter(parts):
    counts = ValueCounts()
    for part in parts:
        counts.add(np.array(part, np.int64))
    numbers, found = counts.totals()
    expected = collections.Counter(number for part in parts for number in part)
    assert list(zip(numbers.tolist(), found.tolist())) == sorted(expected.items()) and counts.total == expected.total()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 2), st.sampled_from(["a", "b", None])),
                min_size=1, max_size=30), st.integers(1, 7), st.sampled_from([(), ("timestamp",), ("timestamp", "order")]))
def test_first_values_are_those_of_a_loop(clicks, step, by):
    first, best = FirstValues(4, by, pl.String()), {}
    for begin in range(0, len(clicks), step):
        item, time, order, _ = (np.array(column) for column in zip(*clicks[begin:begin + step]))
        values = pl.Series([click[3] for click in clicks[begin:begin + step]], dtype=pl.String)
        keys = dict(timestamp=time, order=order.astype(float))
        first.add(item, values, {name: keys[name] for name in by})
    for item, *keys, value in clicks:
        key = tuple(keys[:len(by)])
        if value is not None and (item not in best or key < best[item][0]):  # the first one stays among equal keys
            best[item] = key, value
    numbers, values = first.known()
    assert list(zip(numbers.tolist(), values)) == [(item, best[item][1]) for item in sorted(best)]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=40), st.integers(1, 9))
def test_distinct_values_by_first_appearance(values, memory):
    frame = pl.DataFrame({"id": pl.Series(values, dtype=pl.String), "place": range(len(values))})
    found = rows.first_seen(frame.lazy(), "id", PrepareConfig(clicks_in_memory=memory))
    counts = collections.Counter(values)
    assert found.rows() == [(value, values.index(value), counts[value]) for value in dict.fromkeys(values)]


@pytest.mark.parametrize("groups", [1, 3])
def test_records_come_in_the_order_of_their_places(tmp_path, groups):
    rng, count, step = np.random.default_rng(groups), 95, 10
    places, records = rng.permutation(count), [bytes([n]) * (n % 7) for n in range(count)]
    dealt = DealtRecords(count, groups, step, str(tmp_path))
    for part in np.split(np.arange(count), [20, 20, 61]):
        dealt.add(places[part], [records[n] for n in part])
    found = list(dealt.in_order())
    assert [len(group) for group in found] == ([95] if groups == 1 else [40, 40, 15])  # multiples of the step
    assert [record for group in found for record in group] == [records[n] for n in np.argsort(places)]
    assert not list(tmp_path.rglob("*records-0*"))


def test_a_file_of_records_that_is_short_is_an_error(tmp_path):
    dealt = DealtRecords(4, 2, 1, str(tmp_path))
    dealt.add(np.arange(4), [b"12345678"] * 4)
    file = next(tmp_path.rglob("records-00001"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DiskFullError, match="--scratch_dir: .*has 15 bytes after 16 were written"):
        list(dealt.in_order())


def test_long_texts_are_kept_in_files_and_short_ones_are_not(tmp_path):
    with scratch.folder(str(tmp_path), "") as place:
        room = Room(place, 10)
        assert room.keep([b"12345", b"67890"]) == b"1234567890" and not list(tmp_path.iterdir())
        path = room.keep([b"12345", b"67890", b"1"] * 2)
        assert path.startswith(place) and open(path, "rb").read() == b"12345678901" * 2
    assert not list(tmp_path.iterdir())
    assert Room().keep([b"1"] * 99) == b"1" * 99
