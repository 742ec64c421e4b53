"""Trained on weekdays, tested on a weekday and at the weekend, with other users and intents (paper, Table 4).

One week of a simulation: Monday to Thursday are trained on, the next clicks of Friday and of Saturday and Sunday
are predicted, each from all that its user clicked on the days before. Nothing is selected on either.
"""
import os

import numpy as np

from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data.schema import save_json
from clrec_tf.evaluation.metrics import hit_rate
from clrec_tf.evaluation import protocols
from clrec_tf.lab.checks import Check
from clrec_tf.lab.simulator import end_to_end
from clrec_tf.lab.simulator import intents_end_to_end
from clrec_tf.lab.simulator.visits import INTENTS
from clrec_tf.models.encode import Encoder
from clrec_tf.training.restore import load_trained

COMPARED = {name: intents_end_to_end.COMPARED[name] for name in (end_to_end.CLREC, intents_end_to_end.MULTI)}
# And one that learns what CLRec learns.
COMPARED[intents_end_to_end.OF_CLICKS] = intents_end_to_end.multi_clrec(INTENTS, 0.0)
WEEK = dict(exposure_world=dict(exposure_weeks=1), train=dict(validate_every=0.0),
            prepare=dict(split="last_days", valid_days=1, test_days=2))
PARTS = dict(weekday="valid", weekend="test")
CUTOFF = 50
# Figures that are printed, and their decimals.
FIGURES = {f"hr@{CUTOFF}/weekday": 4, f"hr@{CUTOFF}/weekend": 4, "lost": 3, f"hr@{CUTOFF}/weekday/both": 4,
           f"hr@{CUTOFF}/weekend/both": 4, "lost/both": 3}


def run(config: Config) -> tuple[list[dict], list[Check]]:
    """A row for each repetition and model: hit rates on both, and the share lost; checks."""
    require(config.paths.workdir, "workdir", "the proof of the weekend keeps its worlds and runs there")
    rows = []
    for seed in range(config.paths.seed, config.paths.seed + config.proof.repetitions):
        week = end_to_end.prepared(end_to_end.replaced(end_to_end.replaced(config, **WEEK), paths=dict(seed=seed)),
                                   os.path.join(config.paths.workdir, f"week_{seed}"))
        measured = end_to_end.results(week, COMPARED, train_and_measure)
        rows += [dict(world="week", seed=seed, model=name, **of_model) for name, of_model in measured.items()]
    return rows, []


def train_and_measure(config: Config) -> None:
    """Trains one model and writes `end_to_end.RESULT_FILE` to its --workdir."""
    end_to_end.train_to_end(config)
    save_json(os.path.join(config.paths.workdir, end_to_end.RESULT_FILE), hit_rates(config))


def hit_rates(config: Config) -> dict[str, float]:
    """`figures` of the model of --workdir."""
    trained = load_trained(config, config.evaluate.eval_checkpoint)
    catalogue = read_catalogue(config.paths.data_dir, trained.schema, trained.manifest)
    encoder = Encoder(trained.model, trained.max_history)
    items, hits, users = encoder.compared_items(catalogue.item_rows), {}, {}
    for name, part in PARTS.items():
        evaluated = read_evaluation_set(config.paths.data_dir, part, trained.schema, trained.manifest,
                                        config.evaluate.max_users, config.paths.seed)
        scorer = protocols.vector_scorer(encoder.searched(evaluated), items, trained.model.score_temperature)
        counts = protocols.rank_targets(scorer, evaluated, len(catalogue.counts),
                                        filter_seen=config.evaluate.filter_seen).counts["full"]
        next_click = evaluated.target_splits[:-1]
        hits[name] = hit_rate(counts.better[next_click], counts.tied[next_click], CUTOFF)
        users[name] = evaluated.user_ids
    return figures(hits, users)


def figures(hits: dict, users: dict) -> dict[str, float]:
    """Hit rates and what is lost.

    Args:
      hits: weekday and weekend -> [U] whether each user's next click was found.
      users: the same -> [U] ids; not all who come on the weekday come at the weekend.

    Returns:
      `hr@50/weekday`, `hr@50/weekend`, and `lost`, the share of the former that the latter lacks; the same with `/both`
      behind for the users who come on both; numbers of users.
    """
    result = {f"users/{name}": len(ids) for name, ids in users.items()}
    both = np.intersect1d(users["weekday"], users["weekend"])
    result["users/both"] = len(both)
    for suffix, kept in (("", np.union1d(users["weekday"], users["weekend"])), ("/both", both)):
        rates = {name: float(np.mean(hit[np.isin(users[name], kept)])) for name, hit in hits.items()}
        result |= {f"hr@{CUTOFF}/{name}{suffix}": rate for name, rate in rates.items()}
        result["lost" + suffix] = 1 - rates["weekend"] / rates["weekday"]
    return result
