"""The stochastic check of the multi-queue: its view of the queues, its loss by hand, and that it tells defects from
the method."""
import numpy as np
import pytest

from clrec_tf.lab.proof import exposure_simulator
from clrec_tf.lab.proof import measures
from clrec_tf.lab.proof import stochastic
from clrec_tf.lab.proof import table_checks
from clrec_tf.lab.proof import tabular_intents
from clrec_tf.lab.proof import tabular_losses
import tensorflow as tf

SIMULATION = exposure_simulator.tabular_simulation()
CASES = {case.name: case for case in tabular_losses.cases(SIMULATION, mask_hits=False)}
MULTI, BY_CONTEXT = CASES["multi-queue"], CASES["multi-queue, by the context's intent"]


def test_loss_by_hand(monkeypatch):
    """e^φ = (1,2,4) in both rows; positives 2 and 0. Intent 0 is compared with (2,0,1) of the items, intent 1 with
    (1,1,3): denominators 2+4 = 6 and 1+2+12 = 15, logarithms averaged."""
    monkeypatch.setattr(tabular_intents, "BATCH", 2)
    step = tabular_intents.IntentStep(
        tf.math.log([[1., 2., 4.], [1., 2., 4.]]), None, tf.constant([2, 0]), None, None, None,
        compared_with=tf.constant([1, 0]), counts=tf.constant([[2., 0., 1.], [1., 1., 3.]]),
        entry_weights=None)
    mean = (np.log(6) + np.log(15)) / 2
    np.testing.assert_allclose(tabular_intents.multi_queue(step).numpy(), [mean - np.log(4), mean], rtol=1e-6)


def test_favourite_intents_by_hand():
    """Items 0 and 2 are of intent 1: .6 of the first context's clicks, .3 of the second's."""
    clicks, intent = np.array([[.3, .4, .3], [.1, .7, .2]]), np.array([1, 0, 1])
    assert tabular_intents.favourite_intents(clicks, intent).tolist() == [1, 0]


def test_target_is_stationary_and_far_from_a_single_queues():
    """Otherwise one queue that pretends to be many would pass."""
    assert table_checks.multi_queue_gradient(MULTI.target, SIMULATION) < table_checks.EXACT
    assert measures.divergence(MULTI.target, CASES["click queue"].target) > stochastic.MISSED
    assert BY_CONTEXT.target is MULTI.target and BY_CONTEXT.defect and not MULTI.defect


@pytest.mark.parametrize("case", [MULTI, BY_CONTEXT], ids=["method", "defect"])
def test_a_loss_sees_full_queues_of_which_the_main_one_has_this_steps_items(case):
    """Whoever feeds the intents' queues from the batch puts a positive into its denominator twice."""
    intents, items = tf.constant(SIMULATION.intent, tf.int32), SIMULATION.exposure.shape[1]
    favourite = tf.constant(tabular_intents.favourite_intents(SIMULATION.clicks, SIMULATION.intent), tf.int32)

    def probe(step):
        assert step.queued.shape == (tabular_intents.CAPACITY,) and step.counts.shape == (4, items)
        tf.debugging.assert_equal(tf.gather(step.queued, step.slots), step.positives)
        own = step.counts - tf.reduce_sum(tf.one_hot(step.queued, items), axis=0)
        tf.debugging.assert_equal(tf.reduce_sum(own, axis=1), tf.fill([4], float(tabular_intents.CAPACITY)))
        elsewhere = tf.one_hot(intents, 4, on_value=0., off_value=1., axis=0)
        tf.debugging.assert_equal(tf.reduce_sum(own * elsewhere), 0.)
        expected = tf.gather(intents, step.positives) if case is MULTI else tf.gather(favourite, step.contexts)
        tf.debugging.assert_equal(step.compared_with, expected)
        return step.positive_logits

    trainer = case.trainer(SIMULATION, probe, case.queue, 0, 10)
    trainer.train()
    queue = trainer._queue  # pylint: disable=protected-access
    opened = queue.open()
    # The last clicks are in the main queue, and whatever an intent's queue has came before all of them.
    in_main, in_own = opened.main.read("entered").numpy(), opened.read("entered").numpy()
    assert sorted(set(in_main)) == list(range(45, 50)) and in_own.max() == 44


@pytest.mark.slow
@pytest.mark.parametrize("case", [MULTI, BY_CONTEXT], ids=["method", "defect"])
def test_multi_queue_reaches_its_fixed_point_unless_the_context_picks_the_queue(case):
    """With another seed than the command's run."""
    kl = stochastic.train_case(case, SIMULATION, seed=1)["kl_own_target"]
    assert (kl > stochastic.MISSED) if case.defect else (kl < stochastic.REACHED)
