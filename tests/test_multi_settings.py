"""What data and settings give Multi-CLRec: categories, content, dwell times; which are refused; and the whole way."""
import json
import os
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.config import plug_fields
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import UserError
from clrec_tf.models import build
from clrec_tf.settings.setting import choices_of
from clrec_tf.settings.setting import help_of
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import set_up
from tests import forked
from tests.prepared_data import prepare_text
from tests import small_run
from tests.test_loss_training import assert_falling
from tests.test_multi_training import LEARNING
from tests.test_multi_training import LONG_TRAINING

ROOT = pathlib.Path(__file__).parents[1]
GENRES = {item: ["", "a", "b|c", "c|d|a"][item % 4] for item in range(1, small_run.ITEMS + 1)}


# Settings of one of the models alone.
ONLY_OF = {
    **dict.fromkeys(("use_features", "feature_projection", "content_hidden", "user_encoder", "candidate_features",
                     "similarity", "mask_same_user"), "clrec"),
    **dict.fromkeys(("num_intents", "category_feature", "use_dwell", "residual", "st_mode", "st_max_ratio",
                     "routing_weight", "vector_weight", "balance_weight", "selection_weight", "balance_items",
                     "balance_hinge", "routing_confidence", "multi_objective", "intent_context",
                     "intent_margin", "intent_beta"), "multi_clrec"),
}


@pytest.fixture(scope="module", name="data_dir")
def fixture_data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("multi"), dwell_column="stayed")


@pytest.fixture(scope="module", name="rich")
def fixture_rich(tmp_path_factory):
    """Items with none, one or several genres, with one other category, and with dense vectors."""
    folder = tmp_path_factory.mktemp("rich")
    head, *rows = small_run.click_log().split()
    lines = [f"{head},genres", *(f"{row},{GENRES[int(row.split(',')[1])]}" for row in rows)]
    ids = np.arange(1, small_run.ITEMS)  # the last item has none
    np.savez(folder / "v.npz", ids=ids.astype(str), vectors=np.random.default_rng(0).normal(size=(len(ids), 5)))
    return prepare_text(folder, "\n".join(lines) + "\n", shard_records=16, feature_columns=("category",),
                        multi_feature_columns=("genres",), dense_features=str(folder / "v.npz"))


def config(data_dir, workdir="", model=None, **train_settings):
    return small_run.config(data_dir, workdir, model={**small_run.SMALL_MULTI, **(model or {})}, **train_settings)


def built(data_dir, **model):
    schema = schema_lib.load_schema(data_dir)
    return build.build_model(config(data_dir, model=model), schema, build.load_content(data_dir, schema))


def test_several_categories_or_none_and_content(rich, tmp_path):
    settings = config(rich, tmp_path, dict(category_feature="genres", feature_dims=("3",), queue="cached"), epochs=1,
                      steps_per_call=28)
    assert small_run.run(settings) == 0
    assert_falling(small_run.losses(tmp_path))
    model = built(rich, category_feature="genres", feature_dims=("3",))
    schema = schema_lib.load_schema(rich)
    names = [feature.name for feature in schema.features]
    catalogue = read_catalogue(rich, schema, schema_lib.load_manifest(rich))
    rows, place = catalogue.item_rows, names.index("genres")
    tables = dict(zip(names, model.item_encoder.feature_tables))
    assert tables["genres"].table.shape[1] == 8 and tables["category"].table.shape[1] == 3
    begin = 1 + sum(feature.width for feature in schema.features[:place])
    values = rows[:, begin:begin + schema.features[place].width]
    count = lambda item: len(GENRES[int(item)].split("|")) if GENRES[int(item)] else 0
    assert [np.count_nonzero(row) for row in values] == [count(item) for item in catalogue.original_ids]
    table = tables["genres"].table.numpy()
    expected = np.array([table[row[row > 0]].mean(axis=0) if row.any() else np.zeros(8) for row in values])
    found = model.item_encoder.categories(tf.constant(rows))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    prototypes = model.user_encoder.prototypes.numpy()
    cosines = expected @ (prototypes / np.linalg.norm(prototypes, axis=1, keepdims=True)).T
    assert model.route(tf.constant(rows)).numpy().tolist() == cosines.argmax(axis=1).tolist()  # without any: the first
    assert not model.user_encoder.route(found).numpy()[~values.any(axis=1)].any()  # and to all alike in histories
    # Content: what is not trained, read by id, and of one item unknown.
    before = model.item_vectors(tf.constant(rows)).numpy()
    assert "content" not in [variable.name.split(":")[0].split("/")[-1] for variable in model.trainable_variables]
    model.item_encoder.content.assign(-2 * model.item_encoder.content)
    moved = np.abs(model.item_vectors(tf.constant(rows)).numpy() - before).max(axis=1) > 1e-3
    assert moved.tolist() == [int(item) != small_run.ITEMS for item in catalogue.original_ids]


def user_vectors(model, dwell):
    rows = tf.constant([[item, 1 + item % 3] for item in (3, 8, 10)], tf.int64)
    items = tf.reshape(model.history_vectors(rows), [1, 3, 16])
    return model.user_intents(items, tf.constant([[True] * 3]), tf.constant([[9, 5, 2]], tf.int64),
                              None if dwell is None else tf.constant([dwell], tf.int64))[0].numpy()


@pytest.mark.parametrize("use_dwell", [True, False])
def test_dwell_times_are_read_where_they_are_wanted(data_dir, tmp_path, use_dwell):
    run = set_up(config(data_dir, tmp_path, dict(use_dwell=use_dwell, max_history=3)), LocalRuntime())
    assert ("dwell" in run.dataset().element_spec) == use_dwell == run.model.uses_dwell
    short, long, unknown = (user_vectors(run.model, dwell) for dwell in ([1, 500, 1], [500, 1, 1], [-1, -1, -1]))
    np.testing.assert_array_equal(unknown, user_vectors(run.model, None))
    assert (np.abs(short - long).max() > 1e-3) == use_dwell


@pytest.mark.parametrize("model, loss, message", [
    (dict(category_feature="brand"), {}, "--category_feature=brand is no item feature .* choose from category"),
    (dict(feature_dims=("3", "4")), {}, "--feature_dims=3,4 gives 2 widths for the 0 features beside the category"),
    (dict(feature_dims=("x",)), {}, "--feature_dims=x: widths must be integers"),
    (dict(st_mode="capped"), {}, "--st_mode=capped is read with --multi_objective=paper, not with gated: leave it out"),
    (dict(multi_objective="paper", intent_margin=3.0), {}, "--intent_margin=3.0 is read with --multi_objective=gated"),
    (dict(intent_beta=-.5), {}, "--intent_beta=-0.5: must be from 0 to 1, or -1"),
    (dict(st_mode="literal", multi_objective="paper", temperature=.02), {}, "--st_mode=literal with --temperature=0.02: .*use soft or capped"),
    (dict(queue="in_batch"), {}, "--queue=in_batch with --model=multi_clrec: .*use raw or cached"),
    (dict(mask_same_user=True), {}, "--mask_same_user=True belongs to --model=clrec, not to multi_clrec: leave it out"),
    (dict(intent_context="sum", attention_heads=2), {}, "--attention_heads=2 with --model=multi_clrec is read with "
     "--intent_context=attention, not with sum: leave it out"),
    (dict(dropout=.5), {}, "--dropout=0.5 .* is read with --intent_context=sasrec, not with attention"),
    (dict(intent_context="sasrec", transformer_heads=3), {}, "--transformer_heads=3 does not divide"),
    ({}, dict(debias_beta=.5), "--debias_beta=0.5 belongs to --model=clrec, .*leave it out"),
    ({}, dict(negatives="impressions"), "--negatives=impressions belongs to --model=clrec, .*leave it out")])
def test_settings_that_it_cannot_use_are_refused(data_dir, tmp_path, model, loss, message):
    with pytest.raises(UserError, match=message):
        small_run.run(config(data_dir, tmp_path / "run", {**model, **loss}))
    assert not os.path.exists(tmp_path / "run")


def test_data_without_item_features_is_refused(tmp_path):
    folder = small_run.prepared(tmp_path, feature_columns=())
    with pytest.raises(UserError, match="--model=multi_clrec routes clicks .*--feature_columns or --item_features, or "
                                        "use --model=clrec"):
        small_run.run(config(folder, tmp_path / "run"))
    assert not os.path.exists(tmp_path / "run")


@pytest.mark.parametrize("size", [30, 41])
def test_queues_that_a_batch_does_not_enter_are_refused(size):
    with pytest.raises(UserError, match=f"--queue_size={size} with --model=multi_clrec: .*even .*--batch_size=16"):
        config("data", model=dict(queue_size=size))
    config("data", model=dict(queue_size=32))


def test_settings_of_the_other_model_are_refused(data_dir):
    """Every one whose help says that it belongs to one model, and those that it has for itself."""
    own = {flag for flag, owner in ONLY_OF.items() if owner == "multi_clrec"}
    assert {name for name, field in plug_fields().items() if help_of(field).startswith("multi_clrec:")} == own
    other = {"clrec": "multi_clrec", "multi_clrec": "clrec"}
    for field in (plug_fields()[name] for name in ONLY_OF):
        choices, default = choices_of(field), field.default
        value = next(choice for choice in choices if choice != default) if choices else (
            not default if isinstance(default, bool) else "brand" if isinstance(default, str) else
            default / 2 if 0 < default <= 1 else default + 1)
        owner = ONLY_OF[field.name]
        settings = Config.of(model=other[owner], **{field.name: value})
        with pytest.raises(UserError, match=f"^--{field.name}={value} belongs to --model={owner}, not to "
                                            f"{other[owner]}: leave it out$"):
            settings.refuse_unread()


@pytest.mark.parametrize("values, message", [
    (dict(model="other"), "--model=other: must be one of clrec, multi_clrec"),
    (dict(num_intents=0), "--num_intents=0: must be ≥ 1"), (dict(st_max_ratio=.5), "--st_max_ratio=0.5: must be ≥ 1"),
    (dict(routing_confidence=1.5), "--routing_confidence=1.5: must be ≤ 1"),
    (dict(balance_weight=-1.0), "--balance_weight=-1.0: must be ≥ 0")])
def test_values_out_of_bounds_are_refused(values, message):
    with pytest.raises(UserError, match=message):
        Config.of(**values)


@pytest.mark.parametrize("began, goes_on", [("clrec", "multi_clrec"), ("multi_clrec", "clrec")])
def test_a_run_keeps_its_model(data_dir, tmp_path, began, goes_on):
    settings = {"clrec": small_run.config(data_dir, tmp_path), "multi_clrec": config(data_dir, tmp_path)}
    set_up(settings[began], LocalRuntime()).checkpoints.save()
    with pytest.raises(UserError, match=f"--model={goes_on} differs from {began}, .*another --workdir"):
        small_run.run(settings[goes_on])


def test_help_explains_the_settings():
    text = " ".join(command_line._help(("model", "loss"), "").split())  # pylint: disable=protected-access
    for name in ("--model (clrec|multi_clrec) [clrec]", "--num_intents [16] multi_clrec: intents H",
                 "--queue (auto|in_batch|raw|cached|all_clicks) [auto]", "each of the 1+H queues holds Q/2"):
        assert name in text
    for flag in ONLY_OF:
        assert f"--{flag} " in text


def command(module, *flags, **kwargs):
    done = forked.run([sys.executable, "-m", f"clrec_tf.{module}", *flags], capture_output=True, text=True,
                      cwd=ROOT, check=False, **kwargs)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_from_log_to_results_on_the_command_line(tmp_path):
    """A planted successor: as an item is usually followed by the next one, the commands find it again."""
    (tmp_path / "log.csv").write_text(small_run.click_log(users=120))
    command("train", "--stages=prepare,train,evaluate,export", f"--input={tmp_path}/log.csv", "--shard_records=16",
            "--feature_columns=category", "--dwell_column=stayed", f"--data_dir={tmp_path}/data",
            f"--workdir={tmp_path}/run", *(f"--{name}={value}" for name, value in {
                **small_run.SMALL_MULTI, **small_run.SMALL_TRAIN, **LEARNING, **LONG_TRAINING, "epochs": 15,
                "queue_size": 40}.items()), "--candidate_sets=full", "--ks=3", "--recall_k=3", "--export_users=50")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["hr@3/full"] > 0.5  # by chance a tenth, the share of what is unseen a little more
    users = [dict(history=[(item - back) % 30 + 1 for back in (3, 2, 1)], timestamps=[0, 400, 800], request_time=1200,
                  dwell=[9, -1, 300]) for item in range(1, 31)]
    lines = command("retrieve", f"--workdir={tmp_path}/run", "--k=3", "--exclude_seen", "--intents=1",
                    input="".join(json.dumps(user) + "\n" for user in users)).splitlines()
    hits = [user["history"][-1] % 30 + 1 in json.loads(line)["ids"] for user, line in zip(users, lines, strict=True)]
    assert np.mean(hits) > 0.6 and list(json.loads(lines[0])["weights"])
