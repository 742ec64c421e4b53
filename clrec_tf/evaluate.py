"""python -m clrec_tf.evaluate: ranking, diversity and popularity metrics of a trained model beside most-popular."""
from absl import logging

from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.catalogue import read_feature_values
from clrec_tf.data.catalogue import read_log_items
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.evaluation.auc_protocol import auc_metrics
from clrec_tf.evaluation import curve
from clrec_tf.evaluation.curve_figure import curve_table
from clrec_tf.evaluation.curve_figure import read_points
from clrec_tf.evaluation.curve_figure import save_curve
from clrec_tf.evaluation.figures import save_degree_histogram
from clrec_tf.evaluation.findings import WARNINGS
from clrec_tf.evaluation.findings import warnings_of
from clrec_tf.evaluation.intent_example import example_of
from clrec_tf.evaluation.intent_figure import save_intents
from clrec_tf.evaluation.intent_report import intent_metrics
from clrec_tf.evaluation.intent_report import routing_of
from clrec_tf.evaluation.report import check_intents
from clrec_tf.evaluation.report import check_settings
from clrec_tf.evaluation.report import evaluate_vectors
from clrec_tf.evaluation.report import metrics_table
from clrec_tf.evaluation.report import save_metrics
from clrec_tf.evaluation.report import UNTRAINED
from clrec_tf.evaluation.report import warn_of_large_cutoffs
from clrec_tf.models.build import build_model
from clrec_tf.models.build import load_content
from clrec_tf.models.encode import Encoder
from clrec_tf.retrieval.search_vectors import default_count
from clrec_tf.training.popularity import choose_popularity
from clrec_tf.training.popularity import counted
from clrec_tf.training.restore import load_trained

COLLAPSED = 0.9  # share of users with the same selected intent


def evaluate(config: Config) -> dict:
    """Evaluates the model of --workdir on --data_dir; writes metrics.json and degree_histogram.png, prints the table.

    A model of several intents also gets the metrics of `intent_report`, and the picture intents.png of one user.

    Returns:
      The metrics, flat.

    Raises:
      UserError: no run, no data, or flags that do not fit.
    """
    check_settings(config.evaluate.ks, config.evaluate.candidate_sets)
    curve.check_settings(config.dial)
    points = read_points(config.dial.curve_points)
    trained = load_trained(config, config.evaluate.eval_checkpoint)
    check_intents(config.evaluate, trained.model.num_intents)
    data_dir, workdir, seed = config.paths.data_dir, config.paths.workdir, config.paths.seed
    logging.info("evaluating %s (step %d)", trained.checkpoint, trained.step)
    catalogue = read_catalogue(data_dir, trained.schema, trained.manifest)
    warn_of_large_cutoffs(config.evaluate, len(catalogue.counts))
    users = read_evaluation_set(data_dir, config.evaluate.eval_split, trained.schema, trained.manifest,
                                config.evaluate.max_users, seed)
    log_items = read_log_items(data_dir, trained.schema) if config.evaluate.auc else 0
    encoder = Encoder(trained.model, trained.max_history)
    items = encoder.compared_items(catalogue.item_rows)
    result = {"step": trained.step, "checkpoint_hash": trained.checkpoint_hash,
              **_metrics_of(trained.model, encoder, items, users, catalogue, config, log_items)}
    result |= _dialled(trained, encoder, items, users, catalogue, config)
    if config.evaluate.untrained:
        initial = _initial(config, trained)
        untrained = Encoder(initial, trained.max_history)
        found = _metrics_of(initial, untrained, untrained.compared_items(catalogue.item_rows), users, catalogue, config,
                            log_items, detailed=False)
        result |= {UNTRAINED + name: value for name, value in found.items() if isinstance(value, float)}

    def of_initial(sample):
        untrained = Encoder(_initial(config, trained), trained.max_history)
        return _searched(untrained, sample, config.evaluate), untrained.compared_items(catalogue.item_rows)

    warnings = warnings_of(result, users, config.evaluate,
                           lambda sample: (_searched(encoder, sample, config.evaluate), items), of_initial)
    save_metrics(workdir, result | {WARNINGS: warnings})
    if result.get("intents/share_max/selected", 0.0) > COLLAPSED:
        logging.warning(
            "one intent's vector is the heaviest of %.0f %% of the users, so weights say little and rankings by one "
            "vector are those of a generalist: search several (--eval_intents, retrieve --intents), train with "
            "--selection_weight=1, or use --model=clrec where the next click's intent cannot be foreseen",
            100 * result["intents/share_max/selected"])
    print(metrics_table(result, trained.model.name), *(f"warning: {warning}" for warning in warnings), sep="\n")
    print(curve_table(result, config.evaluate.ks, config.evaluate.list_length))
    pictures = [save_degree_histogram(workdir, result, trained.model.name),
                save_curve(workdir, result, config.evaluate.ks, config.evaluate.list_length, trained.model.name,
                           points)]
    if trained.model.num_intents > 1:
        example = example_of(trained.model, encoder, items, users, catalogue, read_feature_values(data_dir),
                             trained.max_history, config.evaluate, seed)
        pictures.append(save_intents(workdir, example))
    logging.info("wrote %s/metrics.json, %s", workdir, ", ".join(pictures))
    return result | {WARNINGS: warnings}


def _initial(config, trained):
    """The model as it was before training."""
    return build_model(trained.settings, trained.schema, load_content(config.paths.data_dir, trained.schema),
                       config.paths.seed)


def _dialled(trained, encoder, items, users, catalogue, config):
    """The curve over --popularity, and the value that is best on validation users, as export chooses it."""
    of = counted(trained, catalogue, config.paths.data_dir)
    result = curve.named(curve.curve(_searched(encoder, users, config.evaluate), items, of.coordinate, users,
                                     catalogue.counts, config.evaluate, config.paths.seed,
                                     curve.popularities(config.dial), intervals=False))
    choice = choose_popularity(config, trained, encoder, items, catalogue, of, default_count(trained.model.num_intents))
    return result | {"popularity": choice.popularity if choice else 0.0, "popularity_of": of.source}


def _searched(encoder, users, settings):
    """The vectors that rankings search, [U,d] or [U,K,d]."""
    if settings.eval_intents > 1:
        return encoder.user_intents(users, settings.eval_intents)[0]
    return encoder.user_vectors(users)


def _metrics_of(model, encoder, items, users, catalogue, config, log_items, **options):
    """All metrics of one model with item vectors `items` [V,d]; `options` of `evaluate_vectors`."""
    settings, seed, counts = config.evaluate, config.paths.seed, catalogue.counts
    vectors = _searched(encoder, users, settings)
    first = vectors[:, 0] if vectors.ndim == 3 else vectors
    result = evaluate_vectors(vectors, items, users, counts, settings, seed, **options)
    if model.num_intents > 1:
        result |= {"intents_searched": settings.eval_intents}
        result |= intent_metrics(encoder, routing_of(model, encoder, catalogue), items, users, counts, settings, seed,
                                 **options)
    if settings.auc:
        result |= auc_metrics(first, items, model.temperature, users, counts, log_items, seed, **options)
    return result


def main(config: Config):
    """Runs the command."""
    evaluate(config)


if __name__ == "__main__":
    command_line.run(main, uses=("paths", "evaluate", "dial"), usage=__doc__)
