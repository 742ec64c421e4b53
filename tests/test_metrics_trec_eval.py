"""Ranking metrics against NIST's trec_eval, by the whole protocol: filtered histories, several targets, cut-offs."""
import numpy as np
import pytest
import pytrec_eval

from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.evaluation.report import evaluate_scorer
from clrec_tf.settings.serving import EvaluateConfig

USERS, ITEMS, SEEN, CUTOFFS = 40, 80, 6, (1, 5, 10, 50)
MEASURES = {"hr": "success", "ndcg": "ndcg_cut", "recall": "recall"}  # ours -> theirs


@pytest.fixture(scope="module")
def both():
    """Our metrics, and trec_eval's means where the next click alone is relevant, and where all targets are."""
    rng = np.random.default_rng(0)
    scores = rng.permuted(np.tile(np.arange(ITEMS, dtype=float), (USERS, 1)), axis=1)  # without ties
    drawn = np.stack([rng.permutation(ITEMS) + 1 for _ in range(USERS)])
    counts = rng.integers(1, 5, USERS)
    users = EvaluationSet(np.arange(USERS), drawn[:, :SEEN].ravel(), np.arange(USERS + 1) * SEEN,
                          np.concatenate([row[SEEN:SEEN + n] for row, n in zip(drawn, counts)]),
                          np.append(0, np.cumsum(counts)))
    config = EvaluateConfig(ks=tuple(map(str, CUTOFFS)), candidate_sets=("full",))
    ours = evaluate_scorer(lambda start, stop: scores[start:stop], users, np.ones(ITEMS), config, 0, detailed=False)

    run = {str(user): {str(item): scores[user, item - 1] for item in drawn[user, SEEN:]} for user in range(USERS)}
    wanted = {"recip_rank", *(f"{name}.{','.join(map(str, CUTOFFS))}" for name in MEASURES.values())}

    def means(relevant):
        judged = {str(user): {str(item): 1 for item in drawn[user, SEEN:SEEN + relevant[user]]}
                  for user in range(USERS)}
        results = pytrec_eval.RelevanceEvaluator(judged, wanted).evaluate(run).values()
        return {name: np.mean([result[name] for result in results]) for name in next(iter(results))}

    return ours, means(np.ones(USERS, int)), means(counts)


@pytest.mark.parametrize("k", CUTOFFS)
@pytest.mark.parametrize("name", MEASURES)
def test_metrics_equal_trec_eval(both, name, k):
    ours, of_next, of_all = both
    theirs = (of_all if name == "recall" else of_next)[f"{MEASURES[name]}_{k}"]
    assert ours[f"{name}@{k}/full"] == pytest.approx(theirs, abs=1e-9) and 0 < theirs < 1


def test_mrr_equals_trec_eval(both):
    ours, of_next, _ = both
    assert ours["mrr/full"] == pytest.approx(of_next["recip_rank"], abs=1e-9)
