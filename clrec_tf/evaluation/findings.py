"""What an evaluation has to say in words: that a model recommends the same to everybody, or is worse than nothing."""
from typing import Callable

import numpy as np

from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.evaluation import constant_lists
from clrec_tf.evaluation import metrics
from clrec_tf.evaluation import protocols
from clrec_tf.evaluation.report import MOST_POPULAR
from clrec_tf.settings.serving import EvaluateConfig

WARNINGS = "warnings"  # key of metrics.json, a list of sentences
_COMPARED_SCORES, _LEAST_USERS = 2 * 10**8, 500  # of each model, which bounds the time that it takes
_MANY = 0.05  # of the users
_SURE = 2  # standard errors
_REMEDY = ("lower --learning_rate, look for extreme values in features and dense vectors, and at the loss in "
           "metrics.jsonl, which must come below the log of the number of candidates")
Vectors = Callable[[EvaluationSet], tuple[np.ndarray, np.ndarray]]  # users -> their vectors [U,K,d], items' [V,d]


def warnings_of(result: dict, users: EvaluationSet, config: EvaluateConfig, trained: Vectors, untrained: Vectors
                ) -> list[str]:
    """Sentences for the report; none about a sound model.

    Args:
      result: metrics of `report.evaluate_scorer`.
      users: who was evaluated.
      config: the settings of it.
      trained: gives vectors of the model.
      untrained: of the model with its initial values; called only where most-popular is better than the model.
    """
    sentences = []
    sample = users.take(constant_lists.sample_rows(users.num_users))
    histories = [tuple(sample.history_ids[start:stop]) for start, stop in zip(
        sample.history_splits, sample.history_splits[1:])]
    same = constant_lists.same_for_everybody(*trained(sample), histories)
    if same:
        sentences.append(f"the same list for everybody: {same}. The model has collapsed: {_REMEDY}")
    sentences.append(_without_rivals(result, users, config))
    sentences.append(_worse_than_nothing(result, users, config, trained, untrained))
    return [sentence for sentence in sentences if sentence]


def _without_rivals(result, users, config):
    """A sentence where many next clicks are the only candidate left, and so are hits of any model."""
    if not config.filter_seen or np.diff(users.history_splits).max() < result["items"]:
        return ""
    rows, items = users.history_pairs(0, users.num_users)
    seen = np.unique(rows * (result["items"] + 1) + np.where(items <= result["items"], items, 0))
    known = seen[seen % (result["items"] + 1) > 0] // (result["items"] + 1)
    covered = np.count_nonzero(np.bincount(known, minlength=users.num_users) == result["items"])
    if covered < _MANY * users.num_users:
        return ""
    return (f"the histories of {covered} of {users.num_users} users hold all {result['items']} items: under "
            "--filter_seen nothing is left to recommend to them, and their next click, without any rival, counts as a "
            "hit; give --filter_seen=false")


def _worse_than_nothing(result, users, config, trained, untrained):
    """A sentence where the hit rate is below most-popular's and, by the same users, below the untrained model's.

    Most-popular alone says nothing: in a log that follows exposure it is hard to beat, and a model that takes the
    exposure out should not. Nor does the untrained model alone: it finds the items of the history itself, whose
    repeated clicks stay candidates. So a model that beats it by the users whose next click is new has learned.
    """
    cutoff = min((int(k) for k in config.ks), key=lambda k: (abs(k - 10), k))
    every, new = f"hr@{cutoff}/full", f"hr@{cutoff}/full/new"
    unpopular = [name for name in (every, new) if result.get(f"{name}/high", np.inf) < result.get(
        MOST_POPULAR + name, -np.inf)]
    if not unpopular:
        return ""
    size = max(_LEAST_USERS, _COMPARED_SCORES // result["items"])
    sample = users.take(constant_lists.sample_rows(users.num_users, size))
    hits = [_hits(*vectors(sample), sample, cutoff, config.filter_seen) for vectors in (trained, untrained)]
    groups = {every: np.ones(len(hits[0]), bool), new: ~protocols.is_repeated(sample)}
    gain = {name: _sure_gain(hits[0][users] - hits[1][users]) for name, users in groups.items()}
    worse = [name for name in unpopular if gain[name] < 0 and gain[new] <= 0]
    if not worse:
        return ""
    name = worse[0]
    mine, initial = (of_model[groups[name]].mean() for of_model in hits)
    return (f"{name} = {result[name]:.4f} is less than most-popular's {result[MOST_POPULAR + name]:.4f}, and of "
            f"{np.count_nonzero(groups[name])} users compared also less than that of the model before training "
            f"({mine:.4f}, {initial:.4f}): training has done harm, or has only begun. Train longer (--epochs), "
            f"or {_REMEDY}")


def _sure_gain(differences):
    """Mean of differences [U], moved towards 0 by its uncertainty; 0 where that reaches across, or there are none."""
    if not len(differences):
        return 0.0
    mean, error = differences.mean(), _SURE * differences.std() / np.sqrt(len(differences))
    return np.sign(mean) * max(0.0, abs(mean) - error)


def _hits(user_vectors, item_vectors, users, cutoff, filter_seen):
    """Hit rate of each user's next click among the whole catalogue, [U]."""
    ranked = protocols.rank_targets(protocols.vector_scorer(user_vectors, item_vectors), users, len(item_vectors),
                                    filter_seen=filter_seen).counts["full"]
    first = users.target_splits[:-1]
    return metrics.hit_rate(ranked.better[first], ranked.tied[first], cutoff)
