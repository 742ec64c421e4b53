"""What training learns of features of users and requests, in worlds where they decide."""
import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.catalogue import read_feature_values
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import UserError
from clrec_tf import evaluate
from clrec_tf.models.encode import Encoder
from clrec_tf.models.build import build_model
from clrec_tf.objectives.contrastive import context_column
from clrec_tf.training.checkpoint_names import shapes_of
from clrec_tf.training.restore import load_trained
from tests import query_world
from tests import small_run
from tests.prepared_data import prepare_text

ITEMS, USERS = 24, 120


def planted(seed=0):
    """Each request has a country at random, which decides the class of the item: history says nothing of the next one.
    A click of kind buy is followed by an item of the upper half, one of kind pv by one of the lower half."""
    rng, lines = np.random.default_rng(seed), ["user_id,item_id,timestamp,country,kind"]
    for user in range(USERS):
        kind = "pv"
        for click in range(10):
            country = int(rng.integers(3))
            item = 3 * int(rng.integers(4)) + country + (12 if kind == "buy" else 0)
            kind = "buy" if rng.random() < .5 else "pv"
            lines.append(f"{user},{item + 1},{1_600_000_000 + 500 * click + user},{query_world.COUNTRIES[country]},{kind}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module", name="data_dir")
def _data_dir(tmp_path_factory):
    return prepare_text(tmp_path_factory.mktemp("planted"), planted(), context_columns=("country",), shard_records=32,
                        event_column="kind", event_weights=("buy:1", "pv:1"))


def trained(data_dir, workdir, **model):
    settings = small_run.config(data_dir, workdir, model=dict(
        dict(queue="in_batch", embedding_dim=16, time_embedding="none"), **model),
        epochs=12, batch_size=64)
    assert small_run.run(settings) == 0
    return load_trained(settings, "latest").model


def shares(model, data_dir):
    """Of each test user's 4 best items: how many are of the request's country, and of the half that follows."""
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    catalogue = read_catalogue(data_dir, schema, manifest)
    users, encoder = read_evaluation_set(data_dir, "test", schema, manifest), Encoder(model, 6)
    scores = encoder.user_vectors(users) @ encoder.compared_items(catalogue.item_rows).T
    best = catalogue.original_ids[np.argsort(-scores, axis=1)[:, :4]] - 1
    target = catalogue.original_ids[users.next_clicks - 1] - 1
    return (best % 3 == (target % 3)[:, None]).mean(), (best // 12 == (target // 12)[:, None]).mean()


@pytest.mark.slow
@pytest.mark.parametrize("encoder", [
    dict(), dict(user_encoder="mean"), pytest.param(dict(user_encoder="sasrec"), marks=pytest.mark.long)],
                         ids=["attention", "mean", "sasrec"])
def test_the_context_of_the_request_decides(data_dir, tmp_path, encoder):
    by_country, by_half = shares(trained(data_dir, tmp_path / "run", **encoder), data_dir)
    assert by_country > .9  # a third by chance
    if not encoder:
        assert by_half > .75  # a half by chance; the last click's kind tells it
        blind = shares(trained(data_dir, tmp_path / "blind", use_query_features=False, use_events=False), data_dir)
        assert blind[0] < .45 and blind[1] < .65


@pytest.mark.slow
def test_negatives_of_the_same_context_leave_nothing_to_learn_of_it(data_dir, tmp_path):
    """p(y|c)/p(y|c) is the same for all items of a country, and of others nothing is asked: the country no longer
    decides, and what the last click's kind says stays."""
    model = trained(data_dir, tmp_path / "run", debias_context="country")
    by_country, by_half = shares(model, data_dir)
    assert by_country < .6 and by_half > .75


@pytest.mark.slow
def test_strangers_get_what_is_liked_where_they_are(data_dir, tmp_path):
    model = trained(data_dir, tmp_path / "run", history_dropout=.3)
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    catalogue, encoder = read_catalogue(data_dir, schema, manifest), Encoder(model, 6)
    items = encoder.compared_items(catalogue.item_rows)
    users = model.user_vectors(np.zeros((3, 6, 16), np.float32), np.zeros((3, 6), bool), query=np.array([[1], [2], [3]]))
    for row, country in enumerate(read_feature_values(data_dir)["c:country"]):
        best = catalogue.original_ids[np.argsort(-(users.numpy() @ items.T)[row])[:6]] - 1
        assert (best % 3 == query_world.COUNTRIES.index(country)).mean() > .8


@pytest.mark.parametrize("settings,message", [
    (dict(history_dropout=.2, use_query_features=False), "--history_dropout=0.2 leaves nothing of a user"),
    (dict(debias_context="moon"), "--debias_context=moon is no feature of users or requests of this data set: choose from "
                                  "country"),
    (dict(debias_context="country", negatives="impressions"), "impressions have no context; give one of them"),
    (dict(debias_context="country", debias_beta=.5), "--debias_context=country and --debias_beta=0.5"),
    (dict(debias_context="country", queue="all_clicks"), "--debias_context=country and --queue=all_clicks"),
    (dict(debias_context="country", loss="ipw"), "--debias_context=country belongs to --loss=contrastive, not to ipw"),
])
def test_refusals(data_dir, tmp_path, settings, message):
    with pytest.raises(UserError, match=message):
        small_run.run(small_run.config(data_dir, tmp_path, model=settings))


def test_a_list_is_no_context_to_debias(tmp_path):
    data_dir = query_world.prepared(tmp_path)
    with pytest.raises(UserError, match="--debias_context=tags has several values per request"):
        small_run.run(small_run.config(data_dir, tmp_path / "run", model=dict(debias_context="tags")))


def test_a_model_without_them_is_as_it_was(data_dir):
    schema = schema_lib.load_schema(data_dir)
    shapes = lambda **settings: shapes_of(build_model(Config.of(embedding_dim=8, **settings), schema))
    without, found = shapes(use_query_features=False, use_events=False), shapes()
    added = set(found) - set(without)
    assert without == {name: shape for name, shape in found.items() if name not in added}
    assert {name.split("/")[1] + "/" + name.split("/")[2] for name in added} == {
        "query_encoder/tables", "query_encoder/mlp", "click_encoder/event_table"}


@pytest.mark.slow
def test_evaluate_tells_what_strangers_get(data_dir, tmp_path):
    """By a loop over the users, whose vectors are those of the request's country alone."""
    model = dict(queue="in_batch", embedding_dim=16, time_embedding="none", history_dropout=.3)
    settings = small_run.config(data_dir, tmp_path / "run", model=model, epochs=6, batch_size=64).but(ks=("4",))
    assert small_run.run(settings) == 0
    result = evaluate.evaluate(settings)
    trained_model = load_trained(settings, "best").model
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    catalogue, users = read_catalogue(data_dir, schema, manifest), read_evaluation_set(data_dir, "test", schema, manifest)
    items, hits = Encoder(trained_model, 6).compared_items(catalogue.item_rows), []
    for row in range(users.num_users):
        vector = trained_model.user_vectors(np.zeros((1, 6, 16), np.float32), np.zeros((1, 6), bool),
                                            query=users.query[row:row + 1].astype(np.int64)).numpy()[0]
        scores = items @ vector
        seen = users.history_ids[users.history_splits[row]:users.history_splits[row + 1]]
        target = users.next_clicks[row]
        scores[[item - 1 for item in seen if item != target]] = -np.inf
        hits.append(np.sum(scores > scores[target - 1]) < 4)
    assert result["hr@4/full/strangers"] == pytest.approx(np.mean(hits), abs=1e-6)
    assert result["hr@4/full/strangers"] > result["most_popular/hr@4/full"] + .1
    assert "hr@4/full/strangers/popularity=1" in result


def test_a_context_of_users_and_of_requests_is_named_as_in_requests(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("user_id,country\n" + "".join(f"{user},X\n" for user in range(USERS)), encoding="utf-8")
    schema = schema_lib.load_schema(prepare_text(tmp_path, planted(), context_columns=("country",),
                                                 user_features=str(path)))
    with pytest.raises(UserError, match="--debias_context=country is a feature of users and one of requests: give "
                                        "user_country or context_country"):
        context_column("country", schema)
    assert [context_column(name, schema) for name in ("user_country", "context_country", "")] == [0, 1, None]


def random_batch(rng, windows):
    """Of the planted data: 12 examples, or windows of as many targets."""
    rows, length = (4, 3) if windows else (12, 6)
    lengths = np.full(rows, length) if windows else rng.integers(1, length + 1, rows)
    batch = dict(history=rng.integers(1, ITEMS + 1, (rows, length, 1)) * (np.arange(length) < lengths[:, None])[:, :, None],
                 length=lengths, target=rng.integers(1, ITEMS + 1, (12, 1)), user_id=np.arange(12),
                 query=rng.integers(1, 4, (12, 1)), event=rng.integers(0, 3, (rows, length)), seed=np.array([4, 6]))
    batch |= dict(row=np.arange(12)) if windows else dict(time_gap=rng.integers(0, 1000, (rows, length)))
    return {name: tf.constant(value, tf.int64) for name, value in batch.items()} | dict(weight=tf.ones(12))


@pytest.mark.parametrize("settings,windows", [
    (dict(), False), (dict(user_encoder="mean"), False), (dict(user_encoder="sasrec", dropout=0.0), False),
    (dict(candidate_features=False), False), (dict(model="multi_clrec", num_intents=3), False),
    (dict(model="multi_clrec", num_intents=3, intent_context="none"), False),
    (dict(user_encoder="sasrec", dropout=0.0, time_embedding="none"), True), (dict(time_embedding="none"), True)])
def test_a_training_step_hides_whole_histories_and_nothing_else(tmp_path, settings, windows):
    """Of the examples that are drawn: their users are those without a click, whatever they clicked, with finite
    gradients; the others, and all outside of training, are as without hiding."""
    schema = schema_lib.load_schema(prepare_text(
        tmp_path, planted(), context_columns=("country",), shard_records=32, event_column="kind",
        event_weights=("buy:1", "pv:1"), feature_columns=("country",) if "model" in settings else ()))
    model, rng = build_model(Config.of(embedding_dim=8, max_history=6, **settings), schema, seed=3), np.random.default_rng(2)
    batch, other = random_batch(rng, windows), random_batch(rng, windows)
    if schema.features:
        batch, other = ({name: tf.concat([value, value % 3 + 1], -1) if name in ("history", "target") else value
                         for name, value in each.items()} for each in (batch, other))
    other |= {name: batch[name] for name in ("target", "query", "user_id", "length")}

    def users(share, given=batch, training=True):
        model.history_dropout = share
        return model.encode(given, training=training).users.numpy()

    seen, hidden, some = users(0.0), users(1.0), users(.5)
    drawn = model.hidden_histories(12, batch, True).numpy()
    assert 2 < drawn.sum() < 10 and (np.abs(seen - hidden).max(axis=1) > 1e-3).all()
    np.testing.assert_allclose(some, np.where(drawn[:, None], hidden, seen), atol=1e-6)
    np.testing.assert_allclose(users(1.0, other), hidden, atol=1e-6)
    np.testing.assert_allclose(users(1.0, training=False), seen, atol=1e-6)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(model.encode(batch, training=True).users[:, 0])
    gradients = [tf.convert_to_tensor(each).numpy() for each in tape.gradient(total, model.trainable_variables)
                 if each is not None]
    assert all(np.isfinite(each).all() for each in gradients) and any(np.abs(each).max() > 0 for each in gradients)
