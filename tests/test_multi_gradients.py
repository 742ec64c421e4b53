"""The gradient of Multi-CLRec's whole loss against automatic differentiation of its formulas, written row by row.

What no figure of the loss shows: where a gradient is stopped, and where it must not be.
"""
import numpy as np
import pytest

from clrec_tf.models.multi_clrec import MultiCLRecSettings
from tests import tiny_multi
from tests.tiny_multi import TEMPERATURE
import tensorflow as tf

MARGIN = 1.5
WEIGHTS = dict(routing_weight=0.5, vector_weight=2.0, balance_weight=3.0, selection_weight=0.7)


def l2(vectors):
    return vectors / tf.norm(vectors, axis=-1, keepdims=True)


def cosines(vectors, others):
    """Over the temperature: [N,d], [M,d] -> [N,M]."""
    return l2(vectors) @ tf.transpose(l2(others)) / TEMPERATURE


def mlp(layer, *parts):
    hidden = tf.tanh(tf.concat(parts, axis=1) @ layer.first_kernel + layer.first_bias)
    return hidden @ layer.last_kernel + layer.last_bias


def items_of(model, ids):
    """g and c of ids."""
    encoder, ids = model.item_encoder, np.asarray(ids)
    category = tf.gather(encoder.feature_tables[0].table, tiny_multi.CATEGORY[ids])
    return mlp(encoder.mlp, tf.gather(encoder.ids.table, ids), category), category


def of_row(model, queues, history, target, mode):
    """(the row's loss without balance, p_{h|item} of its clicks and target)."""
    users, (g, c), (goal, goal_category) = model.user_encoder, items_of(model, history), items_of(model, [target])
    position = tf.gather(users.position_table.table, np.arange(len(history)))
    importance = tf.nn.softmax(mlp(users.importance_mlp, g, c, position), axis=0)
    routing = tf.nn.softmax(cosines(c, users.prototypes))
    z = mlp(users.intent_mlp, tf.transpose(routing) @ (importance * g), users.biases)
    interest = mlp(users.interest_mlp, tf.reduce_sum(importance * g, axis=0, keepdims=True))
    weight_logits, scores = cosines(interest, z)[0], cosines(goal, z)[0]
    selection = cosines(interest, tf.stop_gradient(z))[0]
    target_logits = cosines(goal_category, users.prototypes)[0]
    intent = int(tf.argmax(target_logits))
    compared = items_of(model, [*queues.main, *queues.own[intent]])
    log_z = tf.reduce_logsumexp(cosines(z, compared[0]))
    weights, chosen = tf.nn.softmax(weight_logits), tf.one_hot(tf.argmax(weight_logits), model.num_intents)
    if mode == "gated":
        log_weights = tf.math.log(weights)
        of_candidates = tf.argmax(cosines(compared[1], users.prototypes), axis=1)
        margins = MARGIN * tf.transpose(tf.one_hot(of_candidates, model.num_intents))
        log_z = tf.reduce_logsumexp(cosines(z, compared[0]) + margins + log_weights[:, None])
        scores += MARGIN * tf.one_hot(intent, model.num_intents)
    straight = tf.stop_gradient(chosen - weights) + weights
    if mode == "gated":
        selected = scores[intent] + log_weights[intent]
    elif mode == "literal":
        selected = tf.math.log(tf.reduce_sum(straight * tf.exp(scores)))
    else:
        selected = tf.math.log(tf.reduce_sum(weights * tf.exp(scores)))
        selected += tf.stop_gradient(tf.reduce_sum(chosen * scores) - selected)
    loss = log_z - selected
    for name, logits in (("routing_weight", target_logits), ("vector_weight", scores), ("selection_weight", selection)):
        loss -= WEIGHTS[name] * tf.nn.log_softmax(logits)[intent]
    return loss, tf.concat([routing, tf.nn.softmax(target_logits)[None]], axis=0)


def formula(model, queues, batch, mode):
    """Enqueues; the weighted mean of the rows' losses, and the balance of all their items."""
    queues.enqueue(batch)
    losses, routed, weights = [], [], batch["weight"].numpy()
    for row in np.flatnonzero(weights):
        history = [item for item in batch["history"].numpy()[row, :, 0] if item]
        loss, routing = of_row(model, queues, history, batch["target"].numpy()[row, 0], mode)
        losses.append(weights[row] * loss)
        routed.append(routing)
    shares = tf.reduce_mean(tf.concat(routed, axis=0), axis=0)
    balance = -tf.reduce_mean(tf.math.log(shares * model.num_intents))
    return tf.add_n(losses) / weights.sum() + WEIGHTS["balance_weight"] * balance


def gradients_of(loss, variables, tape):
    return [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]


@pytest.mark.parametrize("mode", ["literal", "soft", "gated"])
@pytest.mark.parametrize("item_rows", [10**6, 1])
def test_gradient_of_the_whole_loss(mode, item_rows):
    """Over steps that move the model, so that items are routed otherwise when they leave the main queue."""
    objective = "gated" if mode == "gated" else "paper"
    model = tiny_multi.tiny_model(5, MultiCLRecSettings(multi_objective=objective, intent_margin=MARGIN, **WEIGHTS))
    rng = np.random.default_rng(5)
    objective = tiny_multi.objective_of("raw", model, 7, item_rows, "soft" if mode == "gated" else mode)
    queues, variables = tiny_multi.Loops(model, 7), model.trainable_variables
    for size in (7, 7, 1, 7):
        batch = tiny_multi.random_batch(rng, size)
        with tf.GradientTape() as tape:
            loss = objective.open().loss(batch)
        found = gradients_of(loss, variables, tape)
        with tf.GradientTape() as tape:
            wanted = formula(model, queues, batch, mode)
        np.testing.assert_allclose(loss, wanted, rtol=1e-5)
        for gradient, expected in zip(found, gradients_of(wanted, variables, tape)):
            np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-5)
        for variable, gradient in zip(variables, found):
            variable.assign_sub(0.3 * gradient)
    assert sum(len(queue) > 0 for queue in queues.own) > 1
