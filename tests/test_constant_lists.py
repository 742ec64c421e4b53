"""Lists that are the same for everybody, and models that are worse than none: found where they are, and only there."""
import numpy as np
import pytest

from clrec_tf.config import EvaluateConfig
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.evaluation.constant_lists import same_for_everybody
from clrec_tf.evaluation.constant_lists import sample_rows
from clrec_tf.evaluation.findings import warnings_of
from clrec_tf.evaluation.report import evaluate_vectors

RANDOM = np.random.default_rng(5)
USERS, ITEMS = RANDOM.normal(size=(60, 1, 8)), RANDOM.normal(size=(50, 8))


@pytest.mark.parametrize("users, items, histories, words", [
    (USERS, ITEMS, 60, ""),
    (np.repeat(USERS[:1], 60, 0) * (1 + 1e-7), ITEMS, 60, "all 60 users tried have the same vector"),
    (np.zeros((60, 8)), ITEMS, 60, "have the same vector"),
    (np.repeat(USERS[:1], 60, 0), ITEMS, 1, ""),  # one history, one list
    (USERS, np.repeat(ITEMS[:1], 50, 0), 60, "all 50 items have the same score"),
    (np.abs(USERS), np.linspace(1, 0, 50)[:, None] * np.ones(8), 60, "the same 10 items in the same order"),
    (np.abs(USERS), np.linspace(1, 0, 20)[:, None] * np.ones(8), 60, ""),  # a small catalogue may have one clear order
    (np.abs(USERS[:9]), np.linspace(1, 0, 50)[:, None] * np.ones(8), 9, ""),  # nine users may agree
    (np.repeat(USERS[:1], 60, 0), ITEMS[:3], 2, "have the same vector"),  # but not in all their numbers
    (USERS, ITEMS[:1], 60, ""),  # one item is all that there is to recommend
    (np.concatenate([USERS, -USERS], 1), ITEMS, 60, ""),
    (np.repeat(np.stack([USERS[:1, 0], -USERS[:1, 0]], 1), 60, 0), ITEMS, 60, "have the same vector"),  # two intents
])
def test_what_is_the_same_for_everybody(users, items, histories, words):
    found = same_for_everybody(users, items, np.arange(len(users)) % histories)
    assert words in found and bool(found) == bool(words)


def test_samples_are_spread_and_distinct():
    assert sample_rows(3).tolist() == [0, 1, 2] and sample_rows(5, 3).tolist() == [0, 2, 4]
    assert len(sample_rows(10**6)) == 200


def test_a_large_catalogue_is_tried_on_fewer_users():
    items = np.linspace(1, 0, 10**6)[:, None] * np.ones(8)
    assert same_for_everybody(np.abs(USERS), items, range(60)).startswith("all 20 users tried have the same 10 items")


def users_of(next_items, history=None):
    count = len(next_items)
    return EvaluationSet(np.arange(count), np.asarray(history if history is not None else [7] * count, np.int32),
                         np.arange(count + 1), np.asarray(next_items, np.int32), np.arange(count + 1))


def one_hot(items, scale=1.0):
    return scale * np.eye(50)[np.asarray(items) - 1]


def evaluated(targets, trained, untrained, history=None):
    """(result, warnings, models asked) of 50 items, 1 to 4 popular; hits are the users of `trained` and `untrained`."""
    users, counts = users_of(targets, history), np.where(np.arange(50) < 4, 100, 1)
    noise, asked = RANDOM.normal(size=(len(targets), 50)) * 0.01, []
    vectors = [np.where(np.asarray(hit)[:, None], one_hot(targets), one_hot(targets, -1.0)) + noise
               for hit in (trained, untrained)]

    def gives(number):
        def of(sample):
            asked.append(number)
            return vectors[number][sample.user_ids], np.eye(50)
        return of

    config = EvaluateConfig(ks=("1", "4"))
    result = evaluate_vectors(vectors[0], np.eye(50), users, counts, config, 0)
    return result, warnings_of(result, users, config, gives(0), gives(1)), asked


@pytest.mark.parametrize("trained, untrained, expected", [
    (0, 1, 1), (0, 0, 0), (1, 1, 0), (0.5, 0.5, 0), (0.5, 1, 1), (0.5, 0.51, 0)])
def test_a_model_is_worse_than_nothing_only_if_both_are_better(trained, untrained, expected):
    targets, place = RANDOM.integers(1, 5, 200), np.arange(200) / 200  # four popular items, which most-popular finds
    result, warnings, asked = evaluated(targets, place < trained, place < untrained)
    assert result["most_popular/hr@4/full"] == 1.0 and result["hr@4/full"] == pytest.approx(trained, abs=0.02)
    assert len(warnings) == expected
    if expected:
        assert "less than most-popular's 1.0000" in warnings[0] and (
            f"also less than that of the model before training ({trained:.4f}, {untrained:.4f})" in warnings[0])
    assert (1 in asked) == (trained < 1)  # where most-popular is not better, the model before training is not asked


@pytest.mark.parametrize("new_hits, expected", [(20, 0), (0, 1)])
def test_a_model_that_has_learned_what_is_new_is_not_worse_than_nothing(new_hits, expected):
    """100 users repeat their click, which the untrained model finds and the trained one does not; 100 do not."""
    targets, place = RANDOM.integers(1, 5, 200), np.arange(200)
    history = np.where(place < 100, targets, 7)
    result, warnings, _ = evaluated(targets, (place >= 100) & (place < 100 + new_hits), place < 100, history)
    assert result["hr@4/full/new"] == new_hits / 100 and result["hr@4/full"] < 0.5
    assert len(warnings) == expected and all(warning.startswith("hr@4/full = ") for warning in warnings)
