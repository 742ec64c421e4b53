"""CLRec where the context of a request decides what is shown, and nothing else: what --debias_context is for.

Storefronts rank popularity differently, so q(y|x) differs between them while nobody's taste does. Against the truth:
CLRec that knows nothing of contexts, that reads them, and that also takes its negatives from the row's own.
"""
import dataclasses
import os

from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.lab.checks import Check
from clrec_tf.lab.simulator import end_to_end

COLUMN, SHELVES = "shelf", 4
BLIND, READS, CORRECTED = "without_context", "reads_context", "debias_context"
COMPARED = {BLIND: dict(model=dict(use_query_features=False)), READS: {},
            CORRECTED: dict(loss=dict(debias_context=COLUMN))}
WORLD = dict(exposure_world=dict(exposure_shelves=SHELVES), prepare=dict(context_columns=(COLUMN,)))


def run(config: Config) -> tuple[list[dict], list[Check]]:
    """A row for each repetition and model; checks.

    Args:
      config: as of `end_to_end.run`; worlds and runs are kept in --workdir.
    """
    require(config.paths.workdir, "workdir", "the proof of contexts keeps its worlds and runs there")
    rows, checks = [], []
    for seed in range(config.paths.seed, config.paths.seed + config.proof.repetitions):
        shelves = end_to_end.prepared(end_to_end.replaced(end_to_end.replaced(config, **WORLD), paths=dict(seed=seed)),
                                      os.path.join(config.paths.workdir, f"shelves_{seed}"))
        measured = end_to_end.results(shelves, COMPARED, end_to_end.train_and_measure)
        rows += [dict(world="shelves", seed=seed, model=name, **figures["model"]) for name, figures in measured.items()]
        oracle = measured[READS]["oracle"]
        rows.append(dict(world="shelves", seed=seed, model=end_to_end.ORACLE, **oracle))
        checks += _checks(seed, {name: figures["model"] for name, figures in measured.items()},
                          config.evaluate.list_length)
    return rows, checks


def _checks(seed, models, length) -> list[Check]:
    recall = f"oracle_recall@{length}"
    ratio = lambda figure, other: models[CORRECTED][figure] / models[other][figure]
    named = [Check("KL from the oracle, negatives of the context over those of all", ratio("kl_oracle", READS), "<", 1),
             Check("oracle recall, negatives of the context over those of all", ratio(recall, READS), ">", 1)]
    return [dataclasses.replace(check, name=f"contexts, seed {seed}: {check.name}") for check in named]
