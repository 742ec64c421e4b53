"""The command that turns a trained run into a serving bundle."""
import dataclasses
import os

from absl import logging

from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.errors import DataError
from clrec_tf.evaluation import curve
from clrec_tf.models.dial import Dial
from clrec_tf.models.encode import Encoder
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.retrieval.search_vectors import default_count
from clrec_tf.publishing.export_bundle import TrainingFacts
from clrec_tf.publishing.export_bundle import export_bundle
from clrec_tf.training.popularity import choose_popularity
from clrec_tf.training.popularity import counted
from clrec_tf.training.restore import load_trained

USAGE = """python -m clrec_tf.export: exports a trained run: encodes items, builds an index, checks and publishes both.

  python -m clrec_tf.export --data_dir=DATA --workdir=RUN --export_dir=DIR"""


def export(config: Config) -> str:
    """Publishes the checkpoint `--export_checkpoint` of a run and returns the version's folder.

    Raises:
      UserError: a missing run, data that is not the run's, or a check of the bundle that fails; nothing is left then.
    """
    workdir = require(config.paths.workdir, "workdir", "export reads the checkpoint of a run")
    data_dir = require(config.paths.data_dir, "data_dir", "export encodes the catalogue of the data set")
    curve.check_settings(config.dial)
    trained = load_trained(config, config.export.export_checkpoint, "export_checkpoint")
    catalogue = read_catalogue(data_dir, trained.schema, trained.manifest)
    if trained.schema.item_rows > trained.schema.num_items + 1:
        logging.warning("clicks on items outside the vocabulary are left out of histories at serving, while evaluation "
                        "used their hash buckets (--oov_buckets): metrics of such users may differ")
    facts = TrainingFacts(trained.checkpoint_hash, trained.step, trained.max_history,
                          trained.run_config)
    return export_bundle(trained.model, trained.schema, catalogue, _held_out(config, data_dir, trained),
                         config.paths.export_dir or os.path.join(workdir, "export"), config.export, facts,
                         config.serve.model_name, _dial(config, data_dir, trained, catalogue), config.serve.max_k)


def _dial(config, data_dir, trained, catalogue) -> Dial:
    """The popularities of --popularity_range, with a default chosen on validation users unless one is given."""
    settings, of = config.dial, counted(trained, catalogue, data_dir)
    given = Dial(of.counts, 0.0, *settings.range, of.source, dict(metric="given"))
    if settings.values is not None and len(settings.values) == 1:
        return dataclasses.replace(given, default=settings.values[0])
    encoder = Encoder(trained.model, trained.max_history)
    choice = choose_popularity(config, trained, encoder, encoder.compared_items(catalogue.item_rows), catalogue, of,
                               default_count(trained.model.num_intents))
    if choice is None:
        return dataclasses.replace(given, chosen_by=dict(metric="none"))
    return dataclasses.replace(given, default=choice.popularity, chosen_by=choice.chosen_by)


def _held_out(config, data_dir, trained):
    """Users of the test part, or where it has none of the validation part."""
    split = "test" if trained.manifest.records("test") else "valid"
    if not trained.manifest.records(split):
        raise DataError(f"{data_dir} has no test and no validation users, on whom recall and parity are measured: "
                        "prepare with a split that leaves some")
    return read_evaluation_set(data_dir, split, trained.schema, trained.manifest, config.export.export_users,
                               config.paths.seed)


def main(config: Config) -> None:
    """Runs the command."""
    print(export(config))


if __name__ == "__main__":
    command_line.run(main, uses=("paths", "export", "dial", "serve.model_name", "serve.max_k",
                                     "evaluate.filter_seen", "evaluate.list_length"), usage=USAGE)
