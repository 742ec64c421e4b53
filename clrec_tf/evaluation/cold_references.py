"""What users whose next click is on a cold item get from rankings that know nothing of the user: hit rates beside which
`hr@10/full/cold` is to be read. Their names have one of `report.COLD_REFERENCES` in front.

Letters: U users, V items.
"""
from typing import Sequence

import numpy as np

from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.data.features import Feature
from clrec_tf.data.frequencies import counts_by_feature
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
    """Prefix -> scores [V], the same for everybody: none, `random`; cold items before others, `random_cold`; and
    `counts_by_feature` of cold and warm items alike. Items of equal scores are in random order, of which hit rates are
    the expectation."""
    return {report.RANDOM: np.zeros(len(catalogue.counts)), report.RANDOM_COLD: catalogue.cold.astype(float),
            report.BY_FEATURE: counts_by_feature(catalogue.counts, catalogue.item_rows, features)}
