"""One model at several settings of the dial (see `models.dial`): metrics by popularity, and the choice among them."""
import dataclasses
import re
from typing import Optional
from typing import Sequence

from absl import logging
import numpy as np

from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.errors import UserError
from clrec_tf.evaluation.report import evaluate_vectors
from clrec_tf.evaluation.report import most_popular_lists
from clrec_tf.models import dial
from clrec_tf.settings.dial import DialConfig
from clrec_tf.settings.dial import MOST
from clrec_tf.settings.serving import EvaluateConfig

CURVE_STEP = 0.25  # between popularities of a curve, beside the bounds of the range
_RANKING_METRIC = re.compile(r"(?:(?:hr|ndcg)@([1-9][0-9]*)|mrr)/(full|pop100|uniform100)|recall@([1-9][0-9]*)/(full)")
MOST_USERS, MOST_SCORES = 10_000, 2 * 10**9  # of a choice: users, and users times items
_LISTS = ("aggregate_diversity", "coverage", "gini", "popularity_index", "arp", "aplt", "cold_share")
_RANKINGS = ("hr", "ndcg", "recall", "mrr")


def popularities(settings: DialConfig) -> list[float]:
    """The values of --popularity; where it is auto, those of the usual curve over the range."""
    return settings.values or dial.grid(*settings.range, CURVE_STEP)


def curve(user_vectors: np.ndarray, item_vectors: np.ndarray, coordinate: np.ndarray, users: EvaluationSet,
          counts: np.ndarray, config: EvaluateConfig, seed: int, values: Sequence[float], **options) -> dict:
    """{α: metrics of rankings and lists}, without references.

    Args:
      user_vectors: [U,d] or [U,K,d].
      item_vectors: [V,d], row i = item i + 1.
      coordinate: [V], see `dial.item_coordinate`.
      users, counts, config, seed, options: of `report.evaluate_vectors`.
      values: α.
    """
    items, points = dial.with_coordinate(item_vectors, coordinate), {}
    plain = dial.with_coordinate(user_vectors, 0.0)
    popular = most_popular_lists(users, counts, config)
    for value in values:
        metrics = evaluate_vectors(dial.at_popularity(plain, value), items, users, counts, config, seed,
                                   popular_lists=popular, **options)
        points[value] = {name: number for name, number in metrics.items()
                         if name.partition("@")[0].partition("/")[0] in (*_LISTS, *_RANKINGS)}
    return points


def named(points: dict) -> dict:
    """A curve as flat metrics, `hr@10/full/popularity=0.5`."""
    return {dial.name(name, value): number for value, metrics in points.items() for name, number in metrics.items()}


def check_settings(settings: DialConfig) -> None:
    """`UserError` where a popularity is outside the range, or --popularity_metric is none."""
    settings.check()
    check_metric(settings.popularity_metric)


def check_metric(name: str) -> tuple[str, str]:
    """Cut-off and candidate set of --popularity_metric; `UserError` where it names none."""
    parts = ranking_metric(name)
    if parts is None:
        raise UserError(f"--popularity_metric={name}: must be hr@K, ndcg@K or mrr, then /full, /pop100 or /uniform100, "
                        "or recall@K/full, such as ndcg@10/full")
    return parts


def ranking_metric(name: str) -> Optional[tuple[str, str]]:
    """Cut-off ("10" where there is none) and candidate set of a ranking metric, such as hr@10/full; None of others."""
    match = _RANKING_METRIC.fullmatch(name)
    return match and (match[1] or match[3] or "10", match[2] or match[4])


@dataclasses.dataclass(frozen=True)
class Choice:
    """The popularity chosen, and what it was chosen by.

    Attributes:
      popularity: α.
      chosen_by: rule and curve, for a manifest: metric, tolerance, split, users, curve {"α": [metric, diversity]}, and
        where α is an end of --popularity_range `at_border`, which says so.
    """
    popularity: float
    chosen_by: dict


def choose(user_vectors: np.ndarray, item_vectors: np.ndarray, coordinate: np.ndarray, users: EvaluationSet,
           counts: np.ndarray, config: EvaluateConfig, settings: DialConfig, seed: int,
           temperature: Optional[float] = None) -> Choice:
    """Chooses among --popularity, or the usual curve, by --popularity_metric and --popularity_tolerance.

    Args: see `curve`; `users` are those of the validation part; temperature: of `protocols.vector_scorer`.
    """
    cutoff, candidates = check_metric(settings.popularity_metric)
    config = dataclasses.replace(config, ks=(cutoff,))
    points = curve(user_vectors, item_vectors, coordinate, users, counts, config, seed, popularities(settings),
                   candidate_sets=tuple(dict.fromkeys(("full", candidates))), intervals=False, temperature=temperature)
    diversity = f"aggregate_diversity@{config.list_length}/full"
    pairs = {value: (metrics[settings.popularity_metric], metrics[diversity]) for value, metrics in points.items()}
    value = dial.choose(pairs, settings.popularity_tolerance)
    if not any(metric for metric, _ in pairs.values()):
        logging.warning("--popularity_metric=%s is 0 at every popularity on %d validation users: nothing can be chosen "
                        "by it, and %g is taken; train longer, or give --popularity", settings.popularity_metric,
                        users.num_users, value)
    logging.info("popularity %g chosen by %s on %d validation users: %s", value, settings.popularity_metric,
                 users.num_users, ", ".join(f"{at:g}: {metric:.4f} ({distinct} items)"
                                            for at, (metric, distinct) in pairs.items()))
    border = border_of(value, settings)
    if border:
        logging.warning("%s", border)
    return Choice(value, dict(
        metric=settings.popularity_metric, tolerance=settings.popularity_tolerance, split="valid",
        users=users.num_users, curve={f"{at:g}": list(pair) for at, pair in pairs.items()},
        **(dict(at_border=border) if border else {})))


def border_of(value: float, settings: DialConfig) -> str:
    """Says that a chosen popularity is an end of --popularity_range, and a wider one to try; empty where it is not,
    where nothing was to be chosen, and where there is none beyond."""
    lowest, highest = settings.range
    if len(popularities(settings)) < 2 or lowest < value < highest or abs(value) >= MOST:
        return ""
    end, wider = ("largest", (lowest, highest + 0.5)) if value == highest else ("least", (lowest - 0.5, highest))
    wider = ",".join(f"{min(max(bound, -MOST), MOST):g}" for bound in wider)
    return (f"popularity {value:g} is the {end} of --popularity_range={lowest:g},{highest:g}, and one beyond may be "
            f"better: try --popularity_range={wider}")


def users_to_choose_on(num_items: int) -> int:
    """Validation users, at most: fewer where each has very many items to be scored."""
    return int(np.clip(MOST_SCORES // num_items, 1000, MOST_USERS))
