"""Validation during training, early stopping, and the best checkpoint."""
import dataclasses
import math
import re
from typing import Optional

from absl import logging
import numpy as np

from clrec_tf.config import Config
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.catalogue import read_log_items
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.errors import UserError
from clrec_tf.evaluation.auc_protocol import auc_metrics
from clrec_tf.evaluation.auc_protocol import join_of
from clrec_tf.evaluation.curve import ranking_metric
from clrec_tf.evaluation.popularity import counted
from clrec_tf.evaluation.report import evaluate_vectors
from clrec_tf.evaluation.report import warn_of_large_cutoffs
from clrec_tf.models import dial
from clrec_tf.models.encode import Encoder
from clrec_tf.settings.dial import MOST

AUC = "auc"
_AUC_METRIC = re.compile(r"auc/(?:coin_flip|paired)(?:_rebiased)?")


class Validator:
    """Scores the model on validation users.

    Args:
      config: settings; `train.validation_metric` decides what is computed.
      schema, manifest: of the data.
      model: a `CLRec`, whose current values are used.

    Raises:
      UserError: no metric of that name, or none that the user encoder can have.
    """

    def __init__(self, config: Config, schema, manifest, model):
        cutoff, candidates = metric_of(config)
        self._seed, self._metric = config.paths.seed, config.train.validation_metric
        self._config = dataclasses.replace(config.evaluate, ks=(cutoff,), eval_split="valid",
                                           candidate_sets=(candidates,), auc=candidates == AUC)
        self._catalogue = read_catalogue(config.paths.data_dir, schema, manifest)
        if self._metric.startswith(("hr@", "recall@")):  # of which every checkpoint has the same then
            warn_of_large_cutoffs(self._config, len(self._catalogue.counts), "validation_metric", self._metric)
        self._users = read_evaluation_set(
            config.paths.data_dir, "valid", schema, manifest, config.train.validation_users, self._seed)
        self._log_items = read_log_items(config.paths.data_dir, schema) if self._config.auc else 0
        self._model, self._encoder = model, Encoder(model, config.model.max_history, self._catalogue.cold)
        self._ranking, self._popularity = ranking_name(self._metric)
        if self._popularity:  # else no impressions need be read
            self._coordinate = counted({"loss": config.loss.loss, **config.plugs}, self._catalogue, manifest,
                                       config.paths.data_dir, model.temperature,
                                       schema.features if model.id_dropout else None).coordinate

    def metrics(self) -> dict:
        """{name: value} of the current model."""
        items, counts = self._encoder.compared_items(self._catalogue.item_rows), self._catalogue.counts
        if not self._config.auc:
            return self._rankings(self._encoder.searched(self._users), items)
        metrics = auc_metrics(self._encoder.scored(self._users), items, self._model.temperature, self._users, counts,
                              self._log_items, self._seed, detailed=False, join=join_of(self._model))
        if self._metric not in metrics:
            raise UserError(f"--validation_metric={self._metric}: the coins of all {self._users.num_users} validation "
                            "users fell the same way: use auc/paired, or validate more users")
        return metrics

    def _rankings(self, users, items):
        """{name: value} of rankings, at the popularity that --validation_metric names, if any."""
        if self._popularity:
            users = dial.at_popularity(dial.with_coordinate(users, 0.0), self._popularity)
            items = dial.with_coordinate(items, self._coordinate)
        metrics = evaluate_vectors(users, items, self._users, self._catalogue.counts, self._config, self._seed,
                                   self._model.score_temperature, detailed=False)
        return {name + self._metric.removeprefix(self._ranking): value for name, value in metrics.items()}


def metric_parts(name: str) -> tuple[str, str]:
    """Cut-off and candidate set of --validation_metric, or `AUC` for the latter; `UserError` where it names none."""
    ranking, popularity = ranking_name(name)
    parts = ranking_metric(ranking)
    if popularity is None or (parts is None and not _AUC_METRIC.fullmatch(name)):
        raise UserError(f"--validation_metric={name}: must be hr@K, ndcg@K or mrr, then /full, /pop100 or /uniform100, "
                        f"or recall@K/full, such as hr@10/full, and if wanted /popularity=α, a number from -{MOST} "
                        f"to {MOST}; or auc/paired, auc/coin_flip, or these with _rebiased")
    return parts or ("10", AUC)


def metric_of(config: Config) -> tuple[str, str]:
    """`metric_parts` of a training; `UserError` too where it ranks a catalogue that the users have no vector for."""
    name = config.train.validation_metric
    parts = metric_parts(name)
    if parts[1] != AUC:
        config.encoder_class.refuse_search(
            f"--validation_metric={name}", "validate by --validation_metric=auc/paired, or not at all "
            "(--validate_every=0)")
    return parts


def ranking_name(metric: str) -> tuple[str, Optional[float]]:
    """A metric without its popularity, and that: 0 where it has none, None where it is no number of the dial."""
    ranking, _, text = metric.partition("/popularity=")
    try:
        popularity = float(text or "0") if text or ranking == metric else math.nan
    except ValueError:
        popularity = math.nan
    return ranking, popularity if abs(popularity) <= MOST else None


def validation_steps(epoch_ends: list[int], every: float) -> list[int]:
    """Steps after which to validate: every `every` epochs, and at the end; none if `every` is 0."""
    if not every or not epoch_ends:
        return []
    epochs = len(epoch_ends)
    marks = np.arange(1, int(epochs / every) + 1) * every
    steps = np.interp(marks, np.arange(epochs + 1), [0] + epoch_ends).round().astype(int)
    return sorted({*map(int, steps), epoch_ends[-1]} - {0})


def note_validation(progress, value: float, patience: int) -> tuple[bool, bool]:
    """Updates the progress with one validation's metric.

    Returns:
      (whether it is the best so far, whether training should stop).
    """
    progress.last_validation_step = progress.step
    if progress.best_metric is None or value > progress.best_metric:
        progress.best_metric, progress.best_step, progress.validations_since_best = value, progress.step, 0
        return True, False
    progress.validations_since_best += 1
    stop = bool(patience) and progress.validations_since_best >= patience
    if stop:
        logging.info("early stopping at step %d: no better validation since step %d", progress.step, progress.best_step)
    return False, stop
