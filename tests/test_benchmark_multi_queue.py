"""The suite multi_queue: that what it compares is comparable, and all of it once in small."""
import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf import benchmark
from clrec_tf.encoders.intents import IntentSettings
from clrec_tf.encoders.multi_att import MultiAttSettings
from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks import denominators
from clrec_tf.lab.benchmarks import intent_steps
from clrec_tf.lab.benchmarks import multi_clrec_speed
from clrec_tf.lab.benchmarks.workload import draw_batches
from clrec_tf.lab.benchmarks.workload import GeneratedItems
from clrec_tf.lab import children
from tests.test_benchmarks import SMALL

ITEMS = GeneratedItems(1000, features=True)
RATIOS = {"loss_vs_bare_matmul_H2", "loss_vs_bare_matmul_H3", "multi_vs_single_step_time_H2",
          "grouped_vs_brute_force_time_H2", "grouped_vs_brute_force_memory_H2"}


def test_all_paths_are_of_one_loss():
    inputs = denominators.Inputs(denominators.LossSizes(5, 3, 4, 8, .07, denominators.UNEVEN), 7)
    grouped, brute = inputs.grouped()(), inputs.brute_force()()
    np.testing.assert_allclose([float(part) for part in grouped], [float(part) for part in brute], rtol=1e-4)
    # The cached loss is the same; of its gradients only the main candidates' is there, the first four being live.
    np.testing.assert_allclose([float(part) for part in inputs.cached()()], [float(part) for part in grouped[:-1]],
                               rtol=1e-4)
    # By counts: Σ over items of n·e^s, 4 of the main queue and 4 of an intent's.
    assert inputs.counts.numpy().sum(axis=1).tolist() == [8, 8, 8]
    scores = np.einsum("bhd,vd->bhv", inputs.vectors, inputs.items) / .07
    counts = inputs.counts.numpy()[inputs.intents.numpy()]
    log_z = np.log((counts[:, None, :] * np.exp(scores)).sum(axis=(1, 2)))
    own = np.einsum("bhd,bd->bh", inputs.vectors, inputs.positives) / .07
    selected = own[np.arange(5), inputs.weight_logits.numpy().argmax(axis=1)]
    assert float(inputs.counted()()[0]) == pytest.approx((log_z - selected).mean(), rel=1e-5)


def test_bare_products_are_the_three_of_the_loss():
    inputs = denominators.Inputs(denominators.LossSizes(5, 3, 4, 8, .07), 7)
    graph = inputs.products(8, 4).get_concrete_function().graph
    shapes = [node.outputs[0].shape.as_list() for node in graph.get_operations() if node.type == "MatMul"]
    assert shapes == [[15, 8], [15, 8], [4, 8]]  # logits of 8 candidates; by vectors; by the 4 with gradient


def test_both_models_share_the_item_encoder():
    steps = intent_steps.ComparedSteps(SMALL, ITEMS, 3, kinds=("raw",))
    single, multi = steps.models["single"], steps.models["multi"]
    batch = {name: tf.constant(values[0]) for name, values in draw_batches(ITEMS, SMALL, 1).items()}
    np.testing.assert_allclose(single.encode(batch).positives, multi.encode(batch).positives, atol=1e-6)
    shared = {id(variable) for variable in multi.item_encoder.trainable_variables}
    assert shared <= {id(variable) for variable in single.trainable_variables} and len(shared) > 4
    assert multi.num_intents == 3 and single.num_intents == 1
    # As many candidates for each row: the main queue's and one intent's, together those of the single queue.
    queues = steps.objectives["multi", "raw"].queue, steps.objectives["single", "raw"].queue
    assert queues[0].capacity + queues[0].main.capacity == queues[1].capacity == 10


@pytest.mark.slow
@pytest.mark.long
def test_queues_are_full_and_both_learn():
    steps = intent_steps.ComparedSteps(SMALL, ITEMS, 2)
    batches = draw_batches(ITEMS, SMALL, intent_steps.STEPS)
    for side, objective in steps.objectives.items():
        call = steps.call(*side, batches)
        fill = objective.queue.open().fill()
        assert np.all(fill.numpy() == objective.queue.capacity)
        assert float(call()["trained"]) == intent_steps.STEPS


def test_settings_of_the_other_model_are_left_out():
    settings = SMALL.but(attention_heads=2, num_intents=5, embedding_dim=8)
    multi, single = (intent_steps.of_model(settings, name, 3) for name in ("multi_clrec", "clrec"))
    # What --intent_context reads is of both.
    assert multi.encoder == IntentSettings(num_intents=3, attention_heads=2)
    assert single.encoder == MultiAttSettings(attention_heads=2) and "num_intents" not in single.plugs
    assert multi.model.embedding_dim == single.model.embedding_dim == 8


def test_half_a_queue_must_hold_a_batch():
    with pytest.raises(UserError, match="--queue_size=6: half of it .*--batch_size=4"):
        multi_clrec_speed.run(SMALL.but(queue_size=6))


def in_child_for_memory(function, config, *arguments):
    """Times are taken in this process, where the code of a step is translated once."""
    if function is denominators.peak_growth:
        return children.in_child(function, config, *arguments)
    return function(config, *arguments)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("quick_children")
def test_suite_in_small(tmp_path, monkeypatch):
    for name, value in dict(INTENTS=(2, 3), DIM=8, COUNTED_ITEMS=50, CATALOGUES=(200.0, 400.0),
                            in_child=in_child_for_memory).items():
        monkeypatch.setattr(multi_clrec_speed, name, value)
    path = tmp_path / "figures.json"
    benchmark.main(dataclasses.replace(SMALL, benchmark=dataclasses.replace(
        SMALL.benchmark, suite=("multi_queue",), json=str(path))))
    found = json.loads(path.read_text())
    assert RATIOS <= set(found["ratios"]) and all(value > 0 for value in found["ratios"].values())
    figures = found["multi_queue"]
    # By the formula: 4 bytes, 4 rows, 3 intents, 4 queues of 5.
    assert figures["brute_force_logits_bytes"]["3"] == 4 * 4 * 3 * 4 * 5 and "brute_force" not in figures["memory"]["3"]
    assert set(figures["memory"]["2"]) == {"grouped", "counted", "brute_force"}
    assert set(figures["steps"]["2"]["intent_queues_filled"].values()) == {1.0}
    assert set(figures["grouped_vs_counted_step"]) == {"1000", "2000"}
