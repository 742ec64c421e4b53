"""python -m clrec_tf.randomised_exposure: trains on what users chose to rate, evaluates on what was drawn for them.

  python -m clrec_tf.randomised_exposure --flagfile=configs/coat.flags --selected_ratings=train.ascii \\
      --random_ratings=test.ascii --propensity_matrix=propensities.ascii --item_vectors=item_features.ascii

Every loss trains the same towers with the same number of negatives, over several seeds. The random part has no exposure
bias, so its metrics need no correction; no setting is chosen on it. Beside the losses: most-popular (training clicks),
most-rated, and chance. Intervals are of resampled users, those of differences to mle are paired."""
from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.data.schema import save_json
from clrec_tf.lab.children import quiet_about_functions
from clrec_tf.lab.randomised import compared_losses
from clrec_tf.lab.randomised.comparison import compare
from clrec_tf.lab.randomised.comparison import METRICS
from clrec_tf.lab.text_tables import print_table
from clrec_tf.training.threads import set_threads


def show(comparison: dict) -> None:
    """Prints counts, and two tables: figures, and differences to mle."""
    print("  ".join(f"{name} {value:,}" for name, value in comparison["counts"].items()))
    print(f"epochs {comparison['epochs']}", *(f"MRR after {number}: {mrr:.4f}" for number, mrr in (
        comparison["held_out_mrr"] or {}).items()), sep="  ")
    for name, report in comparison["propensity_weights"].items():
        print(f"weights of {name}: effective sample size {report['effective_share']:.1%} of the examples, clipped "
              f"{report['clipped_share']:.1%}")
    cell = lambda value, bounds, sign: f"{value:{sign}.4f} ({bounds[0]:{sign}.4f} – {bounds[1]:{sign}.4f})"
    models, count = comparison["models"], len(comparison["seeds"])
    print_table((f"mean of {count} seeds (95 %)", *METRICS), [
        (name, *(cell(figures[metric]["mean"], figures[metric]["interval"], "") for metric in METRICS))
        for name, figures in models.items()], names=1)
    print_table(("minus mle (95 %)", *METRICS), [
        (name, *(cell(figures[metric]["difference"], figures[metric]["difference_interval"], "+")
                 for metric in METRICS))
        for name, figures in models.items() if name != compared_losses.MLE], names=1)


def main(config: Config):
    """Runs the command."""
    set_threads(config.train)
    quiet_about_functions()
    comparison = compare(config)
    show(comparison)
    if config.benchmark.json:
        save_json(config.benchmark.json, comparison)


if __name__ == "__main__":
    command_line.run(main, uses=("paths", "randomised", "benchmark", "model", "loss", "train"), usage=__doc__)
