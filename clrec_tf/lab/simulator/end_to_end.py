"""From the log of a simulation to trained towers and back to its truth: prepare, train, evaluate, with every loss
over equal encoders and equal numbers of negatives, in a biased and in an unbiased simulation."""
import dataclasses
import os

from absl import logging

from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data.schema import save_json
from clrec_tf.errors import UserError
from clrec_tf.evaluation.figures import draw_degree_histogram
from clrec_tf.evaluation.popularity import counted_of
from clrec_tf.evaluation import protocols
from clrec_tf.evaluation.report import evaluate_scorer
from clrec_tf.evaluation.report import MOST_POPULAR
from clrec_tf.lab.checks import Check
from clrec_tf.lab.children import in_child
from clrec_tf.lab.simulator.oracle_metrics import Judge
from clrec_tf.lab.simulator.simulated_folder import write_simulation
from clrec_tf.lab.simulator import simulated_logs
from clrec_tf.models import dial
from clrec_tf.models.encode import Encoder
from clrec_tf.preparation.prepare_folder import prepare_folder
from clrec_tf.system.json_files import load_json
from clrec_tf.training.cluster.choose_runtime import choose_runtime
from clrec_tf.training import loop
from clrec_tf.training.restore import load_trained

CLREC, SOFTMAX, ORACLE, POPULAR = "clrec", "sampled_softmax", "oracle", "most_popular"
# Settings that models differ in, by section.
COMPARED = {CLREC: dict(loss=dict(loss="contrastive")), SOFTMAX: dict(loss=dict(loss="sampled_softmax"))}
# Beside these in the first repetition of the biased simulation (paper, Table 2, and what the queue can be fed with).
FURTHER = {
    "clrec_beta_.75": dict(loss=dict(loss="contrastive", debias_beta=0.75)),
    "clrec_impressions": dict(loss=dict(loss="contrastive", negatives="impressions")),
    "ipw": dict(loss=dict(loss="ipw", propensity="popularity")),
    "shared_negative_sampling": dict(loss=dict(loss="shared_negative_sampling")),
    "negative_sampling": dict(loss=dict(loss="negative_sampling", num_negatives=16)),
}
BIASED, UNBIASED = "biased", "unbiased"
RESULT_FILE, PICTURE_FILE = "against_truth.json", "degree_histogram_{}.png"
DIVERSITY_GAIN, POPULARITY_LEFT, VANISHED = 1.5, 0.5, 0.25
DIALLED = (0.25, 0.5, 1.0)  # popularities at which each model is measured besides
NO_GAP = 1e-9  # divides where both losses agree even in the biased simulation


def run(config: Config) -> tuple[list[dict], list[Check]]:
    """All trainings that are not done yet, and what came of all of them.

    Args:
      config: `exposure_world` is the biased simulation, the unbiased one has another policy; `model` and `train` hold
        for every loss; simulations, data and runs are kept in --workdir, so that an interrupted proof goes on.

    Returns:
      (a row for each simulation, repetition and model; checks).
    """
    require(config.paths.workdir, "workdir", "the end-to-end proof keeps its worlds and runs there")
    if config.plugs.get("queue") == "in_batch":
        raise UserError("--queue=in_batch: the end-to-end proof compares a queue with as many sampled negatives; give "
                        "cached or raw")
    rows = []
    for repetition in range(config.proof.repetitions):
        for simulation in (BIASED, UNBIASED):
            models = {**COMPARED, **(FURTHER if (simulation, repetition) == (BIASED, 0) else {})}
            rows += compare(config, simulation, config.paths.seed + repetition, models)
        picture(config, rows, config.paths.seed + repetition)
    return rows, checks(rows, config.evaluate.list_length)


def compare(config: Config, simulation: str, seed: int, models: dict) -> list[dict]:
    """One simulation of one seed: rows of the oracle, most-popular and each model."""
    policy = dict(exposure_policy="uniform") if simulation == UNBIASED else {}
    config = prepared(replaced(config, paths=dict(seed=seed), exposure_world=policy),
                      os.path.join(config.paths.workdir, f"{simulation}_{seed}"))
    rows = []
    for name, by_name in results(config, models, train_and_measure).items():
        if not rows:
            rows += [dict(world=simulation, seed=seed, model=ORACLE, **by_name["oracle"]),
                     dict(world=simulation, seed=seed, model=POPULAR, **by_name["most_popular"])]
        rows.append(dict(world=simulation, seed=seed, model=name, **by_name["model"]))
    return rows


def results(config: Config, models: dict, measure) -> dict[str, dict]:
    """name -> what `measure`(config), in a process of its own, left in RESULT_FILE of the model's --workdir: a folder
    beside the data's; done once."""
    folder, measured = os.path.dirname(config.paths.data_dir), {}
    for name, settings in models.items():
        of_model = replaced(config, paths=dict(workdir=os.path.join(folder, name)), **settings).without_unread()
        path = os.path.join(of_model.paths.workdir, RESULT_FILE)
        if not os.path.exists(path):
            logging.info("%s: %s", folder, name)
            in_child(measure, of_model)
        measured[name] = load_json(path, "run the proof again", "delete it and run the proof again")
    return measured


def replaced(config: Config, **sections: dict) -> Config:
    """The settings with some values of some sections replaced."""
    return config.but(**{name: value for values in sections.values() for name, value in values.items()})


def prepared(config: Config, folder: str) -> Config:
    """Writes and prepares the simulation in a folder unless that is done; the settings with which it was prepared."""
    config = replaced(config, paths=dict(data_dir=os.path.join(folder, "data")),
                      exposure_world=dict(world_dir=os.path.join(folder, "world")))
    folder = config.exposure_world.world_dir
    if not os.path.exists(folder):
        write_simulation(config)
    config = replaced(config, prepare=dict(
        format="columns", input=os.path.join(folder, simulated_logs.CLICKS_FILE),
        impressions=os.path.join(folder, simulated_logs.IMPRESSIONS_FILE),
        item_features=os.path.join(folder, simulated_logs.ITEMS_FILE),
        feature_columns=("category", "seller", "gender")))
    prepare_folder(config.paths, config.prepare)
    return config


def train_and_measure(config: Config) -> None:
    """Trains one model and writes RESULT_FILE to its --workdir.

    Raises:
      UserError: the training was stopped by a signal; the same command goes on with it.
    """
    train_to_end(config)
    save_json(os.path.join(config.paths.workdir, RESULT_FILE), against_truth(config))


def train_to_end(config: Config) -> None:
    """Trains; `UserError` where a signal stopped it."""
    if loop.train(config, choose_runtime(config)):
        raise UserError(f"the training in --workdir={config.paths.workdir} was stopped; run the same command to go on")


def against_truth(config: Config) -> dict[str, dict]:
    """Figures of the trained model, of the oracle and of most-popular: on held-out clicks and against the truth."""
    trained = load_trained(config, config.evaluate.eval_checkpoint)
    data_dir = config.paths.data_dir
    catalogue = read_catalogue(data_dir, trained.schema, trained.manifest)
    users = read_evaluation_set(data_dir, "test", trained.schema, trained.manifest, config.evaluate.max_users,
                                config.paths.seed)
    judge = Judge(simulated_logs.load_truth(config.exposure_world.world_dir), users, catalogue.original_ids)
    encoder = Encoder(trained.model, trained.max_history)
    temperature = trained.model.temperature
    vectors, items = encoder.searched(users), encoder.compared_items(catalogue.item_rows)
    joint = trained.model.score_temperature
    cosines = protocols.vector_scorer(vectors, items, joint)
    scorers = dict(model=cosines, oracle=judge.oracle_scorer(),
                   most_popular=protocols.most_popular_scorer(catalogue.counts))
    result = {}
    for name, scorer in scorers.items():
        result[name] = _figures(scorer, judge, users, catalogue.counts, config)
    items = dial.with_coordinate(items, counted_of(trained, catalogue, data_dir).coordinate)
    plain = dial.with_coordinate(vectors, 0.0)
    for alpha in DIALLED:
        scorer = protocols.vector_scorer(dial.at_popularity(plain, alpha), items, joint)
        figures = _figures(scorer, judge, users, catalogue.counts, config)
        result["model"] |= {dial.name(figure, alpha): value for figure, value in figures.items()
                            if "histogram" not in figure}
    result["model"]["kl_oracle"] = judge.divergence(lambda start, stop: cosines(start, stop) / temperature)
    return result


def _figures(scorer, judge, users, counts, config):
    """Of one scorer: of its lists against the truth, and of its rankings of held-out clicks."""
    lists = protocols.rank_targets(scorer, users, len(counts), full=False, list_length=config.evaluate.list_length,
                                   filter_seen=config.evaluate.filter_seen).lists
    figures = evaluate_scorer(scorer, users, counts, config.evaluate, config.paths.seed, candidate_sets=("full",))
    return judge.of_lists(lists) | {
        figure: value for figure, value in figures.items() if not figure.startswith(MOST_POPULAR)}


def picture(config: Config, rows: list[dict], seed: int) -> None:
    """Where the clicks of the biased log and the recommendations of both losses go, by popularity of the item."""
    by_model = {row["model"]: row for row in rows if (row["world"], row["seed"]) == (BIASED, seed)}
    length = config.evaluate.list_length
    series = {"training clicks (log)": (by_model[CLREC], "truth/degree_histogram/")}
    series |= {f"{name}, top {length}": (by_model[name], f"degree_histogram@{length}/full/")
               for name in (SOFTMAX, CLREC, ORACLE)}
    draw_degree_histogram(os.path.join(config.paths.workdir, PICTURE_FILE.format(seed)), series,
                          f"Recommendations by popularity, world of seed {seed}")


def checks(rows: list[dict], length: int) -> list[Check]:
    """CLRec against sampled softmax, in each repetition."""
    figures = {(row["world"], row["seed"], row["model"]): row for row in rows}
    named = []
    for seed in sorted({row["seed"] for row in rows}):
        ratio = lambda simulation, name, seed=seed: (
            figures[simulation, seed, CLREC][name] / figures[simulation, seed, SOFTMAX][name])
        diversity, popularity = f"aggregate_diversity@{length}/full", f"popularity_index@{length}/full"
        gaps = {name: abs(ratio(UNBIASED, name) - 1) / max(abs(ratio(BIASED, name) - 1), NO_GAP)
                for name in (diversity, popularity)}
        made = [Check("aggregate diversity, CLRec over sampled softmax", ratio(BIASED, diversity), ">", DIVERSITY_GAIN),
                Check("popularity index, CLRec over sampled softmax", ratio(BIASED, popularity), "<", POPULARITY_LEFT),
                Check("oracle recall, CLRec over sampled softmax", ratio(BIASED, f"oracle_recall@{length}"), ">", 1),
                *(Check(f"gap in {name} without bias, over that with bias", gap, "<", VANISHED)
                  for name, gap in gaps.items())]
        named += [dataclasses.replace(check, name=f"end to end, seed {seed}: {check.name}") for check in made]
    return named
