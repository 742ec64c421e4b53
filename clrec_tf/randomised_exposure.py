"""python -m clrec_tf.randomised_exposure: trains on what users chose to rate, evaluates on what was drawn for them.

  python -m clrec_tf.randomised_exposure --flagfile=configs/coat.flags --selected_ratings=train.ascii \\
      --random_ratings=test.ascii --propensity_matrix=propensities.ascii --item_vectors=item_features.ascii

Every loss trains the same towers with the same number of negatives, over several seeds. The random part has no exposure
bias, so its metrics need no correction; no setting is chosen on it. Beside the losses: most-popular (training clicks),
most-rated, and chance. Intervals are of resampled users, those of differences to mle are paired."""
import os

from absl import logging
import numpy as np

from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.data.schema import save_json
from clrec_tf.debias_proof import print_table
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks.children import quiet_about_functions
from clrec_tf.lab.randomised import losses
from clrec_tf.lab.randomised import metrics
from clrec_tf.lab.randomised.ratings import RatingData
from clrec_tf.lab.randomised.ratings import read_ratings
from clrec_tf.lab.randomised import training
from clrec_tf.objectives.build import MAX_FULL_SOFTMAX
from clrec_tf.system.versions import versions
from clrec_tf.training.threads import set_threads

METRICS = (*metrics.PER_USER, metrics.POOLED)


def compare(config: Config) -> dict:
    """Reads, trains with every loss and seed, evaluates.

    Returns:
      `counts` of the data, `epochs` and `held_out_mrr` by which they were chosen, `propensity_weights`, `seeds`,
      `models`: name -> metric -> `mean` over seeds, `interval`, `by_seed`, and of the difference to mle
      `difference` and `difference_interval`; `settings`, `versions`.

    Raises:
      UserError, DataError: settings or files that do not fit.
    """
    path = config.benchmark.json
    if path and not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise UserError(f"--json={path}: its folder does not exist; make it, or choose another place")
    data = read_ratings(config.randomised)
    if data.num_items > MAX_FULL_SOFTMAX:
        raise UserError(f"--selected_ratings has {data.num_items} items; mle scores every item in every step, which is "
                        f"done for {MAX_FULL_SOFTMAX} at most: give a part of the items")
    clicks = training.clicks_of(data, config.randomised.click_rating)
    examples = training.make_examples(clicks, clicks.longest())
    exposures = training.exposures_of(data, examples)
    names = losses.chosen(config, exposures)
    test = TestPairs(data, config.randomised.click_rating)
    seeds = range(config.paths.seed, config.paths.seed + config.randomised.randomised_seeds)
    epochs, tried = training.choose_epochs(config, data, clicks, seeds)
    logging.info("epochs of every loss: %d", epochs)
    runs = {}
    for name in names:
        runs[name] = []
        for seed in seeds:
            training = training.Training(config, data, clicks, name, seed, epochs)
            training.run(epochs)
            runs[name].append(training.scores(test.users, test.items))
        logging.info("%s: trained with %d seeds", name, len(seeds))
    runs |= test.baselines(data, clicks)
    counts = dict(users=data.num_users, items=data.num_items, selected_pairs=len(data.selected.users),
                  training_clicks=len(clicks.users), examples=len(examples["weight"]), **test.counts(),
                  dropped_pairs=data.dropped)
    return dict(counts=counts, epochs=epochs, held_out_mrr=tried, seeds=list(seeds),
                propensity_weights=losses.weight_report(config, exposures),
                models=test.measured(runs, config.paths.seed), versions=versions())


class TestPairs:
    """The pairs evaluated, by user.

    Attributes:
      users: int64 [N] ascending, from 0.
      items: int64 [N], ids from 1.
      positive: bool [N].
    """
    __test__ = False  # not for pytest, in spite of its name

    def __init__(self, data: RatingData, click_rating: float):
        order = np.argsort(data.random.users, kind="stable")
        self.users, self.items = data.random.users[order], data.random.items[order] + 1
        self.positive = data.random.ratings[order] >= click_rating
        if self.positive.all() or not self.positive.any():
            raise DataError(f"--random_ratings: {'all' if self.positive.all() else 'no'} ratings are clicks, at least "
                            f"--click_rating={click_rating:g}: choose another --click_rating")

    def counts(self) -> dict[str, int]:
        """Sizes."""
        return dict(test_pairs=len(self.users), test_positives=int(self.positive.sum()),
                    test_users_with_positives=len(np.unique(self.users[self.positive])))

    def baselines(self, data: RatingData, clicks: training.Clicks) -> dict[str, list[np.ndarray]]:
        """Scores that know nothing of the user; of chance all tie, which gives its expectation."""
        number = lambda ids: np.bincount(ids, minlength=data.num_items + 1)[self.items].astype(float)
        return dict(most_popular=[number(clicks.items)], most_rated=[number(data.selected.items + 1)],
                    random=[np.zeros(len(self.items))])

    def measured(self, runs: dict[str, list[np.ndarray]], seed: int) -> dict[str, dict]:
        """Metrics of every model, see `compare`."""
        users, found = np.unique(self.users, return_inverse=True)
        resamples = metrics.resampled_users(len(users), seed)
        measured = {name: metrics.measure(scores, found, self.positive, resamples)
                    for name, scores in runs.items()}
        base_means, base_resampled = measured[losses.MLE]
        return {name: {metric: dict(
            mean=float(means[metric].mean()), by_seed=means[metric].tolist(),
            interval=metrics.interval(resampled[metric]),
            difference=float(means[metric].mean() - base_means[metric].mean()),
            difference_interval=metrics.interval(resampled[metric] - base_resampled[metric]),
        ) for metric in METRICS} for name, (means, resampled) in measured.items()}


def show(found: dict) -> None:
    """Prints counts, and two tables: figures, and differences to mle."""
    print("  ".join(f"{name} {value:,}" for name, value in found["counts"].items()))
    print(f"epochs {found['epochs']}", *(f"MRR after {number}: {mrr:.4f}" for number, mrr in (
        found["held_out_mrr"] or {}).items()), sep="  ")
    for name, report in found["propensity_weights"].items():
        print(f"weights of {name}: effective sample size {report['effective_share']:.1%} of the examples, clipped "
              f"{report['clipped_share']:.1%}")
    cell = lambda value, bounds, sign: f"{value:{sign}.4f} ({bounds[0]:{sign}.4f} – {bounds[1]:{sign}.4f})"
    models, count = found["models"], len(found["seeds"])
    print_table((f"mean of {count} seeds (95 %)", *METRICS), [
        (name, *(cell(of[m]["mean"], of[m]["interval"], "") for m in METRICS)) for name, of in models.items()], names=1)
    print_table(("minus mle (95 %)", *METRICS), [
        (name, *(cell(of[m]["difference"], of[m]["difference_interval"], "+") for m in METRICS))
        for name, of in models.items() if name != losses.MLE], names=1)


def main(config: Config):
    """Runs the command."""
    set_threads(config.train)
    quiet_about_functions()
    found = compare(config)
    show(found)
    if config.benchmark.json:
        save_json(config.benchmark.json, found)


if __name__ == "__main__":
    command_line.run(main, uses=("paths", "randomised", "benchmark", "model", "loss", "train"), usage=__doc__)
