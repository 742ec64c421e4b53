"""The stochastic check: every loss, trained, must reach its own closed form, and the defects must miss it."""
import dataclasses
import time

from absl import logging
import numpy as np

from clrec_tf.lab.checks import Check
from clrec_tf.lab.proof.exposure_simulator import generate
from clrec_tf.lab.proof.exposure_simulator import impression_log
from clrec_tf.lab.proof.exposure_simulator import tabular_simulation
from clrec_tf.lab.proof import measures
from clrec_tf.lab.proof import optima
from clrec_tf.lab.proof.table_checks import SLIGHTLY
from clrec_tf.lab.proof.tabular import STEPS
from clrec_tf.lab.proof.tabular_losses import Case
from clrec_tf.lab.proof.tabular_losses import cases
from clrec_tf.lab.proof.tabular_losses import queue_cases
from clrec_tf.losses import ipw

REACHED, MISSED = 0.004, 0.006  # KL(own target‖model), nats
IMPRESSIONS = 1_000_000
BY_POPULARITY, BY_INTENT = "pop", "intent τ=3"
SMALL = dict(items=30, intents=3, tastes=2)  # so that a table of it is trained in seconds


def train_case(case: Case, simulation, seed: int, steps: int = STEPS) -> dict:
    """One loss trained: {loss, kl_own_target, kl_oracle (nats), bound, defect, seconds}."""
    start = time.perf_counter()
    model = case.trainer(simulation, case.loss, case.queue, seed, steps).train()
    row = dict(loss=case.name, kl_own_target=measures.divergence(case.target, model),
               kl_oracle=measures.divergence(simulation.oracle, model), bound=MISSED if case.defect else REACHED,
               defect=case.defect, seconds=time.perf_counter() - start)
    logging.info("trained %s: %d steps in %.1f s, KL(own target‖model) = %.4f", case.name, steps, row["seconds"],
                 row["kl_own_target"])
    return row


def check_of(row: dict) -> Check:
    """Whether a trained loss is where it should be; the name says what was compared."""
    if row["defect"]:
        return Check(f"{row['loss']}: must miss the target without the defect, KL", row["kl_own_target"], ">",
                     row["bound"])
    return Check(f"{row['loss']}: reaches its own target, KL", row["kl_own_target"], "<", row["bound"])


def run(seed: int, mask_hits: bool) -> tuple[list[dict], list[Check]]:
    """Trains every loss: (rows, see `train_case`; checks)."""
    simulation = tabular_simulation()
    rows = [train_case(case, simulation, seed) for case in cases(simulation, mask_hits)]
    further, checks = queues_compared(seed)
    rows += further
    return rows, [*map(check_of, rows), *checks, logged_weights(seed)]


def queues_compared(seed: int) -> tuple[list[dict], list[Check]]:
    """The click queue and the multi-queue in small simulations of known verdict: (rows; checks between them)."""
    rows, distance = [], {}
    for name in (BY_POPULARITY, BY_INTENT):
        simulation = generate(dataclasses.replace(optima.simulation_settings(name, seed), **SMALL))
        # `TableTrainer` visits all contexts equally often.
        contexts = len(simulation.exposure)
        simulation = dataclasses.replace(simulation, context_share=np.full(contexts, 1 / contexts))
        for case in queue_cases(simulation):
            rows.append(train_case(dataclasses.replace(case, name=f"{case.name}, small {name}"), simulation, seed))
        distance[name] = [row["kl_oracle"] for row in rows[-2:]]
    (clicks, multi), (clicks_by_intent, multi_by_intent) = distance.values()
    return rows, [
        Check(f"small {BY_INTENT}: the trained multi-queue is nearer to the oracle than the click queue, KL over KL",
              multi_by_intent / clicks_by_intent, "<", 1),
        Check(f"small {BY_POPULARITY}: it is farther, KL", multi - clicks, ">", 0),
        Check(f"small {BY_POPULARITY}: but slightly", multi - clicks, "<", SLIGHTLY)]


def logged_weights(seed: int) -> Check:
    """IPW's effective sample size on the clicks of a generated impression log, beside the exact one."""
    simulation = generate(optima.simulation_settings(BY_INTENT, seed))
    context, item, clicked = impression_log(simulation, IMPRESSIONS, seed)
    weights = ipw.inverse_propensity_weights(simulation.exposure[context, item][clicked], float("inf"))
    share = float(ipw.effective_sample_size(weights)) / int(clicked.sum())
    exact = measures.effective_share(1 / simulation.exposure, simulation.context_share[:, None] * simulation.clicks)
    return Check(f"IPW in {BY_INTENT}: effective sample size on {IMPRESSIONS:,} impressions, relative error",
                 abs(share / exact - 1), "<", 0.05)
