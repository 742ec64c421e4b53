"""Every loss with every seed, trained on self-selected ratings and evaluated on randomly exposed ones."""
import os

from absl import logging
import numpy as np

from clrec_tf.config import Config
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.lab.randomised import compared_losses
from clrec_tf.lab.randomised import rating_training
from clrec_tf.lab.randomised.ratings import RatingData
from clrec_tf.lab.randomised.ratings import read_ratings
from clrec_tf.lab.randomised import user_metrics
from clrec_tf.objectives.base import MAX_FULL_SOFTMAX
from clrec_tf.system.versions import versions

METRICS = (*user_metrics.PER_USER, user_metrics.POOLED)


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
    clicks = rating_training.clicks_of(data, config.randomised.click_rating)
    examples = rating_training.make_examples(clicks, clicks.longest())
    exposures = rating_training.exposures_of(data, examples)
    names = compared_losses.chosen(config, exposures)
    pairs = EvaluatedPairs(data, config.randomised.click_rating)
    seeds = range(config.paths.seed, config.paths.seed + config.randomised.randomised_seeds)
    epochs, tried = rating_training.choose_epochs(config, data, clicks, seeds)
    logging.info("epochs of every loss: %d", epochs)
    scores = {name: _trained_scores(config, data, clicks, name, seeds, epochs, pairs) for name in names}
    scores |= pairs.baselines(data, clicks)
    counts = dict(users=data.num_users, items=data.num_items, selected_pairs=len(data.selected.users),
                  training_clicks=len(clicks.users), examples=len(examples["weight"]), **pairs.counts(),
                  dropped_pairs=data.dropped)
    return dict(counts=counts, epochs=epochs, held_out_mrr=tried, seeds=list(seeds),
                propensity_weights=compared_losses.weight_report(config, exposures),
                models=pairs.measured(scores, config.paths.seed), versions=versions())


def _trained_scores(config, data, clicks, loss, seeds, epochs, pairs) -> list[np.ndarray]:
    """Scores [N] of the evaluated pairs by the models of one loss, one of each seed."""
    scores = []
    for seed in seeds:
        training = rating_training.Training(config, data, clicks, loss, seed, epochs)
        training.run(epochs)
        scores.append(training.scores(pairs.users, pairs.items))
    logging.info("%s: trained with %d seeds", loss, len(seeds))
    return scores


class EvaluatedPairs:
    """The pairs evaluated, by user.

    Attributes:
      users: int64 [N] ascending, from 0.
      items: int64 [N], ids from 1.
      positive: bool [N].
    """

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

    def baselines(self, data: RatingData, clicks: rating_training.SelectedClicks) -> dict[str, list[np.ndarray]]:
        """Scores that know nothing of the user; of chance all tie, which gives its expectation."""
        number = lambda ids: np.bincount(ids, minlength=data.num_items + 1)[self.items].astype(float)
        return dict(most_popular=[number(clicks.items)], most_rated=[number(data.selected.items + 1)],
                    random=[np.zeros(len(self.items))])

    def measured(self, scores: dict[str, list[np.ndarray]], seed: int) -> dict[str, dict]:
        """Metrics of every model, see `compare`."""
        users, places = np.unique(self.users, return_inverse=True)
        resamples = user_metrics.resampled_users(len(users), seed)
        measured = {name: user_metrics.measure(of_model, places, self.positive, resamples)
                    for name, of_model in scores.items()}
        base_means, base_resampled = measured[compared_losses.MLE]
        return {name: {metric: dict(
            mean=float(means[metric].mean()), by_seed=means[metric].tolist(),
            interval=user_metrics.interval(resampled[metric]),
            difference=float(means[metric].mean() - base_means[metric].mean()),
            difference_interval=user_metrics.interval(resampled[metric] - base_resampled[metric]),
        ) for metric in METRICS} for name, (means, resampled) in measured.items()}
