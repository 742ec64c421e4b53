"""Two models on the same next clicks, user by user."""
import dataclasses

import numpy as np

from clrec_tf.config import Config
from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data import schema as schema_lib
from clrec_tf.days.gate import Demand
from clrec_tf.days.gate import Judgement
from clrec_tf.evaluation import metrics
from clrec_tf.evaluation import protocols
from clrec_tf.evaluation.popularity import counted_of
from clrec_tf.models import dial
from clrec_tf.models.trained import Trained


@dataclasses.dataclass(frozen=True)
class Today:
    """What both models are compared on: the items of --data_dir, and the users of --eval_split."""
    catalogue: Catalogue
    users: EvaluationSet

    @classmethod
    def read(cls, config: Config) -> "Today":
        """Of the day's settings."""
        data_dir, settings = config.paths.data_dir, config.evaluate
        schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
        return cls(read_catalogue(data_dir, schema, manifest), read_evaluation_set(
            data_dir, settings.eval_split, schema, manifest, settings.max_users, config.paths.seed))


def compare(before: Trained, now: Trained, today: Today, config: Config, demands: list[Demand]) -> list[Judgement]:
    """Judges today's model beside yesterday's.

    Args:
      before, now: both on the data of --data_dir.
      today: read of it.
      config: of the day.
      demands: what is asked.
    """
    catalogue, users = today.catalogue, today.users
    values = [_values(trained, config, catalogue, users, demands) for trained in (before, now)]
    return [_judged(demand, *(each[demand] for each in values), config.paths.seed) for demand in demands]


def too_few(today: Today, config: Config) -> str:
    """Why the users of the test part are too few to judge by (--gate_users); "" where they are not."""
    users, asked = today.users.num_users, config.days.gate_users
    return "" if users >= asked else (
        f"{users} users of the {config.evaluate.eval_split} part compare the models, --gate_users={asked} are asked: "
        "give a log with more, or lower --gate_users")


def known_share(today: Today, before: str) -> float:
    """Share of today's next clicks that are on items of the vocabulary of an earlier data folder."""
    schema = schema_lib.load_schema(before)
    known = set(read_catalogue(before, schema, schema_lib.load_manifest(before)).original_ids)
    was_known = np.array([False, *(item in known for item in today.catalogue.original_ids)])
    targets = today.users.next_clicks  # above the catalogue are hash buckets
    return float(was_known[np.where(targets < len(was_known), targets, 0)].mean())


def relative_interval(before: np.ndarray, now: np.ndarray, seed: int) -> tuple[float, float]:
    """95 % bootstrap interval of mean(now)/mean(before) − 1 over users, who are drawn together: both [U]."""
    rng, users = np.random.default_rng(seed), len(before)
    values, changes = np.stack([before, now], axis=1), []
    for _ in range(1000):
        old, new = np.bincount(rng.integers(users, size=users), minlength=users) @ values
        changes.append(new / old - 1.0 if old else 0.0 if new == old else np.inf)
    # Where yesterday's is 0 in some draws, the high bound may be infinite, beside which nothing can be interpolated.
    low, high = np.quantile(changes, [0.025, 0.975], method="linear" if np.isfinite(changes).all() else "nearest")
    return float(low), float(high)


def _judged(demand, before, now, seed) -> Judgement:
    if np.ndim(before) == 0:
        return Judgement(demand, float(before), float(now))
    return Judgement(demand, float(before.mean()), float(now.mean()), *relative_interval(before, now, seed))


def _values(trained: Trained, config: Config, catalogue: Catalogue, users: EvaluationSet, demands: list[Demand]
            ) -> dict[Demand, np.ndarray]:
    """Of each demand the metric by user, [U], or of a metric of all lists one number."""
    settings, encoder = config.evaluate, trained.encoder(catalogue.cold)
    vectors = dial.with_coordinate(encoder.searched(users, settings.eval_intents), 0.0)
    coordinate = counted_of(trained, catalogue, config.paths.data_dir).coordinate
    items = dial.with_coordinate(encoder.compared_items(catalogue.item_rows), coordinate)
    values, length = {}, max([demand.k for demand in demands if demand.kind == "aggregate_diversity"], default=0)
    for popularity in sorted({demand.popularity for demand in demands}):
        scorer = protocols.vector_scorer(dial.at_popularity(vectors, popularity), items,
                                         trained.model.score_temperature)
        ranked = protocols.rank_targets(scorer, users, len(catalogue.counts), list_length=length,
                                        filter_seen=settings.filter_seen)
        better, tied = (part[users.target_splits[:-1]] for part in (ranked.counts["full"].better,
                                                                    ranked.counts["full"].tied))
        for demand in demands:
            if demand.popularity == popularity:
                values[demand] = _metric(demand, better, tied, ranked.lists, len(catalogue.counts))
    return values


def _metric(demand, better, tied, lists, num_items):
    if demand.kind == "aggregate_diversity":
        return np.float64(metrics.aggregate_diversity(metrics.recommendation_counts(lists[:, :demand.k], num_items)))
    return (metrics.hit_rate if demand.kind == "hr" else metrics.ndcg)(better, tied, demand.k)
