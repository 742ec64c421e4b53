"""The ledger against a list of all (epoch, pool, batch): each is handed out once, whoever asks and however often it is
saved."""
import dataclasses
import itertools
import json

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from clrec_tf.data.assignments import Ledger
from clrec_tf.data.epoch_plan import EpochPlan
from clrec_tf.data.schema import Shard

EPOCHS = 2
PLANS = st.builds(
    lambda sizes, batch, shuffle, seed: EpochPlan(
        tuple(Shard(f"s{i}", size, size, 1, "") for i, size in enumerate(sizes)), batch, shuffle, "last", seed),
    st.lists(st.integers(0, 9), min_size=1, max_size=7).filter(any), st.integers(1, 4), st.integers(1, 3),
    st.integers(0, 5))
TAKES = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 7)), max_size=60)


def plan(*pools, batch_size=1):
    """Pools of one shard each with these numbers of records; their order is shuffled."""
    return EpochPlan(tuple(Shard(f"s{i}", records, records, 1, "") for i, records in enumerate(pools)), batch_size, 1,
                     "last", 0)


def everything(of, epochs=EPOCHS):
    """(epoch, pool, batch) of all batches, in the order of one reader."""
    return [(epoch, pool.index, batch) for epoch in range(epochs) for pool in of.pools(epoch)
            for batch in range(-(-pool.records // of.batch_size))]


def batches(taken):
    """(epoch, pool, batch) of a slice."""
    return [(taken.pool.epoch, taken.pool.index, batch) for batch in range(taken.first, taken.first + taken.steps)]


def left(ledger):
    """(epoch, pool, batch) of what remains, in order."""
    return [(pool.epoch, pool.index, batch) for pool in ledger.remaining()
            for batch in range(pool.first_batch, pool.batches)]


def again(ledger, of):
    """A ledger that goes on from another's position, by way of JSON."""
    return Ledger(of, EPOCHS, step=ledger.taken, position=json.loads(json.dumps(ledger.position())))


def finish(ledger, workers):
    """What these workers take, in turn, until nothing is left."""
    found = []
    for worker in itertools.cycle(workers):
        taken = ledger.take(worker, 3)
        if taken is None:
            return found
        found.extend(batches(taken))


@settings(max_examples=300, deadline=None)
@given(PLANS, TAKES, st.sets(st.integers(0, 59)))
def test_every_batch_is_handed_out_once_in_the_order_of_epochs(of, takes, saves):
    whole, ledger, found = everything(of), Ledger(of, EPOCHS), []
    assert ledger.total == ledger.limit == len(whole) and left(ledger) == whole
    for at, (worker, steps) in enumerate(takes):
        taken = ledger.take(worker, steps)
        if taken is None:
            assert len(found) == len(whole)
            break
        assert 1 <= taken.steps <= steps and 0 <= taken.first and taken.first + taken.steps <= taken.pool.batches
        assert taken.pool in of.pools(taken.pool.epoch)
        found.extend(batches(taken))
        assert ledger.taken == len(found)
        if at in saves:
            ledger = again(ledger, of)
        assert sorted(found + left(ledger)) == sorted(whole)
    found += finish(ledger, [7])
    assert sorted(found) == sorted(whole) and [epoch for epoch, _, _ in found] == [epoch for epoch, _, _ in whole]
    assert ledger.take(0, 1) is None and left(ledger) == [] and again(ledger, of).take(0, 1) is None


@settings(max_examples=300, deadline=None)
@given(PLANS, TAKES, st.lists(st.integers(0, 9), max_size=8))
def test_nothing_is_handed_out_past_the_limit_and_the_rest_after_it(of, takes, rises):
    whole, ledger, found = everything(of), Ledger(of, EPOCHS), []
    rises = iter(rises)
    ledger.limit = 0
    for worker, steps in takes:
        taken = ledger.take(worker, steps)
        if taken is None:  # the next event is reached: exactly, whatever the slices were
            assert ledger.taken == len(found) == ledger.limit
            ledger.limit = min(len(whole), ledger.limit + next(rises, 1))
        else:
            found.extend(batches(taken))
            assert len(found) <= ledger.limit
    ledger.limit = len(whole)
    assert sorted(found + finish(ledger, [0, 1])) == sorted(whole)


@settings(max_examples=300, deadline=None)
@given(PLANS, st.lists(st.integers(0, 9), max_size=20), st.integers(0, 40))
def test_one_reader_advances_in_the_order_of_remaining(of, advances, limit):
    whole, ledger, done = everything(of), Ledger(of, EPOCHS), 0
    ledger.limit = min(limit, len(whole))
    for steps in advances:
        expected = min(steps, ledger.limit - done)
        assert ledger.advance(steps) == expected
        done += expected
        assert ledger.taken == done and left(ledger) == whole[done:]
        assert left(again(ledger, of)) == left(Ledger(of, EPOCHS, done)) == whole[done:]
        assert again(ledger, of).taken == done


@settings(max_examples=200, deadline=None)
@given(PLANS, TAKES, st.integers(0, 9))
def test_a_reader_goes_on_with_what_workers_left_and_workers_with_what_it_left(of, takes, steps):
    whole, ledger, found = everything(of), Ledger(of, EPOCHS), []
    for worker, most in takes:
        taken = ledger.take(worker, most)
        found.extend(batches(taken) if taken else [])
    ledger = again(ledger, of)
    order = left(ledger)
    found += order[:ledger.advance(steps)]
    assert left(ledger) == order[min(steps, len(order)):]
    assert sorted(found + finish(again(ledger, of), [0, 1, 2])) == sorted(whole)


def test_a_worker_begins_a_pool_of_its_own_while_there_is_one_and_then_helps_the_slow():
    of, found = plan(20, 20, 20, 20), []
    ledger = Ledger(of, 1)
    slow = ledger.take(0, 2).pool.index
    owners = {slow: 0}
    for worker in itertools.cycle([1, 2, 2]):
        untouched = 4 - len(owners)
        taken = ledger.take(worker, 2)
        if taken is None:
            break
        found.extend(batches(taken))
        if owners.setdefault(taken.pool.index, worker) != worker:
            assert not untouched
    assert sorted(found) == sorted(set(everything(of, 1)) - {(0, slow, 0), (0, slow, 1)})


def test_a_worker_changes_its_pool_only_when_that_is_empty():
    ledger, pools = Ledger(plan(9, 9, 9, 9, 9, 9), 1), {0: [], 1: []}
    for worker in itertools.cycle([0, 1]):
        taken = ledger.take(worker, 2)
        if taken is None:
            break
        pools[worker].append(taken.pool.index)
    for numbers in pools.values():
        assert [pool for pool, _ in itertools.groupby(numbers)] == list(dict.fromkeys(numbers))  # never back to one


@pytest.mark.parametrize("first, second", [(2, 8), (8, 2)])
def test_a_helper_goes_to_the_pool_with_most_left_and_stays_there(first, second):
    ledger = Ledger(plan(20, 20, 20), 1)
    pools = [ledger.take(0, first).pool.index, ledger.take(1, second).pool.index]
    fuller = pools[0] if first < second else pools[1]
    assert ledger.take(2, 20).pool.index not in pools  # 18 and 12 are left of the others'
    assert [ledger.take(2, 6).pool.index for _ in range(3)] == [fuller] * 3  # also when it is the emptier one
    assert ledger.take(2, 6).pool.index != fuller


def test_no_batch_of_an_epoch_is_handed_out_before_those_of_the_epoch_before():
    ledger = Ledger(plan(3, 3), 2)
    assert [ledger.take(worker, 3).pool.epoch for worker in (0, 1, 0, 1)] == [0, 0, 1, 1]
    ledger = Ledger(plan(3, 3), 2)
    ledger.take(0, 2)
    assert [ledger.take(1, 3).steps, ledger.take(1, 3).steps] == [3, 1]  # helps with what is left of the first


def test_a_position_is_small_and_says_where_an_epoch_stands():
    of = plan(5, 5, 5)
    ledger = Ledger(of, 2)
    assert ledger.position() == {"epoch": 0, "pools": {}}
    first = ledger.take(0, 4)
    assert ledger.position() == {"epoch": 0, "pools": {str(first.pool.index): 4}}
    begun = ledger.remaining()[0]
    assert begun == dataclasses.replace(first.pool, first_batch=4)
    ledger.advance(1 + 5 + 5 + 2)
    assert ledger.position()["epoch"] == 1 and sum(ledger.position()["pools"].values()) == 2


@pytest.mark.parametrize("epochs", [3, 1])
def test_a_position_serves_a_run_of_more_or_fewer_epochs(epochs):
    of = plan(4, 4)
    ledger = Ledger(of, 2)
    ledger.advance(11)
    other = Ledger(of, epochs, 11, ledger.position())
    assert other.taken == 11 and left(other) == everything(of, epochs)[11:]


def test_without_epochs_there_is_nothing_to_take():
    ledger = Ledger(plan(3), 0)
    assert ledger.total == 0 and ledger.take(0, 1) is None and ledger.advance(1) == 0 and ledger.remaining() == []
