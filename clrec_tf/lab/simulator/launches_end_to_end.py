"""Items without clicks, from a simulated log and its item table to trained towers and back to the truth.

Towers are trained with several --id_dropout and without; evaluate gives their `hr@10/full/cold` and its references. On
the same targets are ranked, with what only the simulation knows:

next_click       p(y|u), as the log's next clicks are drawn: who knows everything
relevance        s(u,y), without how much the old system shows an item
features         the part of s that features make: who knows the users and all that can be known of a cold item
optimum          p(y|u)/p(y), what the loss tends to where every item has its clicks
feature_optimum  the same of `features`, what the loss can tend to for items that have none
"""
import os

import numpy as np

from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data.schema import save_json
from clrec_tf.evaluation.metrics import hit_rate
from clrec_tf.evaluation.popularity import counted_of
from clrec_tf.evaluation import protocols
from clrec_tf.evaluation import report
from clrec_tf.lab.checks import Check
from clrec_tf.lab.simulator import end_to_end
from clrec_tf.lab.simulator import launches
from clrec_tf.models import dial
from clrec_tf.models.encode import Encoder
from clrec_tf.preparation.prepare_folder import prepare_folder
from clrec_tf.training.evaluate_run import evaluate
from clrec_tf.training.restore import load_trained

USERS, ITEMS = 6_000, 2_000
CUTOFF = 10
SHARES = (0.0, 0.1, 0.2, 0.5)  # of --id_dropout
CHECKED = 0.2
DIALLED = (0.5, 1.0)
VALID_DAYS = 3
COLD, WARM, AMONG_COLD, COLD_SHARE = (f"hr@{CUTOFF}/full/cold", f"hr@{CUTOFF}/full/warm", f"hr@{CUTOFF}/cold",
                                      f"cold_share@{CUTOFF}/full")
FIGURES = {COLD: 3, WARM: 3, AMONG_COLD: 3, COLD_SHARE: 3}
FEATURE_OPTIMUM = "feature_optimum"


def run(config: Config) -> tuple[list[dict], list[Check]]:
    """A row for each repetition and ranking; checks."""
    require(config.paths.workdir, "workdir", "the proof of items without clicks keeps its worlds and runs there")
    rows = []
    for seed in range(config.paths.seed, config.paths.seed + config.proof.repetitions):
        of_seed = prepared(end_to_end.replaced(config, paths=dict(seed=seed), evaluate=dict(
            candidate_sets=("full",), ks=(str(CUTOFF),), list_length=CUTOFF, eval_checkpoint="latest")))
        models = {name_of(share): dict(model=dict(id_dropout=share)) for share in SHARES}
        for name, found in end_to_end.results(of_seed, models, train_and_measure).items():
            known = [row["model"] for row in rows if row["seed"] == seed]
            rows += [dict(world="launches", seed=seed, model=name if ranking == "model" else ranking, **figures)
                     for ranking, figures in named(name, found).items() if ranking not in known]
    return rows, checks(rows)


def name_of(share: float) -> str:
    """Name of the model that is trained with a share of hidden ids."""
    return f"id_dropout_{share:g}"


def named(model: str, found: dict[str, dict]) -> dict[str, dict]:
    """The rankings of one measurement under names that tell models apart."""
    return {ranking.replace("model", model): figures for ranking, figures in found.items()}


def world_of(config: Config) -> launches.Launches:
    """The simulation of --seed, in the size of --exposure_users and --exposure_items."""
    size = config.exposure_world
    return launches.generate(size.exposure_users or USERS, size.exposure_items or ITEMS, config.paths.seed)


def prepared(config: Config) -> Config:
    """Writes and prepares the simulation of --seed; the settings with which it was prepared."""
    folder = os.path.join(config.paths.workdir, f"launches_{config.paths.seed}")
    logs = os.path.join(folder, "world")
    if not os.path.exists(os.path.join(folder, "data")):
        os.makedirs(logs, exist_ok=True)
        launches.write(world_of(config), config.paths.seed, logs)
    config = end_to_end.replaced(config, paths=dict(data_dir=os.path.join(folder, "data")), prepare=dict(
        format="columns", input=os.path.join(logs, launches.CLICKS_FILE), vocabulary="catalogue",
        item_features=os.path.join(logs, launches.ITEMS_FILE), feature_columns=tuple(launches.FEATURES),
        split="last_days", test_days=launches.TEST_DAYS, valid_days=VALID_DAYS))
    prepare_folder(config.paths, config.prepare)
    return config


def train_and_measure(config: Config) -> None:
    """Trains one model, evaluates it as the command does, and writes `end_to_end.RESULT_FILE` to its --workdir."""
    end_to_end.train_to_end(config)
    save_json(os.path.join(config.paths.workdir, end_to_end.RESULT_FILE), against_truth(config, evaluate(config)))


def against_truth(config: Config, evaluated: dict) -> dict[str, dict]:
    """Ranking -> figures: of the trained model, as trained and by popularity, and of those that know the truth.

    Args:
      config: of the run.
      evaluated: metrics of the model, of `evaluate`.
    """
    trained, data_dir = load_trained(config, config.evaluate.eval_checkpoint), config.paths.data_dir
    catalogue = read_catalogue(data_dir, trained.schema, trained.manifest)
    users = read_evaluation_set(data_dir, config.evaluate.eval_split, trained.schema, trained.manifest,
                                config.evaluate.max_users, config.paths.seed)
    encoder = Encoder(trained.model, trained.max_history, catalogue.cold)
    items = dial.with_coordinate(encoder.compared_items(catalogue.item_rows),
                                 counted_of(trained, catalogue, data_dir).coordinate)
    vectors = dial.with_coordinate(encoder.searched(users), 0.0)
    scorers = {dial.name("model", alpha): protocols.vector_scorer(
        dial.at_popularity(vectors, alpha), items, trained.model.temperature) for alpha in DIALLED}
    scorers |= dict(model=protocols.vector_scorer(vectors, items, trained.model.temperature),
                    **oracles(world_of(config), users.user_ids, catalogue.original_ids))
    result = {name: of_scorer(scorer, users, catalogue.cold, config.evaluate.filter_seen)
              for name, scorer in scorers.items()}
    result["model"] |= {name: evaluated[name] for name in (COLD, WARM, "users/cold", "users/warm")}
    for prefix in report.COLD_REFERENCES:
        result[prefix.rstrip("/")] = {name: evaluated[prefix + name] for name in (COLD, WARM)}
    return result


def oracles(world: launches.Launches, user_ids: np.ndarray, original_ids: np.ndarray) -> dict[str, protocols.ScoreChunk]:
    """Rankings by the truth; their scores are of items in the order of the data set.

    Args:
      world: the simulation.
      user_ids: [U], numbered as prepare does: by their first click in the log, which is sorted by user.
      original_ids: [V].
    """
    columns = np.searchsorted(launches.item_ids(len(world.launched)), original_ids.astype(str))
    everybody = np.arange(len(world.user_taste))

    def of(scores, optimum=False):
        base = np.log(_distribution(scores(everybody)).mean(axis=0)) if optimum else 0.0

        def score_chunk(start, stop):
            found = scores(user_ids[start:stop])
            return ((np.log(_distribution(found)) if optimum else found) - base)[:, columns]

        return score_chunk

    return {"next_click": of(world.next_click), "relevance": of(world.relevance), "features": of(world.of_features),
            "optimum": of(world.next_click, True), FEATURE_OPTIMUM: of(world.of_features, True)}


def of_scorer(scorer: protocols.ScoreChunk, users, cold: np.ndarray, filter_seen: bool) -> dict[str, float]:
    """Hit rates of one ranking of users with cold and warm next clicks, with cold ones among cold items alone, and the
    share of cold items in the lists. cold: bool [V]."""
    ranked = protocols.rank_targets(scorer, users, len(cold), list_length=CUTOFF, filter_seen=filter_seen)
    among = protocols.rank_targets(lambda start, stop: np.where(cold, scorer(start, stop), -1e9), users, len(cold),
                                   filter_seen=filter_seen)
    groups, next_click = report.groups_of(users, cold), users.target_splits[:-1]
    hits = {name: hit_rate(counts.better[next_click], counts.tied[next_click], CUTOFF)
            for name, counts in (("full", ranked.counts["full"]), ("cold", among.counts["full"]))}
    return {COLD: float(hits["full"][groups["cold"]].mean()), WARM: float(hits["full"][groups["warm"]].mean()),
            AMONG_COLD: float(hits["cold"][groups["cold"]].mean()), COLD_SHARE: float(cold[ranked.lists - 1].mean())}


def checks(rows: list[dict]) -> list[Check]:
    """What --id_dropout promises, in each repetition."""
    by_name, made = {(row["seed"], row["model"]): row for row in rows}, []
    for seed in sorted({row["seed"] for row in rows}):
        of = lambda model, figure=COLD, seed=seed: by_name[seed, model][figure]
        hidden, seen = name_of(CHECKED), name_of(0.0)
        made += [Check(f"launches, seed {seed}: {COLD}, {text}", value, ">", bound) for text, value, bound in (
            ("over that of random cold items", of(hidden) / of("random_cold"), 2.0),
            ("over that of the popular by feature", of(hidden) / of("by_feature"), 2.0),
            ("over that without --id_dropout", of(hidden) / of(seen), 2.0),
            ("over that of the optimum for features", of(hidden) / of(FEATURE_OPTIMUM), 0.7))]
        made.append(Check(f"launches, seed {seed}: {WARM}, over that without --id_dropout",
                          of(hidden, WARM) / of(seen, WARM), ">", 0.9))
    return made


def _distribution(scores):
    """Softmax of rows."""
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)
