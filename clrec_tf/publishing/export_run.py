"""The stage export: restores the model of a run, chooses its dial, and publishes a bundle of it."""
import dataclasses
from typing import Optional

from absl import logging

from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.data.catalogue import lacks_values
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.catalogue import read_feature_values
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data.schema import Schema
from clrec_tf.errors import DataError
from clrec_tf.evaluation import curve
from clrec_tf.evaluation.popularity import choose_popularity
from clrec_tf.evaluation.popularity import counted_of
from clrec_tf.models.dial import Dial
from clrec_tf.models.trained import Trained
from clrec_tf.publishing.export_bundle import export_bundle
from clrec_tf.publishing.export_bundle import TrainingFacts
from clrec_tf.publishing.item_attributes import attributes_of
from clrec_tf.retrieval.export_folder import export_dir_of
from clrec_tf.retrieval.query_values import QueryValues
from clrec_tf.training.restore import load_trained


def export(config: Config, trained: Optional[Trained] = None) -> str:
    """Publishes the checkpoint `--export_checkpoint` of a run and returns the version's folder.

    Args:
      config: of the command.
      trained: the model of that checkpoint, where it is restored already.

    Raises:
      UserError: a missing run, data that is not the run's, or a check of the bundle that fails; nothing is left then.
    """
    require(config.paths.workdir, "workdir", "export reads the checkpoint of a run")
    data_dir = require(config.paths.data_dir, "data_dir", "export encodes the catalogue of the data set")
    curve.check_settings(config.dial)
    trained = trained or load_trained(config, config.export.export_checkpoint, "export_checkpoint")
    trained.model.user_encoder.refuse_search("export")
    catalogue = read_catalogue(data_dir, trained.schema, trained.manifest)
    if trained.schema.item_rows > trained.schema.num_items + 1:
        logging.warning("clicks on items outside the vocabulary are left out of histories at serving, while evaluation "
                        "used their hash buckets (--oov_buckets): metrics of such users may differ")
    feature_values = read_feature_values(data_dir)
    attributes = attributes_of(config.export, trained.schema, catalogue, feature_values)
    facts = TrainingFacts(trained.checkpoint_hash, trained.step, trained.max_history, trained.run_config)
    return export_bundle(trained.model, trained.schema, catalogue, _held_out(config, data_dir, trained),
                         export_dir_of(config.paths), config.export, facts, config.serve.model_name,
                         _dial(config, data_dir, trained, catalogue), config.serve.max_k, feature_values,
                         query_values(data_dir, trained.schema, trained.model), trained.encoder(catalogue.cold),
                         attributes)


def query_values(data_dir: str, schema: Schema, model) -> QueryValues:
    """What a model reads beside clicked items and times; `DataError` where the values' names are gone."""
    values = read_feature_values(data_dir)
    if model.query_features and lacks_values(schema, values):
        raise DataError(f"--data_dir={data_dir} lacks the names of features' values, by which requests are read: "
                        "prepare the data again")
    events = tuple(name for name, _ in schema.event_weights) if model.uses_events else ()
    return QueryValues(model.query_features, {feature.key: values[feature.key] for feature in model.query_features
                                              if feature.key in values}, events)


def _dial(config, data_dir, trained, catalogue) -> Dial:
    """The popularities of --popularity_range, with a default chosen on validation users unless one is given."""
    settings, counts = config.dial, counted_of(trained, catalogue, data_dir)
    given = Dial(counts.counts, 0.0, *settings.range, counts.source, dict(metric="given"))
    if settings.values is not None and len(settings.values) == 1:
        return dataclasses.replace(given, default=settings.values[0])
    encoder = trained.encoder(catalogue.cold)
    choice = choose_popularity(config, trained, encoder, encoder.compared_items(catalogue.item_rows), catalogue, counts)
    if choice is None:
        return dataclasses.replace(given, chosen_by=dict(metric="none"))
    return dataclasses.replace(given, default=choice.popularity, chosen_by=choice.chosen_by)


def _held_out(config, data_dir, trained) -> EvaluationSet:
    """Users of the test part, or where it has none of the validation part."""
    split = "test" if trained.manifest.records("test") else "valid"
    if not trained.manifest.records(split):
        raise DataError(f"{data_dir} has no test and no validation users, on whom recall and parity are measured: "
                        "prepare with a split that leaves some")
    return read_evaluation_set(data_dir, split, trained.schema, trained.manifest, config.export.export_users,
                               config.paths.seed)
