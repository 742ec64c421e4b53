"""python -m clrec_tf.evaluate: ranking, diversity and popularity metrics of a trained model beside most-popular."""
from absl import logging

from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.evaluation.auc_protocol import auc_metrics
from clrec_tf.evaluation.encode import Encoder
from clrec_tf.evaluation.examples import read_catalogue
from clrec_tf.evaluation.examples import read_evaluation_set
from clrec_tf.evaluation.examples import read_log_items
from clrec_tf.evaluation.figures import save_degree_histogram
from clrec_tf.evaluation.report import UNTRAINED
from clrec_tf.evaluation.report import check_settings
from clrec_tf.evaluation.report import evaluate_vectors
from clrec_tf.evaluation.report import metrics_table
from clrec_tf.evaluation.report import save_metrics
from clrec_tf.evaluation.report import warn_of_large_cutoffs
from clrec_tf.models.build import build_model
from clrec_tf.models.build import load_content
from clrec_tf.training.restore import load_trained


def evaluate(config: Config) -> dict:
    """Evaluates the model of --workdir on --data_dir; writes metrics.json and degree_histogram.png, prints the table.

    Returns:
      The metrics, flat.

    Raises:
      UserError: no run, no data, or flags that do not fit.
    """
    check_settings(config.evaluate.ks, config.evaluate.candidate_sets)
    trained = load_trained(config, config.evaluate.eval_checkpoint)
    data_dir, workdir, seed = config.paths.data_dir, config.paths.workdir, config.paths.seed
    logging.info("evaluating %s (step %d)", trained.checkpoint, trained.step)
    catalogue = read_catalogue(data_dir, trained.schema, trained.manifest)
    warn_of_large_cutoffs(config.evaluate, len(catalogue.counts))
    users = read_evaluation_set(data_dir, config.evaluate.eval_split, trained.schema, trained.manifest,
                                config.evaluate.max_users, seed)

    def metrics_of(model, **options):
        encoder = Encoder(model, trained.model_config.max_history)
        vectors = encoder.user_vectors(users), encoder.compared_items(catalogue.item_rows)
        found = evaluate_vectors(*vectors, users, catalogue.counts, config.evaluate, seed, **options)
        if config.evaluate.auc:
            found |= auc_metrics(*vectors, model.temperature, users, catalogue.counts,
                                 read_log_items(data_dir, trained.schema), seed, **options)
        return found

    result = {"step": trained.step, "checkpoint_hash": trained.checkpoint_hash, **metrics_of(trained.model)}
    if config.evaluate.untrained:
        initial = build_model(trained.model_config, trained.schema, load_content(data_dir, trained.schema), seed)
        result |= {UNTRAINED + name: value for name, value in metrics_of(initial, detailed=False).items()
                   if isinstance(value, float)}
    save_metrics(workdir, result)
    print(metrics_table(result, trained.model.name))
    logging.info("wrote %s/metrics.json and %s", workdir, save_degree_histogram(workdir, result, trained.model.name))
    return result


def main(config: Config):
    """Runs the command."""
    evaluate(config)


if __name__ == "__main__":
    command_line.run(main, uses=("paths", "evaluate"), usage=__doc__)
