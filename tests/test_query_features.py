"""Features of users and requests: prepared as plain loops number them, batched and evaluated as they were prepared."""
import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.data.assignments import Assignments
from clrec_tf.data.catalogue import read_feature_values
from clrec_tf.data.epoch_plan import EpochPlan
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data.input_pipeline import training_dataset
from clrec_tf.data.query_features import bins_of
from clrec_tf.data.query_features import context_feature
from clrec_tf.data.query_features import QueryFeature
from clrec_tf.data import schema as schema_lib
from clrec_tf.encoders.query import QueryEncoder
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation.query_features import bounds_of
from tests import query_world
from tests.prepared_data import prepare_text
from tests.prepared_data import read_split

NAMES = [f"u{user}" for user in range(query_world.USERS)]  # by number: as users first come in the log
KEYS = ("u:gender", "u:age", "c:country", "c:hour", "c:tags")


@pytest.fixture(scope="module", name="data_dir")
def _data_dir(tmp_path_factory):
    return query_world.prepared(tmp_path_factory.mktemp("query"))


def batches(data_dir, mode="sliding"):
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    plan = EpochPlan(manifest.shards["train"], 16, 2, mode, 0, 6)
    return list(training_dataset(data_dir, schema, manifest, plan, Assignments(plan, 1).remaining(), 6)
                .as_numpy_iterator())


def test_facts_of_the_schema(data_dir):
    facts, _ = query_world.naive_rows()
    schema, values = schema_lib.load_schema(data_dir), read_feature_values(data_dir)
    assert tuple(feature.key for feature in schema.query_features) == KEYS
    assert [feature.kind for feature in schema.query_features] == ["category", "number", "category", "number", "list"]
    assert values["c:country"] == facts["countries"] and values["c:tags"] == facts["tags"]
    assert values["u:gender"] == facts["genders"] and "c:hour" not in values
    by_key = {feature.key: feature for feature in schema.query_features}
    assert list(by_key["c:hour"].bounds) == facts["hours"] and list(by_key["u:age"].bounds) == facts["ages"]
    assert by_key["c:hour"].rows == len(facts["hours"]) + 2 and by_key["c:country"].rows == 4
    assert by_key["c:tags"].width == 2 and "XX" not in facts["countries"]
    assert [feature.input for feature in schema.query_features][:3] == ["user_gender", "user_age", "context_country"]
    report = json.load(open(f"{data_dir}/report.json", encoding="utf-8"))["query_features"]
    assert report["c:country"]["values"] == 3 and 0 < report["c:hour"]["missing"] < .3


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_records_hold_what_a_loop_numbers(data_dir, split):
    _, rows = query_world.naive_rows()
    names, seen = NAMES, 0
    for record in read_split(data_dir, split):
        expected = {second: context for second, _, context in rows[names[record["user_id"][0]]]}
        profile = rows[names[record["user_id"][0]]][0][1]
        assert record["u:gender"] + record["u:age"] == profile
        for place, second in enumerate(record["timestamp"]):
            found = [record["c:country"][place], record["c:hour"][place], *record["c:tags"][2 * place:2 * place + 2]]
            assert found == expected[second]
            seen += 1
    assert seen > 100
    if split == "test":
        assert {0} == {record["c:country"][-1] for record in read_split(data_dir, split) if record["user_id"] == [5]}


@pytest.mark.parametrize("mode", ["last", "sliding", "all"])
def test_batches_ask_in_the_context_of_the_target(data_dir, mode):
    _, rows = query_world.naive_rows()
    records = {record["user_id"][0]: record for record in read_split(data_dir, "train")}
    names, seen = NAMES, 0
    for batch in batches(data_dir, mode):
        if mode == "all":
            clicks = batch["history"][:, :, 0].reshape(-1)[batch["row"]]
        for place in np.flatnonzero(batch["weight"] > 0):
            user = int(batch["user_id"][place])
            queries = {tuple(profile + context) for _, profile, context in rows[names[user]]}
            assert tuple(batch["query"][place].tolist()) in queries
            items = records[user]["item_id"]
            last = clicks[place] if mode == "all" else batch["history"][place, batch["length"][place] - 1, 0]
            # Where target and the click before it stand together once only, the request is known exactly.
            found = [at for at in range(1, len(items)) if (items[at - 1], items[at]) == (last, batch["target"][place, 0])]
            if len(found) == 1:
                _, profile, context = rows[names[user]][found[0]]
                assert batch["query"][place].tolist() == profile + context
                seen += 1
    assert seen > 20


@pytest.mark.parametrize("mode", ["sliding", "all"])
def test_batches_have_the_behaviour_of_each_click(data_dir, mode):
    of_user = {record["user_id"][0]: dict(zip(zip(record["item_id"], record["timestamp"]), record["event"]))
               for record in read_split(data_dir, "train")}
    for batch in batches(data_dir, mode):
        width = batch["history"].shape[1]
        mask = np.arange(width) < batch["length"][:, None]
        assert (batch["event"][~mask] == 0).all() and set(batch["event"][mask]) <= {1, 2}
        if mode == "sliding":
            for row in np.flatnonzero(batch["weight"] > 0):
                known = {item: {kind for (other, _), kind in of_user[batch["user_id"][row]].items() if other == item}
                         for item, _ in of_user[batch["user_id"][row]]}
                for item, kind in zip(batch["history"][row, mask[row], 0], batch["event"][row, mask[row]]):
                    assert kind in known[item]


def test_evaluated_users_ask_in_the_context_of_their_first_target(data_dir):
    _, rows = query_world.naive_rows()
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    users, names = read_evaluation_set(data_dir, "test", schema, manifest), NAMES
    for place, user in enumerate(users.user_ids):
        _, profile, context = rows[names[user]][-1]
        assert users.query[place].tolist() == profile + context
    some = users.take(np.array([3, 1]))
    assert some.query.tolist() == users.query[[3, 1]].tolist()
    found = users.histories(2, 4, 5)
    assert found.query.tolist() == users.query[2:4].tolist() and found.events.shape == (2, 5)
    assert (found.events[found.mask] > 0).all() and (found.events[~found.mask] == 0).all()
    cut = users.random_prefixes(0)
    for place, user in enumerate(cut.user_ids):
        kept = int(np.diff(cut.history_splits)[place])
        _, profile, context = rows[names[user]][kept]  # the click that followed
        assert cut.query[place].tolist() == profile + context


def test_bounds_and_bins():
    rng = np.random.default_rng(0)
    for bins in (2, 3, 16):
        numbers = rng.integers(0, 9, 200).astype(np.float32) / 4
        distinct, counts = np.unique(numbers, return_counts=True)
        bounds = bounds_of(distinct, counts, bins)
        expected = sorted(set(numbers))[1:] if bins >= 9 else query_world.naive_bounds(numbers.tolist(), bins)
        assert list(bounds) == expected
        assert bins_of(numbers, bounds).tolist() == [query_world.naive_bin(value, bounds) for value in numbers]
    assert bins_of([np.nan, np.inf, -np.inf, -5, 0, 1, 7], (0.0, 1.0)).tolist() == [0, 0, 0, 1, 2, 3, 3]
    assert bounds_of(np.array([4.0], np.float32), np.array([3.0]), 4) == ()


def test_the_feature_of_debias_context():
    """By its name in the log or in requests; two of one name are told apart by the latter only."""
    features = (QueryFeature("g", "user", "category", 4, 1), QueryFeature("g", "context", "category", 5, 1),
                QueryFeature("h i", "context", "number", 4, 1))
    assert context_feature("user_g", features) == features[0] and context_feature("context_g", features) == features[1]
    assert context_feature("h i", features) == context_feature("context_h_i", features) == features[2]
    with pytest.raises(UserError, match="--debias_context=g is .* users and one of requests: give user_g or context_g"):
        context_feature("g", features)
    with pytest.raises(UserError, match="--debias_context=x is no feature of .*: choose from g, h i"):
        context_feature("x", features)


def test_query_encoder_is_its_formula():
    features = QueryFeature("c", "context", "category", 4, 1), QueryFeature("t", "context", "list", 5, 3)
    layer, rng = QueryEncoder(features, 6, 0), np.random.default_rng(0)
    users = rng.normal(size=(4, 6)).astype(np.float32)
    rows = np.array([[1, 2, 0, 4], [0, 0, 0, 0], [3, 1, 1, 1], [2, 0, 3, 0]])
    one, two = (table.table.numpy().astype(float) for table in layer.tables)
    mlp = layer.mlp
    for row, found in enumerate(layer(tf.constant(users), tf.constant(rows)).numpy()):
        told = np.zeros(6)
        if rows[row, 0]:
            told += one[rows[row, 0]]
        tags = [two[tag] for tag in rows[row, 1:] if tag]
        if tags:
            told += np.mean(tags, axis=0)
        hidden = np.tanh(np.concatenate([users[row], told]) @ mlp.first_kernel.numpy() + mlp.first_bias.numpy())
        np.testing.assert_allclose(found, users[row] + told + hidden @ mlp.last_kernel.numpy() + mlp.last_bias.numpy(),
                                   atol=1e-5)
    np.testing.assert_array_equal(layer(tf.constant(users)), layer(tf.constant(users), tf.zeros([4, 4], tf.int64)))


def test_a_grown_vocabulary_keeps_numbers_and_bounds(data_dir, tmp_path):
    before, names = schema_lib.load_schema(data_dir), read_feature_values(data_dir)
    later = query_world.log_text(3).replace("16000", "16001").replace(",FR,", ",IT,")
    grown = prepare_text(tmp_path, later, **{**query_world.SETTINGS, "vocabulary_from": data_dir,
                                             "user_features": str(users_file(tmp_path))})
    now, values = schema_lib.load_schema(grown), read_feature_values(grown)
    assert values["c:country"] == [*names["c:country"], "IT"] and values["u:gender"] == names["u:gender"]
    bounds = lambda schema: {feature.key: feature.bounds for feature in schema.query_features}
    assert bounds(now) == bounds(before)
    with pytest.raises(DataError, match="has hour as number, this call as category: name it hour:number"):
        prepare_text(tmp_path, later, **{**query_world.SETTINGS, "context_columns": ("country", "hour", "tags:list"),
                                         "vocabulary_from": data_dir, "user_features": str(users_file(tmp_path))},
                     name="other")


def test_unknown_values_of_a_list_take_no_place(tmp_path):
    """As in requests: the last click's only known tag stands behind two that training did not meet."""
    tags = lambda item: "no|none|b" if item == 8 else "a|b"
    rows = [f"u{user},{item + 1},{1_600_000_000 + 10 * item + user},{tags(item)}"
            for user in range(5) for item in range(9)]
    text = "user_id,item_id,timestamp,tags\n" + "\n".join(rows) + "\n"
    data_dir = prepare_text(tmp_path, text, context_columns=("tags:list",))
    b = 1 + read_feature_values(data_dir)["c:tags"].index("b")
    assert all(record["c:tags"][-2:] == [b, 0] for record in read_split(data_dir, "test"))


def test_columns_that_are_no_context_are_doubted(tmp_path, caplog):
    """The item's category, the country, which has items of its own, and a column without values."""
    query_world.prepared(tmp_path, context_columns=("hour", "category", "tags:list", "country"))
    found = [record.getMessage() for record in caplog.records if "is nearly the same" in record.getMessage()]
    assert [text.split()[1] for text in found] == ["category", "country"]
    assert "(1.00, where 1 is always" in found[0] and "give it as --feature_columns" in found[0]
    (tmp_path / "none.csv").write_text("user_id,gender,age\nu1,,\nu2,,x\n")
    prepare_text(tmp_path, query_world.log_text(), user_features=str(tmp_path / "none.csv"), name="none",
                 user_feature_columns=("gender",))
    assert "gender has no value in the training part, so that nothing is learned of it: leave it out" in caplog.text


def users_file(folder):
    path = folder / "users.csv"
    path.write_text(query_world.user_text(), encoding="utf-8")
    return path


@pytest.mark.parametrize("settings,message", [
    (dict(context_columns=("contry",)), "--context_columns=contry: .*has no column 'contry': choose from .*'country'"),
    (dict(context_columns=("country", "country:list")), "--context_columns=country,country:list names country twice"),
    (dict(context_columns=("country:number",)), "column 'country' holds no number, but such as '(DE|FR|US)'"),
    (dict(context_columns=("country:text",)), "'country:text': choose .*; kinds are :list and :number, and a"),
    (dict(context_columns=("country", "item_id")), "item_id is the item that is clicked, which no request has"),
    (dict(user_feature_columns=("sex",)), "has no feature 'sex': choose from gender, age, note"),
    (dict(user_features="", context_columns=()), "--user_feature_columns is read with --user_features"),
    (dict(user_features_id="name"), "has no column 'name': give --user_features_id as one of user_id, gender"),
    (dict(format="sequence", input=None), "--context_columns=country,hour:number,tags:list: country is no column that "
                                          "--format=sequence reads"),
])
def test_refusals(tmp_path, settings, message):
    if settings.get("format") == "sequence":
        (tmp_path / "pairs.txt").write_text("".join(f"{user}\t{item}\n" for user in range(9) for item in range(7)))
        settings = dict(format="sequence", input=str(tmp_path / "pairs.txt"), feature_columns=(), event_column="",
                        event_weights=())
    with pytest.raises(UserError, match=message):
        query_world.prepared(tmp_path, **settings)
    assert not (tmp_path / "data").exists()


def test_files_of_users(tmp_path):
    data = lambda text, name="users.csv", **settings: (
        (tmp_path / name).write_text(text, encoding="utf-8"),
        prepare_text(tmp_path, query_world.log_text(), user_features=str(tmp_path / name), name=name + "_data",
                     **settings))[1]
    with pytest.raises(DataError, match="has the user id u1 several times"):
        data("user_id,gender\nu1,f\nu1,m\n")
    with pytest.raises(DataError, match="none of the log's 40 users"):
        data("user_id,gender\n1,f\n2,m\n")
    with pytest.raises(DataError, match="users.csv holds no users: give the file of users, or leave it out"):
        data("user_id,gender\n")
    with pytest.raises(DataError, match="has a user without an id"):
        data("user_id,gender\n,f\nu2,m\n")
    with pytest.raises(UserError, match="none could be the user's id: give --user_features_id"):
        data("name,gender\nu1,f\nu2,m\n")
    schema = schema_lib.load_schema(data("user_id:token\tage:float\tjob:token\tlikes:token_seq\nu1\t25.0\tx\ta b\n",
                                         "ml.user", multi_separator=" "))
    assert [(feature.name, feature.kind) for feature in schema.query_features] == [
        ("age", "number"), ("job", "category"), ("likes", "list")]


def test_a_pool_with_damaged_rows_is_refused(data_dir, tmp_path):
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    narrow = [dataclasses.replace(feature, rows=2) if feature.key == "c:country" else feature
              for feature in schema.query_features]
    plan = EpochPlan(manifest.shards["train"], 16, 2, "sliding", 0, 6)
    wrong = dataclasses.replace(schema, query_features=tuple(narrow))
    with pytest.raises(tf.errors.InvalidArgumentError, match="c:country has a value outside 0..1"):
        list(training_dataset(data_dir, wrong, manifest, plan, Assignments(plan, 1).remaining(), 6))
    with pytest.raises(DataError, match=r"c:country outside \[0, 2\)"):
        read_evaluation_set(data_dir, "test", wrong, manifest)
