"""Assignments against a list of all (epoch, pool, batch): each batch is handed out once, whoever asks and however
often the position is saved."""
import dataclasses
import itertools
import json

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from clrec_tf.data.assignments import Assignments
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


def everything(epoch_plan, epochs=EPOCHS):
    """(epoch, pool, batch) of all batches, in the order of one reader."""
    return [(epoch, pool.index, batch) for epoch in range(epochs) for pool in epoch_plan.pools(epoch)
            for batch in range(-(-pool.records // epoch_plan.batch_size))]


def batches(taken):
    """(epoch, pool, batch) of a slice."""
    return [(taken.pool.epoch, taken.pool.index, batch) for batch in range(taken.first, taken.first + taken.steps)]


def left(assignments):
    """(epoch, pool, batch) of what remains, in order."""
    return [(pool.epoch, pool.index, batch) for pool in assignments.remaining()
            for batch in range(pool.first_batch, pool.batches)]


def again(assignments, epoch_plan):
    """Assignments that go on from another's position, by way of JSON."""
    position = json.loads(json.dumps(assignments.position()))
    return Assignments(epoch_plan, EPOCHS, step=assignments.taken, position=position)


def finish(assignments, workers):
    """What these workers take, in turn, until nothing is left."""
    handed_out = []
    for worker in itertools.cycle(workers):
        taken = assignments.take(worker, 3)
        if taken is None:
            return handed_out
        handed_out.extend(batches(taken))


@settings(max_examples=300, deadline=None)
@given(PLANS, TAKES, st.sets(st.integers(0, 59)))
def test_every_batch_is_handed_out_once_in_the_order_of_epochs(epoch_plan, takes, saves):
    whole, assignments, handed_out = everything(epoch_plan), Assignments(epoch_plan, EPOCHS), []
    assert assignments.total == assignments.limit == len(whole) and left(assignments) == whole
    for at, (worker, steps) in enumerate(takes):
        taken = assignments.take(worker, steps)
        if taken is None:
            assert len(handed_out) == len(whole)
            break
        assert 1 <= taken.steps <= steps and 0 <= taken.first and taken.first + taken.steps <= taken.pool.batches
        assert taken.pool in epoch_plan.pools(taken.pool.epoch)
        handed_out.extend(batches(taken))
        assert assignments.taken == len(handed_out)
        if at in saves:
            assignments = again(assignments, epoch_plan)
        assert sorted(handed_out + left(assignments)) == sorted(whole)
    handed_out += finish(assignments, [7])
    assert sorted(handed_out) == sorted(whole)
    assert [epoch for epoch, _, _ in handed_out] == [epoch for epoch, _, _ in whole]
    assert assignments.take(0, 1) is None and left(assignments) == []
    assert again(assignments, epoch_plan).take(0, 1) is None


@settings(max_examples=300, deadline=None)
@given(PLANS, TAKES, st.lists(st.integers(0, 9), max_size=8))
def test_nothing_is_handed_out_past_the_limit_and_the_rest_after_it(epoch_plan, takes, rises):
    whole, assignments, handed_out = everything(epoch_plan), Assignments(epoch_plan, EPOCHS), []
    rises = iter(rises)
    assignments.limit = 0
    for worker, steps in takes:
        taken = assignments.take(worker, steps)
        if taken is None:  # the next event is reached: exactly, whatever the slices were
            assert assignments.taken == len(handed_out) == assignments.limit
            assignments.limit = min(len(whole), assignments.limit + next(rises, 1))
        else:
            handed_out.extend(batches(taken))
            assert len(handed_out) <= assignments.limit
    assignments.limit = len(whole)
    assert sorted(handed_out + finish(assignments, [0, 1])) == sorted(whole)


@settings(max_examples=300, deadline=None)
@given(PLANS, st.lists(st.integers(0, 9), max_size=20), st.integers(0, 40))
def test_one_reader_advances_in_the_order_of_remaining(epoch_plan, advances, limit):
    whole, assignments, done = everything(epoch_plan), Assignments(epoch_plan, EPOCHS), 0
    assignments.limit = min(limit, len(whole))
    for steps in advances:
        expected = min(steps, assignments.limit - done)
        assert assignments.advance(steps) == expected
        done += expected
        assert assignments.taken == done and left(assignments) == whole[done:]
        assert left(again(assignments, epoch_plan)) == left(Assignments(epoch_plan, EPOCHS, done)) == whole[done:]
        assert again(assignments, epoch_plan).taken == done


@settings(max_examples=200, deadline=None)
@given(PLANS, TAKES, st.integers(0, 9))
def test_a_reader_goes_on_with_what_workers_left_and_workers_with_what_it_left(epoch_plan, takes, steps):
    whole, assignments, handed_out = everything(epoch_plan), Assignments(epoch_plan, EPOCHS), []
    for worker, most in takes:
        taken = assignments.take(worker, most)
        handed_out.extend(batches(taken) if taken else [])
    assignments = again(assignments, epoch_plan)
    order = left(assignments)
    handed_out += order[:assignments.advance(steps)]
    assert left(assignments) == order[min(steps, len(order)):]
    assert sorted(handed_out + finish(again(assignments, epoch_plan), [0, 1, 2])) == sorted(whole)


def test_a_worker_begins_a_pool_of_its_own_while_there_is_one_and_then_helps_the_slow():
    epoch_plan, handed_out = plan(20, 20, 20, 20), []
    assignments = Assignments(epoch_plan, 1)
    slow = assignments.take(0, 2).pool.index
    owners = {slow: 0}
    for worker in itertools.cycle([1, 2, 2]):
        untouched = 4 - len(owners)
        taken = assignments.take(worker, 2)
        if taken is None:
            break
        handed_out.extend(batches(taken))
        if owners.setdefault(taken.pool.index, worker) != worker:
            assert not untouched
    assert sorted(handed_out) == sorted(set(everything(epoch_plan, 1)) - {(0, slow, 0), (0, slow, 1)})


def test_a_worker_changes_its_pool_only_when_that_is_empty():
    assignments, pools = Assignments(plan(9, 9, 9, 9, 9, 9), 1), {0: [], 1: []}
    for worker in itertools.cycle([0, 1]):
        taken = assignments.take(worker, 2)
        if taken is None:
            break
        pools[worker].append(taken.pool.index)
    for numbers in pools.values():
        assert [pool for pool, _ in itertools.groupby(numbers)] == list(dict.fromkeys(numbers))  # never back to one


@pytest.mark.parametrize("first, second", [(2, 8), (8, 2)])
def test_a_helper_goes_to_the_pool_with_most_left_and_stays_there(first, second):
    assignments = Assignments(plan(20, 20, 20), 1)
    pools = [assignments.take(0, first).pool.index, assignments.take(1, second).pool.index]
    fuller = pools[0] if first < second else pools[1]
    assert assignments.take(2, 20).pool.index not in pools  # 18 and 12 are left of the others'
    assert [assignments.take(2, 6).pool.index for _ in range(3)] == [fuller] * 3  # also when it is the emptier one
    assert assignments.take(2, 6).pool.index != fuller


def test_no_batch_of_an_epoch_is_handed_out_before_those_of_the_epoch_before():
    assignments = Assignments(plan(3, 3), 2)
    assert [assignments.take(worker, 3).pool.epoch for worker in (0, 1, 0, 1)] == [0, 0, 1, 1]
    assignments = Assignments(plan(3, 3), 2)
    assignments.take(0, 2)
    # Worker 1 helps with what is left of the first pool.
    assert [assignments.take(1, 3).steps, assignments.take(1, 3).steps] == [3, 1]


def test_a_position_is_small_and_says_where_an_epoch_stands():
    epoch_plan = plan(5, 5, 5)
    assignments = Assignments(epoch_plan, 2)
    assert assignments.position() == {"epoch": 0, "pools": {}}
    first = assignments.take(0, 4)
    assert assignments.position() == {"epoch": 0, "pools": {str(first.pool.index): 4}}
    begun = assignments.remaining()[0]
    assert begun == dataclasses.replace(first.pool, first_batch=4)
    assignments.advance(1 + 5 + 5 + 2)
    assert assignments.position()["epoch"] == 1 and sum(assignments.position()["pools"].values()) == 2


@pytest.mark.parametrize("epochs", [3, 1])
def test_a_position_serves_a_run_of_more_or_fewer_epochs(epochs):
    epoch_plan = plan(4, 4)
    assignments = Assignments(epoch_plan, 2)
    assignments.advance(11)
    other = Assignments(epoch_plan, epochs, 11, assignments.position())
    assert other.taken == 11 and left(other) == everything(epoch_plan, epochs)[11:]


def test_without_epochs_there_is_nothing_to_take():
    assignments = Assignments(plan(3), 0)
    assert assignments.total == 0 and assignments.take(0, 1) is None
    assert assignments.advance(1) == 0 and assignments.remaining() == []


@settings(max_examples=200, deadline=None)
@given(PLANS, TAKES)
def test_what_workers_are_told_to_read_is_neither_in_use_nor_another_s(epoch_plan, takes):
    assignments, in_use, told = Assignments(epoch_plan, EPOCHS), {}, {}
    for worker, steps in takes:
        taken = assignments.take(worker, steps)
        if taken is None:
            break
        if in_use and taken.pool.epoch > max(epoch for epoch, _ in in_use.values()):
            in_use = {}
        in_use[worker] = taken.pool.epoch, taken.pool.index
        told[worker] = taken.ahead and (taken.ahead.epoch, taken.ahead.index)
        if told[worker]:
            assert taken.ahead.epoch - taken.pool.epoch in (0, 1)
            assert taken.ahead.first_batch == 0 and taken.ahead in epoch_plan.pools(taken.ahead.epoch)
            assert told[worker] not in in_use.values()
            others = [pool for other, pool in told.items() if other != worker and pool not in in_use.values()]
            assert told[worker] not in others


def test_one_worker_begins_the_pool_that_it_was_told_and_is_told_all_but_the_first():
    assignments, begun, ahead = Assignments(plan(9, 4, 6), 2), [], []
    while taken := assignments.take(0, 4):
        if (taken.pool.epoch, taken.pool.index) not in begun:
            begun.append((taken.pool.epoch, taken.pool.index))
            ahead.append(taken.ahead and (taken.ahead.epoch, taken.ahead.index))
    assert len(begun) == 6 and ahead == begun[1:] + [None]


def test_what_a_worker_that_fell_silent_was_told_of_an_epoch_before_is_free_in_the_next():
    assignments, told, unread = Assignments(plan(4, 4, 4), 2), None, []
    assert assignments.take(1, 1).ahead.epoch == 0  # and it never asks again
    while taken := assignments.take(0, 2):
        if taken.pool.epoch and not taken.first and taken.pool != told:
            unread.append(taken.pool)
        told = taken.ahead
    assert assignments.taken == assignments.total and unread == []


def test_two_workers_begin_what_they_were_told_to_the_end_of_the_epoch():
    assignments, told, unread = Assignments(plan(*[4] * 6), 2), {}, []
    for worker in [0, 1] * 12:
        taken = assignments.take(worker, 2)
        if taken.first == 0 and taken.pool != told.get(worker):
            unread.append(taken.pool)
        told[worker] = taken.ahead
    assert assignments.taken == assignments.total and len(unread) == 2  # of each worker the first
