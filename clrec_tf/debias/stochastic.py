"""The stochastic check: every loss, trained, must reach its own closed form, and the defect must miss it (SPEC E)."""
import time

from absl import logging

from clrec_tf.debias import measures
from clrec_tf.debias import table
from clrec_tf.debias.checks import Check
from clrec_tf.debias.exposure_world import generate
from clrec_tf.debias.exposure_world import impression_log
from clrec_tf.debias.exposure_world import tabular_world
from clrec_tf.debias.tabular import STEPS
from clrec_tf.debias.tabular import TableTrainer
from clrec_tf.debias.tabular_losses import Case
from clrec_tf.debias.tabular_losses import cases
from clrec_tf.losses import ipw

REACHED, MISSED = 0.004, 0.006  # KL(own target‖model), nats
IMPRESSIONS = 1_000_000
LOGGED_WORLD = "intent τ=3"


def train_case(case: Case, world, seed: int, steps: int = STEPS) -> dict:
    """One loss trained: {loss, kl_own_target, kl_oracle (nats), bound, defect, seconds}."""
    start = time.perf_counter()
    model = TableTrainer(world, case.loss, case.queue, seed, steps).train()
    row = dict(loss=case.name, kl_own_target=measures.divergence(case.target, model),
               kl_oracle=measures.divergence(world.oracle, model), bound=MISSED if case.defect else REACHED,
               defect=case.defect, seconds=time.perf_counter() - start)
    logging.info("trained %s: %d steps in %.1f s, KL(own target‖model) = %.4f", case.name, steps, row["seconds"],
                 row["kl_own_target"])
    return row


def check_of(row: dict) -> Check:
    """Whether a trained loss is where it should be; the name says what was compared."""
    if row["defect"]:
        return Check(f"{row['loss']}: must miss the click queue's target, KL", row["kl_own_target"], ">", row["bound"])
    return Check(f"{row['loss']}: reaches its own target, KL", row["kl_own_target"], "<", row["bound"])


def run(seed: int, mask_hits: bool) -> tuple[list[dict], list[Check]]:
    """Trains every loss: (rows, see `train_case`; checks)."""
    world = tabular_world()
    rows = [train_case(case, world, seed) for case in cases(world, mask_hits)]
    return rows, [*map(check_of, rows), logged_weights(seed)]


def logged_weights(seed: int) -> Check:
    """IPW's effective sample size on the clicks of a generated impression log, beside the exact one."""
    world = generate(table.world_settings(LOGGED_WORLD, seed))
    context, item, clicked = impression_log(world, IMPRESSIONS, seed)
    weights = ipw.inverse_propensity_weights(world.exposure[context, item][clicked], float("inf"))
    share = float(ipw.effective_sample_size(weights)) / int(clicked.sum())
    exact = measures.effective_share(1 / world.exposure, world.context_share[:, None] * world.clicks)
    return Check(f"IPW in {LOGGED_WORLD}: effective sample size on {IMPRESSIONS:,} impressions, relative error",
                 abs(share / exact - 1), "<", 0.05)
