"""--pop100_protocol: BERT4Rec's draws against its own procedure in a loop, and what the presets reach."""
import numpy as np

from clrec_tf.config import EvaluateConfig
from clrec_tf.evaluation import report
from clrec_tf.evaluation.sampled_negatives import clicks_of_all_parts
from clrec_tf.evaluation.sampled_negatives import sample_negatives
from tests.test_protocols import users

ITEMS, SIZE = 14, 4
HISTORY, TARGETS = [1, 2, 2, 5], [3]


def drawn_as_bert4rec(rng, weights):
    """Again and again size+1 items without replacement, until enough allowed ones came; the first of them."""
    allowed, chances = [], weights / weights.sum()
    while len(allowed) < SIZE:
        for item in 1 + rng.choice(ITEMS, SIZE + 1, replace=False, p=chances):
            if item not in HISTORY + TARGETS and item not in allowed:
                allowed.append(item)
    return allowed[:SIZE]


def test_bert4rec_draws_by_the_same_law():
    """Each item is as often among a user's negatives as in its own procedure."""
    weights, count, rng = np.linspace(9, 1, ITEMS), 8000, np.random.default_rng(0)
    negatives = sample_negatives(users([HISTORY] * count, [TARGETS] * count), weights, seed=3, size=SIZE)
    share = lambda lists: np.bincount(np.ravel(lists), minlength=ITEMS + 1) / len(lists)
    expected = share([drawn_as_bert4rec(rng, weights) for _ in range(count)])
    np.testing.assert_allclose(share(negatives), expected, atol=.03)
    assert expected.max() - expected[expected > 0].min() > .3  # popular ones more often


def test_its_counts_are_of_all_parts():
    evaluated = users([[1, 2, 2], [5, 1]], [[3], [9, 2]])  # 9 is no item of the catalogue
    np.testing.assert_array_equal(clicks_of_all_parts(evaluated, 6), [2, 3, 1, 0, 1, 0])


def test_presets_reach_the_evaluation():
    """Items without a training click are BERT4Rec's negatives, if anybody clicks them in the test part."""
    rng = np.random.default_rng(0)
    evaluated = users(rng.integers(1, 150, (300, 3)).tolist(), rng.integers(150, 301, (300, 1)).tolist())
    counts = np.where(np.arange(300) < 149, 5, 0)
    known = lambda start, stop: np.tile(np.arange(300, 0, -1.0), (stop - start, 1))  # what was trained on comes first
    hits = {name: report.evaluate_scorer(known, evaluated, counts, EvaluateConfig(ks=("90",), pop100_protocol=name), 0)
            for name in ("canonical", "bert4rec_py2")}
    assert hits["canonical"]["hr@90/pop100"] == 0 and hits["bert4rec_py2"]["hr@90/pop100"] > .2
    assert {name: each["pop100_protocol"] for name, each in hits.items()} == {name: name for name in hits}
    assert hits["canonical"]["hr@90/uniform100"] == hits["bert4rec_py2"]["hr@90/uniform100"]
    of = lambda **settings: EvaluateConfig(pop100_protocol="authors", **settings).max_users
    assert (of(), of(max_users=20_000), of(max_users=50), EvaluateConfig().max_users) == (10_000, 10_000, 50, 0)
