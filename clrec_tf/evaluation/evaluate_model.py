"""Everything that an evaluation reports of one trained model: metrics, warnings, tables and pictures, step by step."""
import dataclasses
import functools
import math
from typing import Callable

from absl import logging
import numpy as np

from clrec_tf.config import Config
from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.catalogue import read_feature_values
from clrec_tf.data.catalogue import read_log_items
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.evaluation.auc_protocol import auc_metrics
from clrec_tf.evaluation.auc_protocol import join_of
from clrec_tf.evaluation.cold_references import cold_references
from clrec_tf.evaluation import curve
from clrec_tf.evaluation.curve_figure import curve_table
from clrec_tf.evaluation.curve_figure import save_curve
from clrec_tf.evaluation.figures import save_degree_histogram
from clrec_tf.evaluation.findings import WARNINGS
from clrec_tf.evaluation.findings import warnings_of
from clrec_tf.evaluation.intent_example import example_of
from clrec_tf.evaluation.intent_example import save_example
from clrec_tf.evaluation.intent_figure import save_intents
from clrec_tf.evaluation.intent_report import report_intents
from clrec_tf.evaluation.intent_report import routing_of
from clrec_tf.evaluation.popularity import choose_popularity
from clrec_tf.evaluation.popularity import counted_of
from clrec_tf.evaluation.protocols import vector_scorer
from clrec_tf.evaluation.report import check_model
from clrec_tf.evaluation.report import evaluate_vectors
from clrec_tf.evaluation.report import metrics_table
from clrec_tf.evaluation.report import save_metrics
from clrec_tf.evaluation.report import UNTRAINED
from clrec_tf.evaluation.report import warn_of_large_cutoffs
from clrec_tf.evaluation.strangers import stranger_metrics
from clrec_tf.models.build import build_model
from clrec_tf.models.build import load_content
from clrec_tf.models.encode import Encoder
from clrec_tf.models.trained import Trained

COLLAPSED = 0.9  # share of users with the same selected intent
ONE_SIDED = 0.1  # nats, mean entropy of weights


@dataclasses.dataclass(frozen=True)
class _Data:
    """What is evaluated on: V items, U users, and how many items the log has (0 where no AUC is asked for)."""
    catalogue: Catalogue
    users: EvaluationSet
    log_items: int


@dataclasses.dataclass(frozen=True)
class _Encoded:
    """A model, its encoder, and the catalogue's vectors [V,d] by it, ready to be compared."""
    model: object
    encoder: Encoder
    items: np.ndarray

    def vectors(self, users: EvaluationSet, intents: int) -> tuple[np.ndarray, np.ndarray]:
        """The vectors that rankings search, [U,d] or [U,K,d], and the items' [V,d]."""
        return self.encoder.searched(users, intents), self.items


def evaluate_model(trained: Trained, config: Config, points: dict) -> dict:
    """Evaluates a model on --data_dir; writes metrics and pictures into --workdir, and prints the tables.

    A model of several intents also gets the metrics of `intent_report`, and one user as intents.png and intents.json.
    One that is `target_aware` gets its AUCs alone.

    Args:
      trained: the model.
      config: settings of the evaluation.
      points: other systems in the picture of the dial's curve, see `curve_figure.read_points`.

    Returns:
      The metrics, flat.

    Raises:
      UserError: no data, or flags that do not fit the model.
    """
    settings = config.evaluate
    check_model(settings, trained.settings.encoder_class, trained.model.num_intents)
    logging.info("evaluating %s (step %d)", trained.checkpoint, trained.step)
    data = _read(config, trained)
    encoded = _encoded(trained.encoder(data.catalogue.cold), data)
    known = {"step": trained.step, "checkpoint_hash": trained.checkpoint_hash}
    initial = functools.cache(lambda: _encoded(
        Encoder(_initial(config, trained), trained.max_history, data.catalogue.cold), data))
    if trained.model.target_aware:
        return _pairs_alone(known, encoded, initial, data, config)
    result = known | _metrics_of(encoded, data, config)
    searched = encoded.encoder.searched(data.users, settings.eval_intents)
    result |= cold_references(vector_scorer(searched, encoded.items, trained.model.score_temperature), data.users,
                              data.catalogue, trained.schema.features, settings, config.paths.seed)
    result |= _dialled(trained, encoded, searched, data, config)
    if settings.untrained:
        references = _metrics_of(initial(), data, config, detailed=False)
        result |= {UNTRAINED + name: value for name, value in references.items() if isinstance(value, float)}
    warnings = warnings_of(result, data.users, settings,
                           trained=lambda sample: encoded.vectors(sample, settings.eval_intents),
                           untrained=lambda sample: initial().vectors(sample, settings.eval_intents))
    save_metrics(config.paths.workdir, result | {WARNINGS: warnings})
    _warn_of_generalists(result)
    print(metrics_table(result, trained.model.name), *(f"warning: {warning}" for warning in warnings), sep="\n")
    print(curve_table(result, settings.ks, settings.list_length))
    _draw(result, encoded, trained, data, config, points)
    return result | {WARNINGS: warnings}


def _read(config, trained) -> _Data:
    """The data of --data_dir, users of --eval_split."""
    data_dir, settings = config.paths.data_dir, config.evaluate
    catalogue = read_catalogue(data_dir, trained.schema, trained.manifest)
    if not trained.model.target_aware:
        warn_of_large_cutoffs(settings, len(catalogue.counts))
    users = read_evaluation_set(data_dir, settings.eval_split, trained.schema, trained.manifest, settings.max_users,
                                config.paths.seed)
    return _Data(catalogue, users, read_log_items(data_dir, trained.schema) if settings.auc else 0)


def _encoded(encoder: Encoder, data) -> _Encoded:
    return _Encoded(encoder.model, encoder, encoder.compared_items(data.catalogue.item_rows))


def _initial(config, trained):
    """The model as it was before training, by the run's seed, not that of the evaluation."""
    seed = trained.run_config.get("paths", {}).get("seed", config.paths.seed)
    return build_model(trained.settings, trained.schema, load_content(config.paths.data_dir, trained.schema), seed)


def _metrics_of(encoded: _Encoded, data: _Data, config, **options) -> dict:
    """All metrics of one model; `options` of `evaluate_vectors`."""
    settings, seed, counts, model = config.evaluate, config.paths.seed, data.catalogue.counts, encoded.model
    intents = encoded.encoder.user_intents(data.users)
    vectors = intents[0][:, :settings.eval_intents or model.served_intents]
    result = evaluate_vectors(vectors, encoded.items, data.users, counts, settings, seed, model.score_temperature,
                              cold=data.catalogue.cold, **options)
    if model.num_intents > 1:
        result |= {"intents_searched": vectors.shape[1]}
    if model.routes_by_category:
        result |= report_intents(intents, routing_of(model, encoded.encoder, data.catalogue), encoded.items,
                                 model.temperature, data.users, counts, settings, seed, **options)
    return result | (_aucs(vectors, encoded, data, config, **options) if settings.auc else {})


def _aucs(vectors: np.ndarray, encoded: _Encoded, data: _Data, config, **options) -> dict:
    """`auc_metrics` of users' vectors, or slots."""
    return auc_metrics(vectors, encoded.items, encoded.model.temperature, data.users, data.catalogue.counts,
                       data.log_items, config.paths.seed, join=join_of(encoded.model), **options)


def _pairs_alone(known: dict, encoded: _Encoded, initial: Callable, data: _Data, config) -> dict:
    """`evaluate_model` of a model that is `target_aware`: its AUCs, beside `known`."""
    def aucs(encoded, **options):
        return _aucs(encoded.encoder.scored(data.users), encoded, data, config, **options)

    result = known | dict(split=config.evaluate.eval_split, users=data.users.num_users, items=len(encoded.items))
    result |= aucs(encoded)
    if config.evaluate.untrained:
        result |= {UNTRAINED + name: value for name, value in aucs(initial(), detailed=False).items()
                   if isinstance(value, float)}
    save_metrics(config.paths.workdir, result)
    print(metrics_table(result, encoded.model.name))
    return result


def _dialled(trained, encoded: _Encoded, searched: np.ndarray, data: _Data, config) -> dict:
    """The curve over --popularity by the vectors `searched`, what is known of strangers, and the value that is best on
    validation users, which export chooses too unless --eval_intents says less here."""
    clicks, counts = counted_of(trained, data.catalogue, config.paths.data_dir), data.catalogue.counts
    result = stranger_metrics(encoded.encoder, encoded.items, clicks.coordinate, data.users, counts, config.evaluate,
                              config.paths.seed)
    result |= curve.named(curve.curve(
        searched, encoded.items, clicks.coordinate, data.users, counts, config.evaluate, config.paths.seed,
        curve.popularities(config.dial), intervals=False, temperature=encoded.model.score_temperature,
        cold=data.catalogue.cold))
    choice = choose_popularity(config, trained, encoded.encoder, encoded.items, data.catalogue, clicks,
                               config.evaluate.eval_intents)
    return result | {"popularity": choice.popularity if choice else 0.0, "popularity_of": clicks.source}


def _warn_of_generalists(result):
    """Says where nearly all users have the same heaviest intent."""
    share = result.get("intents/share_max/selected", 0.0)
    if share > COLLAPSED:
        logging.warning(
            "one intent's vector is the heaviest of %.0f %% of the users, so weights say little and rankings by one "
            "vector are those of a generalist: search several (--eval_intents, retrieve --intents), train with "
            "--selection_weight=1, or use --model=clrec where the next click's intent cannot be foreseen", 100 * share)
    entropy = result.get("intents/entropy", math.inf)
    if entropy < ONE_SIDED:
        logging.warning(
            "intents/entropy is %.3f nats: one vector of each user has nearly all the weight, so weights say little of "
            "the others; train with --selection_weight=1 (--loss=contrastive: and --multi_objective=gated), or use "
            "--model=clrec", entropy)


def _draw(result, encoded: _Encoded, trained, data: _Data, config, points):
    """Writes the pictures into --workdir, and says where everything lies."""
    settings, workdir, name = config.evaluate, config.paths.workdir, trained.model.name
    pictures = [save_degree_histogram(workdir, result, name),
                save_curve(workdir, result, settings.ks, settings.list_length, name, points)]
    if trained.model.routes_by_category:
        example = example_of(trained.model, encoded.encoder, encoded.items, data.users, data.catalogue,
                             read_feature_values(config.paths.data_dir), trained.max_history, settings,
                             config.paths.seed)
        pictures += [save_intents(workdir, example), save_example(workdir, example)]
    logging.info("wrote %s/metrics.json, %s", workdir, ", ".join(pictures))
