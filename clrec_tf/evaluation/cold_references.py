"""What users whose next click is on a cold item get from rankings that know nothing of the user: hit rates beside which
`hr@10/full/cold` is to be read. Their names have one of `report.COLD_REFERENCES` in front.

Letters: U users, V items.
"""
from typing import Sequence

import numpy as np

from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.data.features import Feature
from clrec_tf.data.features import feature_columns
from clrec_tf.evaluation import protocols
from clrec_tf.evaluation import report
from clrec_tf.settings.serving import EvaluateConfig

GROUPS = ("/cold", "/warm")


def cold_references(users: EvaluationSet, catalogue: Catalogue, features: Sequence[Feature],
                    config: EvaluateConfig, seed: int) -> dict[str, float | int]:
    """Hit rates of users with cold and with warm next clicks under each reference, and how many of each there are.

    Args:
      users: U evaluated users.
      catalogue: V items.
      features: of the item rows.
      config: cut-offs, seen filter; without the candidate set `full` there is nothing to say.
      seed: of the evaluation.

    Returns:
      {`random/hr@10/full/cold`: …, `users/cold`: number, …}; nothing where no item is cold.
    """
    if catalogue.cold is None or not catalogue.cold.any() or "full" not in config.candidate_sets:
        return {}
    groups = report.groups_of(users, catalogue.cold)
    result = {f"users{group}": int(groups[group[1:]].sum()) for group in GROUPS}
    for prefix, scores in constant_scores(catalogue, features).items():
        found = report.evaluate_scorer(protocols.most_popular_scorer(scores), users, catalogue.counts, config, seed,
                                       candidate_sets=("full",), cold=catalogue.cold, detailed=False)
        result |= {prefix + name: value for name, value in found.items() if name.endswith(GROUPS)}
    return result


def constant_scores(catalogue: Catalogue, features: Sequence[Feature]) -> dict[str, np.ndarray]:
    """Prefix -> scores [V]. Items of equal scores are in random order, which hit rates take the expectation of."""
    return {report.RANDOM: np.zeros(len(catalogue.counts)), report.RANDOM_COLD: catalogue.cold.astype(float),
            report.BY_FEATURE: popularity_by_feature(catalogue, features)}


def popularity_by_feature(catalogue: Catalogue, features: Sequence[Feature]) -> np.ndarray:
    """How popular items of an item's features are: Σ_f mean_{v of f} log((n_v + c̄)/(m_v + 1)), [V].

    n_v are the training clicks of all warm items of value v, m_v is their number, and c̄ the mean clicks of a warm item:
    clicks for each warm item of that value, with one average item added. An item's own clicks count in n_v alone. An
    item without a value of a feature is an average one there.
    """
    warm, counts = ~catalogue.cold, catalogue.counts
    average, score = counts[warm].mean(), np.zeros(len(counts))
    for columns in feature_columns(features).values():
        values = catalogue.item_rows[:, columns]
        clicks = np.bincount(values[warm].ravel(), np.repeat(counts[warm], values.shape[1]), values.max() + 1)
        items = np.bincount(values[warm].ravel(), minlength=values.max() + 1)
        rate, present = np.log((clicks + average) / (items + 1)), values > 0
        of_values = np.where(present, rate[values], 0).sum(axis=1) / np.maximum(present.sum(axis=1), 1)
        score += np.where(present.any(axis=1), of_values, np.log(average))
    return score
