"""--event_weights: what targets of a behaviour count in the loss, from the log to the batch, and what is learned then."""
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.data.assignments import Assignments
from clrec_tf.data.epoch_plan import EpochPlan
from clrec_tf.data.input_pipeline import training_dataset
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import UserError
from clrec_tf.losses.contrastive import weighted_mean
from tests.local_cluster import queue_of
from tests.local_cluster import values
from tests.prepared_data import prepare_text
from tests.prepared_data import read_split
from tests import small_run

WEIGHTS = {"buy": 3.0, "cart": 2.0, "pv": 1.0, "fav": 0.0}
FLAG = tuple(f"{kind}:{weight:g}" for kind, weight in WEIGHTS.items())


def text_of(users: int = 30) -> str:
    """Each click of another behaviour than its neighbours; every eighth has none."""
    rng, lines, kinds = np.random.default_rng(0), ["user_id,item_id,timestamp,behaviour"], [*WEIGHTS]
    for user in range(users):
        for click in range(12):
            kind = "" if (user + click) % 8 == 7 else kinds[(user + click) % 4]
            lines.append(f"{user},{rng.integers(1, 20)},{1_600_000_000 + 1000 * user + click},{kind}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module", name="data_dir")
def fixture_data_dir(tmp_path_factory):
    return prepare_text(tmp_path_factory.mktemp("events"), text_of(), event_column="behaviour", event_weights=FLAG,
                        shard_records=8)


def test_clicks_carry_their_behaviour(data_dir):
    schema = schema_lib.load_schema(data_dir)
    assert dict(schema.event_weights) == WEIGHTS
    for record in read_split(data_dir, "train"):
        user = record["timestamp"][0] // 1000 % 1000
        assert record["event"] == [0 if (user + click) % 8 == 7 else 1 + (user + click) % 4
                                   for click in range(len(record["item_id"]))]
    report = json.loads((pathlib.Path(data_dir) / "report.json").read_text())
    assert sum(report["events"].values()) == 360 and set(report["events"]) == {*WEIGHTS, "(none)"}


@pytest.mark.parametrize("mode", ["sliding", "last", "all"])
def test_targets_have_the_weight_of_their_behaviour(data_dir, mode):
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    plan = EpochPlan(manifest.shards["train"], 16, 2, mode, 0, 6)
    of_second = {}
    for record in read_split(data_dir, "train"):
        for item, second, event in zip(record["item_id"], record["timestamp"], record["event"]):
            of_second[record["user_id"][0], second] = [1.0, *WEIGHTS.values()][event]
    expected, found = [], []
    for record in read_split(data_dir, "train"):
        times = record["timestamp"][-1:] if mode == "last" else record["timestamp"][1:]
        expected += [(record["user_id"][0], of_second[record["user_id"][0], second]) for second in times]
    for batch in training_dataset(data_dir, schema, manifest, plan, Assignments(plan, 1).remaining(), 6):
        found += [*zip(batch["user_id"].numpy(), batch["weight"].numpy())]
    counted = lambda pairs: sorted(pair for pair in pairs if pair[1] > 0)  # rows that pad a batch weigh 0 too
    assert counted(found) == counted(expected) and len({weight for _, weight in expected}) == 4


def test_a_training_reads_them_and_targets_of_weight_0_teach_nothing(data_dir, tmp_path):
    settings = small_run.config(data_dir, tmp_path / "run")
    assert small_run.run(settings) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    trained = sum(len(record["event"][1:]) - record["event"][1:].count(4) for record in read_split(data_dir, "train"))
    assert max(row.get("queue_fill", 0) for row in rows) == small_run.SMALL_MODEL["queue_size"]
    assert queue_of(values(tmp_path / "run"), "count", 0) == 2 * trained  # in two epochs


def test_what_is_learned_is_the_weighted_distribution_over_the_queues():
    """Σ_e w_e p(y,e|x) / Σ_y …, over the unweighted p(y) of the queue: there the gradient is 0, elsewhere it is not."""
    rng = np.random.default_rng(0)
    joint = rng.dirichlet(np.ones(12), 3).reshape(3, 4, 3)  # p(y,e|x) of 3 contexts, 4 items, 3 behaviours
    weights, popularity = np.array([3.0, 2.0, 1.0]), joint.sum(2).mean(0)
    weighted = joint @ weights
    optimum = np.log(weighted / weighted.sum(1, keepdims=True) / popularity)

    def gradient(scores):
        scores = tf.constant(scores)
        with tf.GradientTape() as tape:
            tape.watch(scores)
            negatives = tf.reduce_logsumexp(scores + np.log(popularity), axis=1)
            rows = tf.reshape(negatives[:, None, None] - scores[:, :, None] + tf.zeros([3, 4, 3], tf.float64), [-1])
            loss = weighted_mean(rows, tf.constant((joint * weights).reshape(-1)))
        return np.abs(tape.gradient(loss, scores).numpy()).max()

    assert gradient(optimum) < 1e-12 < 1e-3 < gradient(np.log(joint.sum(2) / popularity))


@pytest.mark.parametrize("settings, said", [
    (dict(event_weights=("buy",)), "'buy' must be a behaviour and a weight"),
    (dict(event_weights=("buy:-1",)), "'buy:-1' must be a behaviour and a weight"),
    (dict(event_weights=("buy:0", "pv:0", "cart:0", "fav:0")), "weigh 0 teaches nothing"),
    (dict(event_weights=("buy:2", "pv:1", "cart:1")), "fav has no weight"),
    (dict(event_weights=(*FLAG, "like:1")), "like is not in the log, which has buy, cart, fav, pv"),
    (dict(event_column=""), "the log has no behaviours; give --event_column, which")])
def test_bad_weights_are_told(tmp_path, settings, said):
    with pytest.raises(UserError, match=said):
        prepare_text(tmp_path, text_of(), **{**dict(event_column="behaviour", event_weights=FLAG), **settings})
