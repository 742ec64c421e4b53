"""What tables measure beside the metrics of an evaluation: of lists, and of what they are compared with."""
import os

import numpy as np

from clrec_tf.config import Config
from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.data.features import feature_columns
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data import schema as schema_lib
from clrec_tf.data.schema import Schema
from clrec_tf.evaluation import metrics
from clrec_tf.evaluation import protocols
from clrec_tf.evaluation.report import most_popular_lists
from clrec_tf.lab.simulator.oracle_metrics import Judge
from clrec_tf.lab.simulator import simulated_logs
from clrec_tf.models.trained import Trained
from clrec_tf.training.restore import load_trained


def row_entropy(labels: np.ndarray) -> np.ndarray:
    """Entropy of the labels in each row, nats, [U].

    Args:
      labels: int [U,L] ≥ 0; 0 is an empty place, and a row without others has 0.
    """
    ordered = np.sort(labels, axis=1)
    begins = np.diff(ordered, axis=1, prepend=-1) != 0
    rows, places = np.nonzero(begins)
    ends = np.where(np.append(np.diff(rows) == 0, False), np.append(places[1:], 0), labels.shape[1])
    counts = np.where(ordered[rows, places] > 0, ends - places, 0)
    shares = counts / np.maximum(np.count_nonzero(labels, axis=1), 1)[rows]
    return np.bincount(rows, weights=-shares * np.log(np.where(shares > 0, shares, 1)), minlength=len(labels))


def in_turn(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """One list of both, which take turns; an item comes once, where it is first met.

    Args:
      first, second: int [U,L], item ids, 0 = empty place.

    Returns:
      [U,L].
    """
    users, length = first.shape
    joined = np.stack([first, second], axis=2).reshape(users, 2 * length)
    earlier = np.tri(2 * length, k=-1, dtype=bool)
    left_out = (joined == 0) | ((joined[:, :, None] == joined[:, None, :]) & earlier).any(axis=2)
    order = np.argsort(left_out, axis=1, kind="stable")[:, :length]
    return np.where(np.take_along_axis(left_out, order, axis=1), 0, np.take_along_axis(joined, order, axis=1))


def list_figures(config: Config, trained: Trained) -> dict[str, float]:
    """Of a model's lists of --list_length, see `_of_lists`."""
    users, catalogue = _evaluated(config)[1:]
    return _of_lists(config, _lists(config, trained, users, catalogue), users, catalogue)


def lists_in_turn(config: Config, workdirs: list[str]) -> dict[str, float]:
    """The same of the lists of two runs, which take turns within one of --list_length."""
    users, catalogue = _evaluated(config)[1:]
    models = [load_trained(config.but(workdir=workdir), config.evaluate.eval_checkpoint) for workdir in workdirs]
    lists = in_turn(*(_lists(config, trained, users, catalogue) for trained in models))
    return _of_lists(config, lists, users, catalogue)


def distinct_next_clicks(config: Config, workdirs: list[str]) -> dict[str, float]:
    """The distinct items among the next clicks of all evaluated users."""
    del workdirs
    clicked = _evaluated(config)[1].next_clicks
    return {f"aggregate_diversity@{config.evaluate.list_length}/full": len(np.unique(clicked[clicked > 0]))}


def category_entropy(config: Config, trained: Trained) -> dict[str, float]:
    """Mean over users of the entropy of the categories in a model's lists of --list_length."""
    schema, users, catalogue = _evaluated(config)
    lists = _lists(config, trained, users, catalogue)
    return _named_entropy(config, np.append(0, _categories(schema, catalogue))[lists])


def history_entropy(config: Config, workdirs: list[str]) -> dict[str, float]:
    """The same of the users' last --list_length clicks."""
    del workdirs
    schema, users, catalogue = _evaluated(config)
    clicks = users.histories(0, users.num_users, config.evaluate.list_length)
    ids = np.where(clicks.mask, clicks.item_rows[:, :, 0], 0)
    return _named_entropy(config, np.append(0, _categories(schema, catalogue))[ids])


def _named_entropy(config, labels):
    return {f"category_entropy@{config.evaluate.list_length}": float(row_entropy(labels).mean())}


def _categories(schema: Schema, catalogue: Catalogue) -> np.ndarray:
    """The first feature of each item, [V], from 1; 0 = none."""
    return catalogue.item_rows[:, feature_columns(schema.features)[schema.features[0].name]][:, 0]


def _evaluated(config) -> tuple[Schema, EvaluationSet, Catalogue]:
    """The schema, the users evaluated, and the items."""
    data_dir = config.paths.data_dir
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    users = read_evaluation_set(data_dir, config.evaluate.eval_split, schema, manifest, config.evaluate.max_users,
                                config.paths.seed)
    return schema, users, read_catalogue(data_dir, schema, manifest)


def _lists(config, trained, users, catalogue) -> np.ndarray:
    """What a model recommends, int [U,L]."""
    encoder = trained.encoder(catalogue.cold)
    scorer = protocols.vector_scorer(encoder.searched(users), encoder.compared_items(catalogue.item_rows),
                                     trained.model.temperature)
    return protocols.rank_targets(scorer, users, len(catalogue.counts), full=False,
                                  list_length=config.evaluate.list_length,
                                  filter_seen=config.evaluate.filter_seen).lists


def _of_lists(config, lists, users, catalogue):
    """Popularity index, distinct items, whether the next click is listed, and of a simulation the share that would be
    clicked."""
    counts, ending = catalogue.counts, f"@{lists.shape[1]}"
    recommended = metrics.recommendation_counts(lists, len(counts))
    popular = metrics.recommendation_counts(most_popular_lists(users, counts, config.evaluate), len(counts))
    result = {f"clicked{ending}": float((lists == users.next_clicks[:, None]).any(axis=1).mean()),
              f"aggregate_diversity{ending}/full": metrics.aggregate_diversity(recommended),
              f"popularity_index{ending}/full": metrics.popularity_index(recommended, popular, counts)}
    world = config.exposure_world.world_dir
    if world and os.path.isdir(world):
        result |= Judge(simulated_logs.load_truth(world), users, catalogue.original_ids).of_lists(lists)
    return result
