"""Hit rates of users as if nobody knew a click of theirs, `hr@10/full/strangers`: what features of users and requests
alone find, of models trained with --history_dropout."""
import numpy as np

from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.evaluation import protocols
from clrec_tf.evaluation import report
from clrec_tf.models import dial
from clrec_tf.models.encode import Encoder
from clrec_tf.settings.serving import EvaluateConfig

STRANGERS = "/strangers"
POPULARITIES = (0.0, 1.0)


def stranger_metrics(encoder: Encoder, items: np.ndarray, coordinate: np.ndarray, users: EvaluationSet,
                     counts: np.ndarray, config: EvaluateConfig, seed: int) -> dict[str, float]:
    """Full rankings of the users' next clicks by vectors that know no click; items seen are left out all the same.

    Args:
      encoder: of the model.
      items, coordinate: [V,d] and [V], of the catalogue, see `curve.curve`.
      users: U users, whose histories are hidden.
      counts: [V] training clicks.
      config: cut-offs, seen filter.
      seed: of the evaluation.

    Returns:
      `hr@k/full/strangers`, `ndcg@k/full/strangers`, and the same at popularity 1; nothing of a model that was not
      trained for it, or without the candidate set `full`.
    """
    if not encoder.model.knows_strangers or "full" not in config.candidate_sets:
        return {}
    vectors = dial.with_coordinate(encoder.searched(users.without_histories(), config.eval_intents), 0.0)
    items, result = dial.with_coordinate(items, coordinate), {}
    for popularity in POPULARITIES:
        scorer = protocols.vector_scorer(dial.at_popularity(vectors, popularity), items,
                                         encoder.model.score_temperature)
        found = report.evaluate_scorer(scorer, users, counts, config, seed, candidate_sets=("full",), detailed=False)
        result |= {dial.name(name + STRANGERS, popularity) if popularity else name + STRANGERS: value
                   for name, value in found.items() if name.partition("@")[0] in ("hr", "ndcg")}
    return result
