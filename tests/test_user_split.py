"""The split by users and time against loops, and what its data folder may hold."""
import collections

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from clrec_tf.config import PrepareConfig
from clrec_tf.data import user_draws
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import split_rule
from clrec_tf.preparation.splits import Clicks
from clrec_tf.preparation.splits import TEST
from clrec_tf.preparation.splits import TRAIN
from clrec_tf.preparation.splits import VALID
from clrec_tf.preparation import user_split
from clrec_tf.preparation.user_split import CONTEXT
from clrec_tf.preparation.user_split import LEFT_OUT
from tests import prepared_data

START = 1_600_000_000


def parts_by_loop(clicks, quantile, valid_share, seed):
    """Part of each click, user by user, as the protocol's script goes through them."""
    own = collections.defaultdict(list)
    for user, second in zip(clicks.user.tolist(), clicks.timestamp.tolist()):
        own[user].append(second)
    ascending = sorted(seconds[-1] for seconds in own.values())
    after = ascending[min(int(len(ascending) * quantile), len(ascending) - 1)]
    parts = []
    for user, seconds in own.items():
        alone = np.array([user])
        if seconds[-1] > after:
            parts += [CONTEXT] * (len(seconds) - 1) + [TEST]
        elif user_draws.user_draws(seed, user_draws.VALIDATION, alone)[0] < valid_share:
            parts += [CONTEXT] * (len(seconds) - 1) + [VALID]
        else:
            parts += [TRAIN] * (len(seconds) - 1) + [TRAIN if user_draws.labels(seed, alone)[0] else LEFT_OUT]
    return parts


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=5), min_size=1, max_size=9),
       st.sampled_from([0.0, 0.5, 0.7, 1.0]), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 5))
def test_parts_by_loop(users, quantile, valid_share, seed):
    user = np.repeat(np.arange(len(users)), [len(own) for own in users])
    clicks = Clicks(user, np.zeros(len(user), int), np.array([second for own in users for second in sorted(own)]))
    last = clicks.timestamp[np.diff(clicks.user, append=-1) != 0]
    part = user_split.parts(clicks, user_split.split_time(last, quantile), valid_share, seed, np.arange(len(last)))
    assert part.tolist() == parts_by_loop(clicks, quantile, valid_share, seed)
    assert not ((np.diff(part) < 0) & (np.diff(user) == 0)).any()  # a user's parts never decrease


def test_split_time_by_hand():
    last = np.array([9, 1, 8, 2, 7, 3, 6, 4, 5, 10])
    assert user_split.split_time(last, 0.7) == 8  # places 0..9 hold 1..10, so that 9 and 10 are later
    assert user_split.split_time(last, 0.0) == 1 and user_split.split_time(last, 1.0) == 10


def test_coins_are_fair_and_depend_on_seed_and_user_alone():
    users = np.arange(20_000)
    coins = user_draws.labels(3, users)
    assert abs(coins.mean() - 0.5) < 0.015  # four standard deviations
    some = np.array([17, 4, 19_999, 4])
    np.testing.assert_array_equal(user_draws.labels(3, some), coins[some])
    for other in (user_draws.labels(4, users), user_draws.user_draws(3, user_draws.NEGATIVE, users) < 0.5,
                  user_draws.user_draws(3, user_draws.VALIDATION, users) < 0.5):
        assert abs((other == coins).mean() - 0.5) < 0.015
    assert user_draws.labels(3, users[:0]).shape == (0,)


def prepared(tmp_path, seed=0, **changes):
    """A log of 60 users in which every click has an item and a second of its own, and who clicked what."""
    rng, clicks, item = np.random.default_rng(1), {}, 0
    for user in range(60):
        own = []
        for second in np.sort(rng.choice(10_000, rng.integers(1, 9), replace=False)):
            own.append((item, START + int(second)))
            item += 1
        clicks[user] = own
    text = "user_id,item_id,timestamp\n" + "".join(
        f"u{user},{item},{second}\n" for user, own in clicks.items() for item, second in own)
    return prepared_data.prepare_text(tmp_path, text, seed, split="by_user", shard_records=7, **dict(
        dict(min_train_length=1, valid_share=0.2), **changes)), clicks


@pytest.mark.parametrize("seed", [0, 3])
def test_no_click_of_a_tested_user_and_no_last_click_of_label_0_is_trained_on(tmp_path, seed):
    data_dir, clicks = prepared(tmp_path, seed)
    part = {name: prepared_data.read_split(data_dir, name) for name in ("train", "valid", "test", "catalogue")}
    item_of = {record["item_id"][0]: int(record["original_id"][0]) for record in part["catalogue"]}
    trained = {record["user_id"][0]: [item_of[item] for item in record["item_id"]] for record in part["train"]}
    evaluated = {name: {record["user_id"][0] for record in part[name]} for name in ("valid", "test")}
    after = sorted(own[-1][1] for own in clicks.values())[42]
    late = {user for user, own in clicks.items() if own[-1][1] > after}
    assert 0 < len(late) <= 17 and not late & set(trained) and not evaluated["valid"] & set(trained)
    # Items are unique to a click, so that those of nobody else's training are unknown: targets and whole histories.
    assert not evaluated["valid"] and not evaluated["test"]
    coin = dict(enumerate(user_draws.labels(seed, np.arange(60)).tolist()))
    assert len({coin[user] for user in trained}) == 2
    for user, items in trained.items():
        whole = [item for item, _ in clicks[user]]
        assert items == (whole if coin[user] else whole[:-1])
    assert sorted(item_of.values()) == sorted(item for items in trained.values() for item in items)


def test_evaluated_users_have_all_but_their_last_click_as_history(tmp_path):
    rows = [(user, f"i{(user + click) % 7}", START + 10 * user + click) for user in range(40)
            for click in range(1 + user % 5)]
    text = "user_id,item_id,timestamp\n" + "".join(f"{u},{i},{t}\n" for u, i, t in rows)
    data_dir = prepared_data.prepare_text(tmp_path, text, split="by_user", valid_share=0.3, min_train_length=1,
                                          max_sequence_length=4)
    item_of = {record["item_id"][0]: record["original_id"][0].decode()
               for record in prepared_data.read_split(data_dir, "catalogue")}
    assert len(item_of) == 7  # all are known
    tested = {record["user_id"][0]: record for record in prepared_data.read_split(data_dir, "test")}
    # Last clicks come in the order of users 0..39: those after place 28 are tested, but those with one click (30, 35).
    assert sorted(tested) == [user for user in range(29, 40) if user % 5]
    assert prepared_data.read_split(data_dir, "valid")
    for user, record in tested.items():
        own = [(item, second) for u, item, second in rows if u == user][-4:]
        assert record["target_count"] == [1]
        assert [(item_of[item], second) for item, second in zip(record["item_id"], record["timestamp"])] == own


def checked(clicks, seed, **settings):
    settings = PrepareConfig(split="by_user", **settings)
    is_last = np.diff(clicks.user, append=-1) != 0
    rule = split_rule.of_log(clicks.timestamp if clicks.timestamp is None else clicks.timestamp[is_last], settings, seed)
    none = np.zeros(0, int)
    split_rule.check(rule, split_rule.counts(rule.parts(clicks, np.arange(is_last.sum()))), is_last.sum(), none, none, {})


def test_refusals():
    clicks = Clicks(np.array([0, 1]), np.array([0, 0]), None)
    with pytest.raises(UserError, match="--split=by_user needs time stamps"):
        checked(clicks, 0)
    clicks = Clicks(np.array([0, 0, 1]), np.zeros(3, int), np.full(3, START))  # last clicks at one time
    with pytest.raises(DataError, match="no user to test: of 2 users, 0 have .*--split_quantile=0.7"):
        checked(clicks, 1, valid_share=0.0)
    with pytest.raises(DataError, match="no user to train on.*--valid_share=1.0"):
        checked(clicks, 0, valid_share=1.0)
