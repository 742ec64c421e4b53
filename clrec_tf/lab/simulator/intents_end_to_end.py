"""Multi-CLRec beside CLRec and sampled softmax with real towers, where exposure follows the user's intent: the same
width, and as many negatives. Items are ranked by the score that each loss is calibrated for, of Multi-CLRec by all its
vectors. Its queues are the paper's (--intent_beta=1), which divide by the popularity of the user's intents too.

Checked is what debiasing promises against sampled softmax. Which of Multi-CLRec and CLRec is ahead is only reported.
"""
import dataclasses

from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.lab.checks import Check
from clrec_tf.lab.simulator import end_to_end
from clrec_tf.lab.simulator.visits import INTENTS
from clrec_tf.preparation.synthetic_log import CATEGORIES

MULTI, OF_CLICKS, BY_CATEGORY = "multi_clrec", "multi_clrec_intent_beta_0", "multi_clrec_by_category"
SIMULATION = "intent"


def multi_clrec(intents: int, intent_beta: float = 1.0) -> dict:
    """Settings of a Multi-CLRec, by section."""
    return dict(loss=dict(loss="contrastive", intent_beta=intent_beta), model=dict(
        model="multi_clrec", num_intents=intents, category_feature="category"))


# As many intents as the simulation has. It must find by itself which categories belong together; one that has an intent
# for every category need not.
COMPARED = {**end_to_end.COMPARED, MULTI: multi_clrec(INTENTS), BY_CATEGORY: multi_clrec(INTENTS * CATEGORIES)}
# Beside them in the first repetition, one that learns what CLRec learns, p(y|x)/p(y).
FURTHER = {OF_CLICKS: multi_clrec(INTENTS, 0.0)}


def run(config: Config) -> tuple[list[dict], list[Check]]:
    """See `end_to_end.run`: (rows, checks)."""
    require(config.paths.workdir, "workdir", "the proof of intents keeps its worlds and runs there")
    seeds = [config.paths.seed + repetition for repetition in range(config.proof.repetitions)]
    rows = []
    for seed in seeds:
        rows += end_to_end.compare(config, SIMULATION, seed, {**COMPARED, **(FURTHER if seed == seeds[0] else {})})
    return rows, checks(rows, config.evaluate.list_length)


def checks(rows: list[dict], length: int) -> list[Check]:
    """Multi-CLRec against sampled softmax, in each repetition."""
    figures, named = {(row["seed"], row["model"]): row for row in rows}, []
    for seed in sorted({row["seed"] for row in rows}):
        ratio = lambda name, seed=seed: figures[seed, MULTI][name] / figures[seed, end_to_end.SOFTMAX][name]
        made = [Check("KL to the oracle", ratio("kl_oracle"), "<", 1),
                Check("oracle recall", ratio(f"oracle_recall@{length}"), ">", 1),
                Check("aggregate diversity", ratio(f"aggregate_diversity@{length}/full"), ">", 1),
                Check("popularity index", ratio(f"popularity_index@{length}/full"), "<", end_to_end.POPULARITY_LEFT)]
        named += [dataclasses.replace(check, name=f"intents, seed {seed}: {check.name}, Multi-CLRec over "
                  "sampled softmax") for check in made]
    return named
