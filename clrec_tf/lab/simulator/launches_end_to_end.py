"""Items without clicks, from a simulated log and its item table to trained towers and back to the truth.

Towers are trained with several --id_dropout and without; evaluate gives their `hr@10/full/cold` and its references. On
the same targets are ranked, with what only the simulation knows:

next_click   p(y|u), as the log's next clicks are drawn: who knows everything
relevance    exp s(u,y), without how much the old system shows an item
described    p(y|u), of launched items what is to be expected of their features: who knows all that can be known of them
optimum      the same over its mean of all users, p(y|u)/p(y): what the loss tends to
"""
import os

import numpy as np

from clrec_tf.config import Config
from clrec_tf.config import EvaluateConfig
from clrec_tf.config import require
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data.schema import save_json
from clrec_tf.evaluation.cold_references import among_cold
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
CHECKED, FURTHER = 0.2, (0.1, 0.5)  # --id_dropout beside 0; the further in the first repetition alone
DIALLED = (0.25, 0.5, 1.0)
VALID_DAYS = 3
COLD, WARM, AMONG_COLD, COLD_SHARE = (f"hr@{CUTOFF}/full/cold", f"hr@{CUTOFF}/full/warm", f"hr@{CUTOFF}/cold",
                                      f"cold_share@{CUTOFF}/full")
FIGURES = {COLD: 4, WARM: 4, AMONG_COLD: 4, COLD_SHARE: 3}
OPTIMUM = "optimum"


def run(config: Config) -> tuple[list[dict], list[Check]]:
    """A row for each repetition and ranking; checks."""
    require(config.paths.workdir, "workdir", "the proof of items without clicks keeps its worlds and runs there")
    rows = []
    for seed in range(config.paths.seed, config.paths.seed + config.proof.repetitions):
        of_seed = prepared(end_to_end.replaced(config, paths=dict(seed=seed), evaluate=dict(
            candidate_sets=("full",), ks=(str(CUTOFF),), list_length=CUTOFF, eval_checkpoint="latest")))
        shares = (0.0, CHECKED, *(FURTHER if seed == config.paths.seed else ()))
        models = {name_of(share): dict(model=dict(id_dropout=share)) for share in shares}
        for name, found in end_to_end.results(of_seed, models, train_and_measure).items():
            done = {row["model"] for row in rows if row["seed"] == seed}  # what knows the truth is measured with each
            rows += [dict(world="launches", seed=seed, model=ranking, **figures)
                     for ranking, figures in ((each.replace("model", name), of) for each, of in found.items())
                     if ranking not in done]
    return rows, checks(rows)


def name_of(share: float) -> str:
    """Name of the model that is trained with a share of hidden ids."""
    return f"id_dropout_{share:g}"


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
    temperature, plain = trained.model.temperature, dial.with_coordinate(encoder.searched(users), 0.0)
    joint = trained.model.score_temperature
    items, scorers = encoder.compared_items(catalogue.item_rows), {}
    for name, coordinate in dict(model=counted_of(trained, catalogue, data_dir).coordinate,
                                 model_counted_once=dial.item_coordinate(catalogue.counts, temperature)).items():
        dialled = dial.with_coordinate(items, coordinate)
        scorers |= {dial.name(name, alpha): protocols.vector_scorer(
            dial.at_popularity(plain, alpha), dialled, joint) for alpha in DIALLED}
    scorers |= dict(model=protocols.vector_scorer(plain[..., :-1], items, joint),
                    **oracles(world_of(config), users.user_ids, catalogue.original_ids))
    result = {name: of_scorer(scorer, users, catalogue.cold, config.evaluate) for name, scorer in scorers.items()}
    result["model"] |= {name: evaluated[name] for name in (COLD, WARM, "users/cold", "users/warm")}
    for prefix in report.COLD_REFERENCES:
        result[prefix.rstrip("/")] = {name: evaluated[prefix + name] for name in (COLD, WARM, AMONG_COLD)}
    return result


def oracles(world: launches.Launches, user_ids: np.ndarray,
            original_ids: np.ndarray) -> dict[str, protocols.ScoreChunk]:
    """Rankings by the truth; their scores are of items in the order of the data set.

    Args:
      world: the simulation.
      user_ids: [U], numbered as prepare does: by their first click in the log, which is sorted by user.
      original_ids: [V].
    """
    columns = np.searchsorted(launches.item_ids(len(world.launched)), original_ids.astype(str))
    everybody = np.arange(len(world.user_taste))
    total = np.exp(world.next_click(everybody)).sum(axis=1, keepdims=True)
    popularity = np.log((np.exp(world.described(everybody)) / total).mean(axis=0))  # p(y), of launched items expected

    def of(scores, base=0.0):
        return lambda start, stop: (scores(user_ids[start:stop]) - base)[:, columns]

    return {"next_click": of(world.next_click), "relevance": of(world.relevance), "described": of(world.described),
            OPTIMUM: of(world.described, popularity)}


def of_scorer(scorer: protocols.ScoreChunk, users, cold: np.ndarray, settings: EvaluateConfig) -> dict[str, float]:
    """Hit rates of one ranking of users with cold and warm next clicks, with cold ones among cold items alone, and the
    share of cold items in the lists. cold: bool [V]."""
    ranked = protocols.rank_targets(scorer, users, len(cold), list_length=CUTOFF, filter_seen=settings.filter_seen)
    groups, next_click, counts = report.groups_of(users, cold), users.target_splits[:-1], ranked.counts["full"]
    hits = hit_rate(counts.better[next_click], counts.tied[next_click], CUTOFF)
    return {COLD: float(hits[groups["cold"]].mean()), WARM: float(hits[groups["warm"]].mean()),
            COLD_SHARE: float(cold[ranked.lists - 1].mean()), **among_cold(scorer, users, cold, settings)}


def checks(rows: list[dict]) -> list[Check]:
    """What --id_dropout promises, in each repetition."""
    by_name, made = {(row["seed"], row["model"]): row for row in rows}, []
    hidden, seen, clicked = name_of(CHECKED), name_of(0.0), dial.name(name_of(CHECKED), 1.0)
    for seed in sorted({row["seed"] for row in rows}):
        of = lambda model, figure=COLD, seed=seed: by_name[seed, model][figure]
        made += [Check(f"launches, seed {seed}: {name}", value, ">", bound) for name, value, bound in (
            (f"{COLD}, over that of random cold items", of(hidden) / of("random_cold"), 1.0),
            (f"{AMONG_COLD}, over that of random cold items",
             of(hidden, AMONG_COLD) / of("random_cold", AMONG_COLD), 3.0),
            (f"{COLD}, over that of the popular by feature", of(hidden) / of("by_feature"), 2.0),
            (f"{COLD} at popularity 1, over the same", of(clicked) / of("by_feature"), 2.0),
            (f"{COLD}, over that of the optimum", of(hidden) / of(OPTIMUM), 0.6),
            (f"{AMONG_COLD}, over that without --id_dropout", of(hidden, AMONG_COLD) / of(seen, AMONG_COLD), 1.5),
            (f"{WARM}, over that without --id_dropout", of(hidden, WARM) / of(seen, WARM), 0.9))]
    return made
