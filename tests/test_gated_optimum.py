"""What Multi-CLRec's two objectives learn where nothing limits it: tables s[h,y] and w̃[h] of one context, trained on
the losses themselves against all negatives that the queues hold in the mean."""
import math

import numpy as np
import pytest

from clrec_tf.losses import auxiliary
from clrec_tf.losses import closed_forms
from clrec_tf.losses import multi_vector
import tensorflow as tf
import tf_keras

ITEMS, INTENTS, STEPS = 12, 3, 6000
INTENT = np.arange(ITEMS) % INTENTS


def world(seed):
    """(p(y|x) [V], p_d [V]) of one context of several."""
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(ITEMS)), rng.dirichlet(2 * np.ones(ITEMS))


def trained(p, popularity, numerator, vector_weight=0.0, weights=None, seed=0, intent_beta=1.0):
    """(s [H,V], log w [H], loss) after training; weights: w̃, if they are given and not learned."""
    shares = np.bincount(INTENT, weights=popularity)
    same = INTENT == np.arange(INTENTS)[:, None]
    negatives = closed_forms.intent_negatives(popularity, INTENT) * np.where(
        same, (1 + 1 / shares[:, None]) ** (intent_beta - 1), 1)
    negatives = tf.constant(negatives, tf.float32)
    shares, intents = tf.constant(p, tf.float32), tf.constant(INTENT, tf.int32)
    random = np.random.default_rng(seed)
    table = tf.Variable(0.1 * random.normal(size=(INTENTS, ITEMS)), dtype=tf.float32)
    logits = tf.Variable(0.1 * random.normal(size=INTENTS) if weights is None else weights, dtype=tf.float32)
    variables = [table] if weights is not None else [table, logits]
    rate = tf_keras.optimizers.schedules.PolynomialDecay(0.05, STEPS, 1e-5)
    optimizer = tf_keras.optimizers.Adam(rate)
    optimizer.build(variables)

    def loss():
        every = lambda values: tf.tile(values[None], [ITEMS] + [1] * len(values.shape))
        of_targets, weight_logits = tf.transpose(table), every(logits)  # [V,H]: a row for each target
        gated, log_weights = numerator == "gated", tf.nn.log_softmax(weight_logits)
        mean, _ = multi_vector.mean_log_denominator(
            every(table), intents, shares, tf.eye(ITEMS), negatives, temperature=1.0,
            log_weights=log_weights if gated else None)
        positives = (multi_vector.gated_score(multi_vector.gated_scores(of_targets, log_weights), intents) if gated
                     else multi_vector.selected_score(of_targets, weight_logits, numerator))
        extra = auxiliary.intent_cross_entropy(of_targets, intents)
        return mean + tf.reduce_sum(shares * (vector_weight * extra - positives))

    @tf.function
    def run():
        for _ in tf.range(STEPS):
            with tf.GradientTape() as tape:
                value = loss()
            optimizer.apply_gradients(zip(tape.gradient(value, variables), variables))
        return loss()

    value = float(run())
    return table.numpy().astype(float), np.log(np.exp(logits) / np.exp(logits).sum()), value


def divergence(target, scores):
    """KL(target ‖ softmax of scores)."""
    model = scores - np.logaddexp.reduce(scores)
    return float(np.sum(target * (np.log(target) - model)))


@pytest.mark.parametrize("seed, vector_weight", [(0, 0.0), (1, 1.0)])
def test_gated_is_calibrated_for_the_weighted_sum_alone(seed, vector_weight):
    p, popularity = world(seed)
    target = closed_forms.multi_queue(p[None], popularity, INTENT)[0]
    table, log_weights, _ = trained(p, popularity, "gated", vector_weight)
    assert divergence(target, np.logaddexp.reduce(table + log_weights[:, None])) < 1e-6
    for others in (np.logaddexp.reduce(table), table[np.argmax(log_weights)], table.max(axis=0)):
        assert divergence(target, others) > 1e-4


@pytest.mark.parametrize("intent_beta", [0.0, 0.5])
def test_counting_the_targets_intent_less_leaves_the_popularity_alone(intent_beta):
    p, popularity = world(3)
    target = closed_forms.multi_queue(p[None], popularity, INTENT, intent_beta)[0]
    if intent_beta == 0:
        np.testing.assert_allclose(target, closed_forms.click_queue(p[None], popularity)[0], rtol=1e-9)
    table, log_weights, _ = trained(p, popularity, "gated", intent_beta=intent_beta)
    assert divergence(target, np.logaddexp.reduce(table + log_weights[:, None])) < 2e-6
    assert divergence(closed_forms.multi_queue(p[None], popularity, INTENT)[0], np.logaddexp.reduce(
        table + log_weights[:, None])) > 1e-3


def test_short_queues_have_the_same_optimum():
    """At log p(y|x)/p(y) no gradient is left for rare items that the context likes, although a queue of 128 hardly ever
    holds them: a row's own positive counts 1. Counted as an entry of its intent it would be raised."""
    rng, items, intents, queue, rows = np.random.default_rng(0), 600, 8, 128, 8000
    popularity = 1 / np.arange(1, items + 1)
    popularity /= popularity.sum()
    intent, liked = np.arange(items) % intents, np.arange(300, 320)
    p = 0.5 * popularity
    p[liked] += 0.5 / len(liked)
    powers, shares = p / popularity, np.bincount(intent, weights=popularity)
    of_intent = [np.flatnonzero(intent == h) for h in range(intents)]
    weights = multi_vector.entry_weights(tf.constant(1e9 * shares), tf.fill([intents], queue), tf.constant(queue), 0.0)
    rest = np.exp(multi_vector.rest_of_own(tf.constant(np.log(powers)[:, None], tf.float32),
                                           tf.gather(weights, intent)))
    gradients = {once: np.zeros(items) for once in (True, False)}
    for target in rng.choice(items, rows, p=p):
        h = intent[target]
        main = np.bincount(np.append(rng.choice(items, queue - 1, p=popularity), target), minlength=items)
        own = np.bincount(rng.choice(of_intent[h], queue, p=popularity[of_intent[h]] / shares[h]), minlength=items)
        terms = (main * np.where(intent == h, weights.numpy()[h], 1) + own * weights.numpy()[h]) * powers
        for once, gradient in gradients.items():
            more = rest[target] if once else 0
            gradient += terms / (terms.sum() + more)
            gradient[target] += more / (terms.sum() + more) - 1
    left = {once: gradient[liked].sum() / rows / p[liked].sum() for once, gradient in gradients.items()}
    assert abs(left[True]) < 0.05 and left[False] < -0.1, left


@pytest.mark.parametrize("mode", ["soft", "literal"])
def test_the_papers_is_calibrated_for_the_plain_sum_alone(mode):
    p, popularity = world(2)
    target = closed_forms.multi_queue(p[None], popularity, INTENT)[0]
    table, log_weights, _ = trained(p, popularity, mode, vector_weight=1.0, weights=[2.0, 0.0, 1.0])
    assert divergence(target, np.logaddexp.reduce(table)) < 1e-6
    for others in (np.logaddexp.reduce(table + log_weights[:, None]), table[0], table.max(axis=0)):
        assert divergence(target, others) > 1e-4


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_generalist_costs_the_papers_objective_little(seed):
    """The selected vector holds everything: beyond the loss of one vector, L2 costs (1 − P)·2 log 2, P the share of the
    selected intent. So the weights collapse."""
    p, popularity = world(seed)
    share = np.bincount(INTENT, weights=p)
    weights = np.where(np.arange(INTENTS) == share.argmax(), 30.0, 0.0)
    _, _, loss = trained(p, popularity, "literal", vector_weight=1.0, weights=weights)
    target, negatives = closed_forms.multi_queue(p[None], popularity, INTENT)[0], closed_forms.intent_negatives(
        popularity, INTENT)
    single = np.sum(p * (np.log((negatives @ target)[INTENT]) - np.log(target)))
    assert abs(loss - single - (1 - share.max()) * 2 * math.log(2)) < 0.07
