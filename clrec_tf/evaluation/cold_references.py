"""Hit rates of users whose next click is on a cold item: among cold items alone, `hr@10/cold`; and those of rankings
that know nothing of the user, beside which `hr@10/full/cold` is to be read, whose names have one of
`report.COLD_REFERENCES` in front.

Letters: U users, V items.
"""
from typing import Sequence

import numpy as np

from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.data.features import Feature
from clrec_tf.data.frequencies import counts_by_feature
from clrec_tf.evaluation import metrics
from clrec_tf.evaluation import protocols
from clrec_tf.evaluation import report
from clrec_tf.settings.serving import EvaluateConfig

GROUPS = ("/cold", "/warm")
LAST = -1e9  # score of what is no candidate


def cold_references(scorer: protocols.ScoreChunk, users: EvaluationSet, catalogue: Catalogue,
                    features: Sequence[Feature], config: EvaluateConfig, seed: int) -> dict[str, float | int]:
    """Hit rates of users with cold and with warm next clicks under each reference, how many of each there are, and the
    hit rates among cold items alone of a model and of the references.

    Args:
      scorer: of the model, see `protocols`.
      users: U evaluated users.
      catalogue: V items.
      features: of the item rows.
      config: cut-offs, seen filter; without the candidate set `full` there is nothing to say.
      seed: of the evaluation.

    Returns:
      {`hr@10/cold`: …, `random/hr@10/full/cold`: …, `users/cold`: number, …}; nothing where no item is cold.
    """
    if catalogue.cold is None or not catalogue.cold.any() or "full" not in config.candidate_sets:
        return {}
    groups = report.groups_of(users, catalogue.cold)
    result = {f"users{group}": int(groups[group[1:]].sum()) for group in GROUPS}
    result |= among_cold(scorer, users, catalogue.cold, config)
    for prefix, scores in constant_scores(catalogue, features).items():
        reference = protocols.most_popular_scorer(scores)
        found = report.evaluate_scorer(reference, users, catalogue.counts, config, seed, candidate_sets=("full",),
                                       cold=catalogue.cold, detailed=False)
        found |= among_cold(reference, users, catalogue.cold, config)
        result |= {prefix + name: value for name, value in found.items() if name.endswith(GROUPS)}
    return result


def among_cold(scorer: protocols.ScoreChunk, users: EvaluationSet, cold: np.ndarray,
               config: EvaluateConfig) -> dict[str, float]:
    """`hr@k/cold` of the users whose next click is on a cold item: its rank among the cold items, bool [V], alone."""
    ranked = protocols.rank_targets(lambda start, stop: np.where(cold, scorer(start, stop), LAST), users, len(cold),
                                    filter_seen=config.filter_seen)
    next_click = users.target_splits[:-1][report.groups_of(users, cold)["cold"]]
    better, tied = ranked.counts["full"].better[next_click], ranked.counts["full"].tied[next_click]
    return {f"hr@{k}/cold": float(metrics.hit_rate(better, tied, k).mean()) for k in
            report.check_settings(config.ks, config.candidate_sets) if len(next_click)}


def constant_scores(catalogue: Catalogue, features: Sequence[Feature]) -> dict[str, np.ndarray]:
    """Prefix -> scores [V], the same for everybody: none, `random`; cold items before others, `random_cold`; and
    `counts_by_feature` of cold and warm items alike. Items of equal scores are in random order, of which hit rates are
    the expectation."""
    return {report.RANDOM: np.zeros(len(catalogue.counts)), report.RANDOM_COLD: catalogue.cold.astype(float),
            report.BY_FEATURE: counts_by_feature(catalogue.counts, catalogue.item_rows, features)}
