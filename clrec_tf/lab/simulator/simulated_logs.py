"""The files of a sequential simulation: its logs, as a recommender would have them, and the truth behind them.

A folder holds::

    clicks.csv           user_id, item_id, timestamp, and shelf if there are several; a user's together and in time
                         order
    impressions.parquet  the same columns and `clicked`, 0 or 1; a click stands here too, with the same time stamp
    items.tsv            item_id, title, category, seller, gender
    truth.npz            the arrays of `Truth`
    world.json           settings, seed and counts

User ids are 1..U, item ids i000001, i000002, …; time stamps are seconds since 1970 UTC.
"""
import dataclasses
import os
import zipfile

import numpy as np
import polars as pl

from clrec_tf.config import ExposureWorldConfig
from clrec_tf.data.schema import save_json
from clrec_tf.errors import DataError
from clrec_tf.evaluation.metrics import gini
from clrec_tf.lab.simulator.sequential import GENDERS
from clrec_tf.lab.simulator.sequential import Simulation
from clrec_tf.lab.simulator.visits import INTENTS
from clrec_tf.lab.simulator.visits import is_weekend
from clrec_tf.preparation.synthetic_log import CATEGORIES

CLICKS_FILE, IMPRESSIONS_FILE, ITEMS_FILE = "clicks.csv", "impressions.parquet", "items.tsv"
TRUTH_FILE, FACTS_FILE = "truth.npz", "world.json"


@dataclasses.dataclass(frozen=True)
class Truth:
    """What an evaluator may know and no recommender. Letters: X contexts, V items, U users, N clicks.

    Attributes:
      item_ids: [V] strings, the order of the columns below.
      item_intent: [V] int64.
      relevance: [X,V] float64, c(x,y), the chance that y is clicked when it is shown.
      exposure: [X,V] float64, q(y|x), the chance that an impression is y.
      context_intent: [X] int64.
      context_type: [X] int64.
      user_type: [U] int64, of users 1..U: who shares a type shares the lasting taste.
      click_user: [N] int64, user ids, ascending.
      click_timestamp: [N] int64, seconds, ascending for each user.
      click_context: [N] int64, in which each click of the log was made.
    """
    item_ids: np.ndarray
    item_intent: np.ndarray
    relevance: np.ndarray
    exposure: np.ndarray
    context_intent: np.ndarray
    context_type: np.ndarray
    user_type: np.ndarray
    click_user: np.ndarray
    click_timestamp: np.ndarray
    click_context: np.ndarray

    def contexts_at(self, user_id: np.ndarray, timestamp: np.ndarray) -> np.ndarray:
        """Contexts [B] of the clicks that users [B] (ids of the log) made at these seconds [B].

        Raises:
          DataError: there is no such click.
        """
        user_id, timestamp = np.asarray(user_id, np.int64), np.asarray(timestamp, np.int64)
        # All time stamps lie in one range, so that user and time make one ascending key.
        start, span = self.click_timestamp.min(), np.ptp(self.click_timestamp) + 1
        place = np.searchsorted(self.click_user * span + self.click_timestamp - start,
                                user_id * span + timestamp - start)
        place = np.minimum(place, len(self.click_user) - 1)
        wrong = np.flatnonzero((self.click_user[place] != user_id) | (self.click_timestamp[place] != timestamp))
        if len(wrong):
            raise DataError(f"user {user_id[wrong[0]]} has no click at timestamp {timestamp[wrong[0]]} in this world "
                            f"({len(wrong)} such of {len(user_id)}): evaluate on the log of the same folder")
        return self.click_context[place]


def oracle_distribution(truth: Truth, context: np.ndarray) -> np.ndarray:
    """o(y|x) = c(x,y)/Σ_y' c(x,y'), [B,V], for contexts [B]: what to show without bias."""
    relevance = truth.relevance[context]
    return relevance / relevance.sum(axis=1, keepdims=True)


def click_distribution(truth: Truth, context: np.ndarray) -> np.ndarray:
    """p_data(y|x) = q(y|x)·c(x,y)/Σ_y' q(y'|x)·c(x,y'), [B,V], for contexts [B]: what the log's clicks follow."""
    clicks = truth.exposure[context] * truth.relevance[context]
    return clicks / clicks.sum(axis=1, keepdims=True)


def write(simulation: Simulation, config: ExposureWorldConfig, seed: int, folder: str) -> dict:
    """Writes all files into an existing folder; equal simulations give equal bytes.

    Returns:
      The content of world.json.
    """
    shown, catalogue = simulation.impressions, simulation.catalogue
    ids = pl.Series("item_id", [f"i{number:06d}" for number in range(1, len(catalogue.category) + 1)])
    log = pl.DataFrame({
        "user_id": simulation.visits.user[shown.visit] + 1, "item_id": ids.gather(shown.item),
        "timestamp": simulation.visits.seconds[shown.visit] + shown.place, "clicked": shown.clicked.astype(np.int8)})
    if config.exposure_shelves > 1:
        log = log.with_columns(shelf=pl.Series([f"s{number + 1}" for number in range(config.exposure_shelves)]).gather(
            simulation.shelf[shown.visit]))
    clicks = log.filter(pl.col("clicked") == 1).drop("clicked")
    log.write_parquet(os.path.join(folder, IMPRESSIONS_FILE))
    clicks.write_csv(os.path.join(folder, CLICKS_FILE))
    _items(catalogue, ids).write_csv(os.path.join(folder, ITEMS_FILE), separator="\t")
    intent, kind = np.divmod(np.arange(len(simulation.relevance)), len(simulation.type_taste))
    intent %= INTENTS  # shelf after shelf
    np.savez(os.path.join(folder, TRUTH_FILE), **dataclasses.asdict(Truth(
        ids.to_numpy().astype(str), catalogue.intent, simulation.relevance, simulation.exposure, intent, kind,
        simulation.user_type, clicks["user_id"].to_numpy(), clicks["timestamp"].to_numpy(),
        simulation.context[shown.visit[shown.clicked]])))
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name != "world_dir"}
    facts = dict(seed=seed, settings=settings, **summary(simulation))
    save_json(os.path.join(folder, FACTS_FILE), facts)
    return facts


def summary(simulation: Simulation) -> dict:
    """Counts of a simulation with clicks, and the shares of weekend types and of the intents they favour in visits."""
    shown, items = simulation.impressions, len(simulation.catalogue.category)
    clicks, weekend = int(shown.clicked.sum()), is_weekend(simulation.visits.seconds)
    weekend_type = simulation.user_type[simulation.visits.user] % 2 == 1
    weekend_intent = simulation.visits.intent >= INTENTS // 2

    def by_day(mask):
        return dict(weekday_visits=_share(mask & ~weekend, ~weekend), weekend_visits=_share(mask & weekend, weekend))

    return dict(
        users=len(simulation.user_type), items=items, contexts=len(simulation.relevance), visits=len(weekend),
        impressions=len(shown.item), clicks=clicks, impressions_per_click=round(len(shown.item) / clicks, 3),
        visits_with_click=round(clicks / len(weekend), 6),
        gini_exposure=round(gini(np.bincount(shown.item, minlength=items)), 6),
        gini_clicks=round(gini(np.bincount(shown.item[shown.clicked], minlength=items)), 6),
        visits_at_weekends=round(float(weekend.mean()), 6), weekend_types=by_day(weekend_type),
        weekend_intents=by_day(weekend_intent))


def _share(part, whole):
    """Size of the mask `part` over that of `whole`, 0 of nothing."""
    return round(float(part.sum() / max(whole.sum(), 1)), 6)


def load_truth(folder: str) -> Truth:
    """Reads truth.npz.

    Raises:
      DataError: it is missing, damaged, or its arrays do not fit together.
    """
    path = os.path.join(folder, TRUTH_FILE)
    remedy = "write the world with python -m clrec_tf.exposure_world"
    try:
        with np.load(path, allow_pickle=False) as arrays:
            truth = Truth(**{field.name: arrays[field.name] for field in dataclasses.fields(Truth)})
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist: {remedy}") from error
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is damaged or of another version ({error}): {remedy} again") from error
    for wrong in _faults(truth):
        raise DataError(f"{path}: {wrong}; {remedy} again")
    return truth


def _faults(truth):
    """Yields what is wrong with the arrays."""
    contexts, items, clicks = len(truth.context_intent), len(truth.item_ids), len(truth.click_user)
    shapes = dict(item_intent=(items,), relevance=(contexts, items), exposure=(contexts, items),
                  context_type=(contexts,), click_timestamp=(clicks,), click_context=(clicks,))
    for name, shape in shapes.items():
        if getattr(truth, name).shape != shape:
            yield f"{name} has shape {list(getattr(truth, name).shape)}, expected {list(shape)}"
    if not ((truth.relevance > 0) & (truth.relevance < 1)).all():
        yield "relevance is not everywhere between 0 and 1"
    if not (truth.exposure > 0).all() or not np.allclose(truth.exposure.sum(axis=1), 1, rtol=0, atol=1e-9):
        yield "exposure is no distribution in each row"
    if not clicks or not 0 <= truth.click_context.min() <= truth.click_context.max() < contexts:
        yield f"click_context is empty or not everywhere in [0, {contexts})"
    step, later = np.diff(truth.click_user), np.diff(truth.click_timestamp)
    if not ((step > 0) | ((step == 0) & (later > 0))).all():
        yield "clicks are not in the order of user and time"


def _items(catalogue, ids):
    """The item file as a frame."""
    intent, category = np.divmod(catalogue.category, CATEGORIES)
    return pl.DataFrame({
        "item_id": ids,
        "title": [f"intent {i + 1} · category {c + 1} · item {number + 1}"
                  for number, (i, c) in enumerate(zip(intent, category))],
        "category": [f"c{i + 1}.{c + 1}" for i, c in zip(intent, category)],
        "seller": [f"s{seller + 1}" for seller in catalogue.seller],
        "gender": [GENDERS[gender] for gender in catalogue.gender]})
