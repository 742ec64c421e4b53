"""The AUC against the count over all pairs, and the protocol of its rows against loops and known scorers."""
import fractions

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.data import user_draws
from clrec_tf.errors import UserError
from clrec_tf.evaluation.auc import auc
from clrec_tf.evaluation.auc import bootstrap_auc
from clrec_tf.evaluation.auc import pooled_auc
from clrec_tf.evaluation import auc_protocol


def auc_by_pairs(scores, positive):
    won = [fractions.Fraction(1 if a > b else 0) if a != b else fractions.Fraction(1, 2)
           for a in scores[positive] for b in scores[~positive]]
    return sum(won) / len(won)


def test_auc_by_hand():
    positive = np.array([True, False, True, False, False])
    # .9 beats all three; .4 beats .1, ties with .4 and loses to .6: (3 + 1½)/6
    assert auc(np.array([.9, .1, .4, .4, .6]), positive) == pytest.approx(4.5 / 6)
    assert auc(-np.array([.9, .1, .4, .4, .6]), positive) == pytest.approx(1.5 / 6)
    assert auc(np.zeros(5), positive) == 0.5


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(0, 3)), min_size=2, max_size=12))
def test_auc_is_the_share_of_pairs_won_and_weights_are_copies(rows):
    scores, positive, weights = (np.array(column) for column in zip(*rows))
    if 0 < positive.sum() < len(rows):
        assert auc(scores, positive) == pytest.approx(float(auc_by_pairs(scores, positive)))
    copies = np.repeat(np.arange(len(rows)), weights)
    weighted = pooled_auc(scores, positive, weights[None].astype(float))[0]
    if 0 < positive[copies].sum() < len(copies):
        assert weighted == pytest.approx(float(auc_by_pairs(scores[copies], positive[copies])))
    else:
        assert np.isnan(weighted)


def test_bootstrap_draws_users_with_all_their_rows():
    # Each user's positive beats its own negative; all users are alike, so that no resample differs.
    users, positive = np.array([0, 1, 2, 0, 1, 2]), np.array([True] * 3 + [False] * 3)
    low, high = bootstrap_auc(np.array([[2., 2, 2, 1, 1, 1], [1., 1, 1, 2, 2, 2]]), users, positive, 0, resamples=50)
    assert low.tolist() == high.tolist() == [1.0, 0.0]
    # Two users, one right and one wrong: a resample holds (0,0): 1, (1,1): 0, or both with 1, ½, ½ and 0 of the pairs.
    low, high = bootstrap_auc(np.array([[3., 0, 1, 2]]), np.array([0, 1] * 2), np.array([True] * 2 + [False] * 2), 0)
    assert (low[0], high[0]) == (0.0, 1.0)
    # One row each: a resample with one class only counts for nothing.
    low, high = bootstrap_auc(np.array([[1., 0]]), np.array([0, 1]), np.array([True, False]), 0)
    assert low[0] == high[0] == 1.0


def test_bootstrap_by_loop():
    rng = np.random.default_rng(2)
    scores, users = rng.integers(0, 5, (2, 14)), rng.integers(0, 6, 14)
    positive = np.arange(14) % 3 == 0
    draws, found = np.random.default_rng(7), []
    for _ in range(40):
        rows = [row for user in draws.integers(6, size=6) for row in np.flatnonzero(users == user)]
        if 0 < positive[rows].sum() < len(rows):
            found.append([float(auc_by_pairs(values[rows], positive[rows])) for values in scores])
    expected = np.quantile(found, [0.1, 0.9], axis=0)
    assert set(users) == set(range(6)) and len(found) > 30
    np.testing.assert_allclose(bootstrap_auc(scores, users, positive, 7, resamples=40, level=0.8), expected)


def test_interval_is_as_wide_as_theory_says():
    rng, users = np.random.default_rng(0), 400
    scores = np.concatenate([rng.normal(1, 1, users), rng.normal(0, 1, users)])
    positive, owner = np.repeat([True, False], users), np.tile(np.arange(users), 2)
    low, high = bootstrap_auc(scores[None], owner, positive, 0)
    area = auc(scores, positive)
    # Hanley & McNeil: variance of the AUC of independent rows
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    deviation = np.sqrt((area * (1 - area) + (users - 1) * (q1 + q2 - 2 * area**2)) / users**2)
    assert low[0] < area < high[0]
    assert high[0] - low[0] == pytest.approx(2 * 1.96 * deviation, rel=0.15)


def evaluated(targets, user_ids=None):
    """Users without history who click these items next."""
    targets = np.asarray(targets)
    count = len(targets)
    return EvaluationSet(np.arange(count) if user_ids is None else user_ids, np.zeros(0, int),
                         np.zeros(count + 1, int), targets, np.arange(count + 1))


def test_negatives_are_uniform_over_all_other_items_of_the_log():
    for targets, size in ((np.full(30_000, 2), 6), (np.zeros(30_000, int), 6)):
        drawn = auc_protocol.draw_negatives(evaluated(targets), 4, size, 0)
        # Items 5 and 6 of the log are outside the vocabulary and both show as 0.
        share = np.bincount(drawn, minlength=5) / len(drawn)
        expected = [2 / 5, 1 / 5, 0, 1 / 5, 1 / 5] if targets[0] == 2 else [1 / 5] * 5
        np.testing.assert_allclose(share, expected, atol=0.011)  # four standard deviations
    assert set(auc_protocol.draw_negatives(evaluated([1, 2] * 50), 2, 2, 0)) == {1, 2}
    assert set(auc_protocol.draw_negatives(evaluated([0, 0]), 1, 1, 0)) == {1}  # size unknown, but there is another
    with pytest.raises(UserError, match="one item only"):
        auc_protocol.draw_negatives(evaluated([1]), 1, 1, 0)


def test_negatives_know_nothing_of_the_coins():
    """Items are numbered by falling popularity, so a negative that leans on its user's coin would give it away."""
    users = evaluated(np.zeros(30_000, int))
    drawn, coins = auc_protocol.draw_negatives(users, 9, 10, 0), user_draws.labels(0, users.user_ids)
    assert abs(drawn[coins].mean() - drawn[~coins].mean()) < 0.15  # four and a half standard deviations


def test_rows_follow_seed_and_user_whoever_else_is_evaluated():
    users = evaluated(np.arange(1, 51), np.arange(50))
    some = users.take(np.array([40, 3]))
    whole = auc_protocol.draw_negatives(users, 50, 80, 1)
    np.testing.assert_array_equal(auc_protocol.draw_negatives(some, 50, 80, 1), whole[[40, 3]])
    assert (auc_protocol.draw_negatives(users, 50, 80, 2) != whole).mean() > 0.5


def metrics_of(user_vectors, item_vectors, users, counts, log_items, temperature=0.5, seed=0, **options):
    return auc_protocol.auc_metrics(np.asarray(user_vectors, np.float32), np.asarray(item_vectors, np.float32),
                                    temperature, users, np.asarray(counts), log_items, seed, **options)


def test_metrics_by_loop():
    rng, seed = np.random.default_rng(3), 5
    targets = rng.integers(0, 9, 60)  # 0: outside the vocabulary of 8
    users, counts = evaluated(targets, rng.permutation(90)[:60]), np.array([9, 7, 7, 5, 3, 1, 1, 1])
    vectors, items = rng.normal(size=(60, 3)).astype(np.float32), rng.normal(size=(8, 3)).astype(np.float32)
    result = metrics_of(vectors, items, users, counts, 12, seed=seed)
    negatives = auc_protocol.draw_negatives(users, 8, 12, seed)
    coins = user_draws.labels(seed, users.user_ids)

    def cosine(user, item):
        return float(np.float32(vectors[user].astype(float) @ items[item - 1].astype(float))) if item else 0.0

    def click_share(item):
        return ((counts[item - 1] if item else 0) + 1) / (34 + 12)

    scorers = {"auc/{}": cosine, "auc/{}_rebiased": lambda u, i: cosine(u, i) / 0.5 + np.log(click_share(i)),
               "most_popular/auc/{}": lambda u, i: click_share(i)}
    for template, scorer in scorers.items():
        for ending, kept in (("", range(60)), ("/known", [u for u in range(60) if targets[u] and negatives[u]])):
            both = [(scorer(u, row[u]), row is targets) for u in kept for row in (targets, negatives)]
            coin = [(scorer(u, targets[u] if coins[u] else negatives[u]), bool(coins[u])) for u in kept]
            for kind, rows in (("paired", both), ("coin_flip", coin)):
                scores, positive = map(np.array, zip(*rows))
                name = template.format(kind) + ending
                assert result[name] == pytest.approx(float(auc_by_pairs(scores, positive))), name
    assert result["auc/unknown_positives"] == pytest.approx((targets == 0).mean()) and result["auc/items"] == 12
    assert result["auc/unknown_negatives"] == pytest.approx((negatives == 0).mean())
    # Who knows the next click, and ranks it above 0 and all others below, still cannot tell two unknown items apart.
    knowing = np.eye(8)[np.maximum(targets, 1) - 1] * (targets > 0)[:, None] * 2 - 1
    assert metrics_of(knowing, np.eye(8), users, counts, 12, seed=seed)["auc/paired"] == result["auc/ceiling"] < 1
    for name in ("auc/paired", "auc/coin_flip_rebiased", "auc/paired_rebiased/known"):
        assert result[f"{name}/low"] <= result[name] <= result[f"{name}/high"]
    assert metrics_of(vectors, items, users, counts, 12, seed=seed) == result
    brief = metrics_of(vectors, items, users, counts, 12, seed=seed, detailed=False)
    assert brief == {name: result[name] for name in brief} and "auc/paired" in brief and "auc/paired/low" not in brief
    assert not [name for name in brief if name.startswith("most_popular")]


def test_oracle_has_one_its_opposite_none_and_a_constant_half():
    users, axes = evaluated(np.arange(1, 41)), np.eye(40)
    found = {name: metrics_of(vectors, axes, users, np.ones(40, int), 40, detailed=False)
             for name, vectors in (("oracle", axes), ("opposite", -axes), ("constant", np.zeros((40, 40))))}
    assert not [name for name in found["oracle"] if name.endswith("/known")]  # all are
    for kind in ("coin_flip", "paired", "coin_flip_rebiased", "paired_rebiased"):
        assert [found[name][f"auc/{kind}"] for name in ("oracle", "opposite", "constant")] == [1.0, 0.0, 0.5]


def test_rebiased_pmi_is_the_better_scorer_against_uniform_negatives():
    # Two contexts, p(y|x) known: PMI forgets that item 1 is clicked more by everybody.
    share = np.array([[.6, .3, .05, .05], [.6, .05, .3, .05]])
    rng = np.random.default_rng(0)
    context = rng.integers(0, 2, 4000)
    targets = np.array([rng.choice(4, p=share[c]) + 1 for c in context])
    pmi = np.log(share / share.mean(axis=0))
    counts = (share.mean(axis=0) * 1e6).astype(int)
    result = metrics_of(np.eye(2)[context], pmi.T, evaluated(targets), counts, 4, temperature=1.0, detailed=False)
    exact = metrics_of(np.eye(2)[context], np.log(share).T, evaluated(targets), counts, 4, detailed=False)
    assert result["auc/paired_rebiased"] == pytest.approx(exact["auc/paired"], abs=1e-3)
    assert result["auc/paired_rebiased"] > result["auc/paired"] + 0.1


def test_one_sided_coins_have_no_metric_and_divergence_is_said():
    alone = evaluated([1])
    found = metrics_of(np.ones((1, 2)), np.ones((3, 2)), alone, np.ones(3, int), 3)
    assert "auc/paired" in found and "auc/coin_flip" not in found
    with pytest.raises(UserError, match="diverged"):
        metrics_of(np.full((1, 2), np.nan), np.ones((3, 2)), alone, np.ones(3, int), 3)
