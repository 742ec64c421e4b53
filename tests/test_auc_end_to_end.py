"""From logs to AUC: a planted taste is found, and the whole way on the Taobao sample."""
import dataclasses
import json

import numpy as np
import pytest

from clrec_tf.config import Config
from clrec_tf.config import EvaluateConfig
from clrec_tf.config import Paths
from clrec_tf.config import PrepareConfig
from clrec_tf.config import TrainConfig
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.catalogue import read_log_items
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf import evaluate
from clrec_tf.evaluation.auc_protocol import auc_metrics
from clrec_tf.models.encode import Encoder
from clrec_tf import prepare
from clrec_tf.system import json_files
from clrec_tf.training.loop import train
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import set_up
from tests import prepared_data
from tests import small_run

KINDS = ("coin_flip", "paired", "coin_flip_rebiased", "paired_rebiased")


@pytest.fixture(scope="module", name="data_dir")
def fixture_data_dir(tmp_path_factory):
    """A log in which an item is usually followed by the next one, split by users."""
    return prepared_data.prepare_text(tmp_path_factory.mktemp("log"), small_run.click_log(users=200), split="by_user",
                                      min_train_length=2, valid_share=0.2, shard_records=32)


def with_auc(settings, **changes):
    return dataclasses.replace(settings, evaluate=EvaluateConfig(ks=("10",), candidate_sets=("full",), auc=True,
                                                                 **changes))


def test_planted_successor_is_told_from_a_random_item(data_dir, tmp_path):
    settings = small_run.config(data_dir, tmp_path, model=dict(queue="in_batch"), epochs=12, learning_rate=0.03,
                                validate_every=4.0, validation_metric="auc/paired")
    assert small_run.run(settings) == 0
    result = evaluate.evaluate(with_auc(settings, untrained=True))
    assert result["auc/items"] == small_run.ITEMS and result["auc/ceiling"] == 1
    for kind in KINDS:
        assert result[f"auc/{kind}"] > 0.85 > 0.65 > result[f"untrained/auc/{kind}"], kind
        assert result[f"auc/{kind}/low"] <= result[f"auc/{kind}"] <= result[f"auc/{kind}/high"]
    assert result["most_popular/auc/paired"] < 0.65 and 0.2 < result["most_popular/auc/coin_flip"] < 0.8
    with open(tmp_path / "metrics.json", encoding="utf-8") as file:
        assert json.load(file)["auc/paired"] == result["auc/paired"]
    # The validations were by the metric that was asked for, and the best of them was kept.
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    found = {row["step"]: row["valid/auc/paired"] for row in rows if "valid/auc/paired" in row}
    assert len(found) == 3 and result["step"] == max(found, key=found.get)


def test_validation_computes_the_auc_of_the_validation_users(data_dir, tmp_path):
    settings = small_run.config(data_dir, tmp_path, validate_every=1.0, validation_metric="auc/coin_flip_rebiased")
    run = set_up(settings, LocalRuntime())
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    users, encoder = read_evaluation_set(data_dir, "valid", schema, manifest), Encoder(run.model, 6)
    catalogue = read_catalogue(data_dir, schema, manifest)
    expected = auc_metrics(encoder.user_vectors(users), encoder.compared_items(catalogue.item_rows), 0.07, users,
                           catalogue.counts, small_run.ITEMS, 0, detailed=False)
    assert run.validator.metrics() == expected and "auc/coin_flip_rebiased" in expected


def test_coins_that_all_fell_the_same_way_are_said(data_dir, tmp_path):
    settings = small_run.config(data_dir, tmp_path, validate_every=1.0, validation_metric="auc/coin_flip",
                                validation_users=1)
    with pytest.raises(UserError, match="--validation_metric=auc/coin_flip: .*use auc/paired"):
        set_up(settings, LocalRuntime()).validator.metrics()


def test_next_clicks_of_other_splits_too(tmp_path):
    data_dir = small_run.prepared(tmp_path)
    settings = small_run.config(data_dir, tmp_path / "run", epochs=1, model=dict(queue="in_batch"))
    assert small_run.run(settings) == 0
    result = evaluate.evaluate(with_auc(settings))
    assert 0 < result["auc/paired"] < 1 and result["users"] == small_run.USERS
    schema = schema_lib.load_schema(data_dir)
    assert read_log_items(data_dir, schema) == small_run.ITEMS
    report, manifest = (tmp_path / "data" / name for name in ("report.json", "manifest.json"))
    report.write_text("{}")
    with pytest.raises(DataError, match="report.json has 2 bytes, the manifest says"):
        read_log_items(data_dir, schema)
    # A folder of before the manifest had it.
    values = json_files.unsealed(json.loads(manifest.read_text()))
    del values["others"]
    manifest.write_text(json.dumps(values))
    assert read_log_items(data_dir, schema) == schema.num_items


def test_taobao_sample_from_its_file_to_the_auc(shared_data, tmp_path):
    path = str(shared_data / "taobao-sample/UserBehavior.csv.gz")
    settings = Config(
        paths=Paths(data_dir=str(tmp_path / "data"), workdir=str(tmp_path / "run")),
        prepare=PrepareConfig(format="taobao", input=path, max_bad_rows=1, split="by_user", min_train_length=2,
                              max_sequence_length=100),
        train=TrainConfig(epochs=1, target_mode="sliding", validation_metric="auc/paired")).but(embedding_dim=16, max_history=20, queue="in_batch")
    prepare.prepare(settings)
    data_dir = settings.paths.data_dir
    train_users = {record["user_id"][0]: record for record in prepared_data.read_split(data_dir, "train")}
    evaluated = {name: {record["user_id"][0]: record for record in prepared_data.read_split(data_dir, name)}
                 for name in ("valid", "test")}
    assert not set(train_users) & (set(evaluated["valid"]) | set(evaluated["test"]))
    last = {user: max(record["timestamp"]) for part in (train_users, *evaluated.values())
            for user, record in part.items()}
    assert max(last[user] for user in train_users) < min(last[user] for user in evaluated["test"])
    assert 200 < len(evaluated["test"]) <= 245  # 30 % of 815 users, those without a known history apart
    assert train(settings, LocalRuntime()) == 0
    result = evaluate.evaluate(with_auc(settings))
    assert all(np.isfinite(result[f"auc/{kind}"]) for kind in KINDS)
    # Few of so small a sample's items have a training click; among these alone a little training tells something.
    assert 0.8 < result["auc/unknown_positives"] < 0.95 and result["auc/items"] == 55_368
    assert result["auc/ceiling"] == pytest.approx(
        1 - result["auc/unknown_positives"] * result["auc/unknown_negatives"] / 2)
