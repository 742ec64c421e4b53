"""Items that nobody has clicked: --vocabulary=catalogue, --id_dropout, metrics /cold and /warm, export --cold_items."""
import json

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.config import Paths
from clrec_tf.config import PrepareConfig
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.frequencies import counts_by_feature
from clrec_tf.data import schema as schema_lib
from clrec_tf.encoders.intent_items import IntentItemEncoder
from clrec_tf.encoders.items import ItemEncoder
from clrec_tf.encoders.items import with_hidden_ids
from clrec_tf.errors import UserError
from clrec_tf.evaluate import evaluate
from clrec_tf.evaluation.popularity import counted_of
from clrec_tf.export import export
from clrec_tf.models.build import build_model
from clrec_tf.preparation.prepare_folder import prepare_folder
from clrec_tf.preparation.splits import DAY
from clrec_tf.publishing.update_bundle import update_bundle
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.retriever import Retriever
from clrec_tf.retrieval.user_requests import UserRequest
from clrec_tf.training.restore import load_trained
from tests.prepared_data import prepare_text
from tests import small_run

KINDS, OF_KIND = 6, 6  # of the items of each kind the last is cold
COLD = [kind * OF_KIND + OF_KIND - 1 for kind in range(KINDS)]


def text_of(users: int = 400) -> tuple[str, str]:
    """A log and its items. A click on one kind is followed by a click on the next; cold items only come last."""
    rng, lines = np.random.default_rng(0), ["user_id,item_id,timestamp"]
    for user in range(users):
        kind = rng.integers(KINDS)
        for click in range(8):
            last = click == 7
            number = OF_KIND - 1 if last and user % 2 else rng.integers(OF_KIND - 1)
            lines.append(f"u{user},i{kind * OF_KIND + number},{1_600_000_000 + DAY * click}")
            kind = (kind + 1) % KINDS
    items = ["item_id\tkind", *(f"i{item}\tk{item // OF_KIND}" for item in range(KINDS * OF_KIND)), "bare\t"]
    return "\n".join(lines) + "\n", "\n".join(items) + "\n"


@pytest.fixture(scope="module", name="data_dir")
def fixture_data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cold")
    log, items = text_of()
    (folder / "items.tsv").write_text(items)
    return prepare_text(folder, log, item_features=str(folder / "items.tsv"), feature_columns=("kind",),
                        vocabulary="catalogue", shard_records=64)


def settings_of(data_dir, workdir, **model):
    return small_run.config(data_dir, workdir, 0, dict(dict(embedding_dim=16, max_history=4, queue_size=64), **model),
                            epochs=10, learning_rate=0.01, batch_size=32)


@pytest.fixture(scope="module", name="trained")
def fixture_trained(data_dir, tmp_path_factory):
    """Settings of trainings with and without hidden ids, for a model of one vector and one of several."""
    runs = {}
    for name, model in dict(hidden=dict(id_dropout=0.3), seen={}, multi=dict(
            small_run.SMALL_MULTI, num_intents=KINDS, category_feature="kind", id_dropout=0.3)).items():
        runs[name] = settings_of(data_dir, tmp_path_factory.mktemp(name) / "run", **model)
        assert small_run.run(runs[name]) == 0
    return runs


def test_catalogue_items_have_ids_and_are_cold(data_dir):
    schema = schema_lib.load_schema(data_dir)
    catalogue = read_catalogue(data_dir, schema, schema_lib.load_manifest(data_dir))
    cold = [int(item[1:]) for item, flag in zip(catalogue.original_ids, catalogue.cold) if flag]
    assert sorted(cold) == COLD and len(catalogue.original_ids) == KINDS * OF_KIND  # what has no feature has no id
    assert not catalogue.counts[catalogue.cold].any() and catalogue.counts[~catalogue.cold].all()
    report = json.loads(open(f"{data_dir}/report.json", encoding="utf-8").read())
    assert report["items_without_training_clicks"] == KINDS


@pytest.mark.parametrize("make", [
    lambda features, content: ItemEncoder(9, 8, features, content=content),
    lambda features, content: IntentItemEncoder(9, 8, features, "a", content=content, residual=True)])
@pytest.mark.parametrize("with_content", [False, True])
def test_a_negative_id_is_the_item_without_its_row(make, with_content):
    features = (schema_lib.Feature("a", 4, 1, 3), schema_lib.Feature("b", 5, 2, 4))
    content = np.random.default_rng(0).standard_normal((9, 3)).astype(np.float32) if with_content else None
    encoder = make(features, content)
    rows = np.array([[3, 1, 2, 0], [5, 3, 4, 1], [0, 0, 0, 0]])
    hidden = rows * [[-1, 1, 1, 1]]
    found, seen = encoder(tf.constant(hidden)).numpy(), encoder(tf.constant(rows)).numpy()
    assert np.abs(found - seen)[:2].max() > 0.05
    encoder.ids.table.assign(tf.zeros_like(encoder.ids.table))
    np.testing.assert_allclose(found, encoder(tf.constant(rows)), rtol=1e-6)
    np.testing.assert_array_equal(found[2], 0.0)


def test_a_step_hides_the_share_of_ids_and_evaluation_none(data_dir):
    rows = tf.stack([tf.range(1, 1001, dtype=tf.int64), tf.ones(1000, tf.int64)], axis=1)
    found = [with_hidden_ids(rows, 0.3, tf.constant([seed, 5], tf.int64)).numpy() for seed in (1, 1, 2)]
    hidden = [each[:, 0] < 0 for each in found]
    np.testing.assert_array_equal(np.abs(found[0]), rows)
    np.testing.assert_array_equal(hidden[0], hidden[1])
    assert (hidden[0] != hidden[2]).any() and abs(hidden[0].mean() - 0.3) < 0.05
    model = build_model(Config.of(embedding_dim=16, id_dropout=0.3, max_history=4), schema_lib.load_schema(data_dir),
                        None, 0)
    batch = dict(history=rows[:200, None], length=tf.ones(200, tf.int64), target=rows[:200] % 30 + 1,
                 user_id=tf.range(200), time_gap=tf.zeros([200, 1], tf.int64), seed=tf.constant([1, 5], tf.int64))
    batch["history"] %= 30
    users = [model.encode(batch, training=training).users.numpy() for training in (False, True, True)]
    np.testing.assert_array_equal(users[1], users[2])
    changed = np.abs(users[0] - users[1]).max(axis=1) > 1e-3
    assert 0.05 < changed.mean() < 0.7  # users of hidden items, and no others


def figures(config, **settings):
    """Metrics of a run, full ranking."""
    trained = Config.of(**{**dict(data_dir=config.paths.data_dir, workdir=config.paths.workdir,
                                  candidate_sets=("full",), ks=("6",), eval_checkpoint="latest"), **settings})
    return evaluate(trained)


def test_cold_items_are_found_by_their_features(trained):
    """Of the right kind there are 6 items, of all 36: at random hr@6 is 1/6, by the kind about 1."""
    found = {name: figures(config) for name, config in trained.items()}
    hidden, seen, multi = (found[name] for name in ("hidden", "seen", "multi"))
    assert hidden["hr@6/full/cold"] > 0.8 > 0.4 > seen["hr@6/full/cold"]
    assert multi["hr@6/full/cold"] > 0.8
    assert hidden["hr@6/full/warm"] > 0.8 and hidden["hr@6/full"] == pytest.approx(
        (hidden["hr@6/full/cold"] + hidden["hr@6/full/warm"]) / 2)
    assert "most_popular/hr@6/full/cold" in hidden and hidden["most_popular/hr@6/full/cold"] < 0.3


def test_references_of_cold_items(trained):
    """36 items of 6 kinds, one of each cold; all 6 kinds are clicked alike, so features tell nothing."""
    found = figures(trained["hidden"])
    users = found["users"]
    assert found["users/cold"] == found["users/warm"] == users / 2 == 200
    # A user's history has at most 7 of the 30 warm items, which are filtered: 29 to 36 candidates of 6 places.
    assert 6 / 36 < found["random/hr@6/full/cold"] < 6 / 29
    assert found["random_cold/hr@6/full/cold"] == 1 and found["random_cold/hr@6/full/warm"] == 0
    assert 0 < found["by_feature/hr@6/full/cold"] < 0.4
    assert found["hr@6/full/cold"] > 2 * found["by_feature/hr@6/full/cold"]
    # Among the 6 cold items alone of 6 kinds, any 6 are found.
    assert found["hr@6/cold"] == found["random_cold/hr@6/cold"] == 1
    one = figures(trained["hidden"], ks=("1",))
    assert one["hr@1/cold"] > 0.8 > 0.3 > one["by_feature/hr@1/cold"] > 1 / 7 > one["random/hr@1/full/cold"]
    assert one["random_cold/hr@1/cold"] == pytest.approx(1 / 6, rel=0.05)
    assert not any(name.startswith("random") and not name.endswith(("/cold", "/warm")) for name in found)


def test_cold_items_keep_their_place_on_the_dial(trained):
    """By features they are expected to be clicked as often as others, less the one in six that nobody clicks."""
    hidden, seen = (figures(trained[name]) for name in ("hidden", "seen"))
    assert hidden["hr@6/full/cold/popularity=1"] > 0.8 > 0.1 > seen["hr@6/full/cold/popularity=1"]
    assert 0.05 < hidden["cold_share@10/full/popularity=1"] < 0.4
    assert hidden["cold_share@10/full/popularity=0"] == hidden["cold_share@10/full"]
    catalogue = read_catalogue(trained["hidden"].paths.data_dir, schema_lib.load_schema(
        trained["hidden"].paths.data_dir), schema_lib.load_manifest(trained["hidden"].paths.data_dir))
    for name, config in trained.items():
        restored = load_trained(config, "latest")
        counts = counted_of(restored, catalogue, config.paths.data_dir).counts
        np.testing.assert_array_equal(counts[~catalogue.cold], catalogue.counts[~catalogue.cold])
        assert (counts[catalogue.cold] > 50).all() if name != "seen" else (counts[catalogue.cold] == 0).all()


def test_clicks_expected_of_features_by_hand():
    """c̄ = 3. Kind 1 has 8 clicks on 2 items, kind 2 has 4 on 2; label 1 has 12 on the items 1, 2, 3, label 2 has 2 on
    item 2, which count as many times as an average one as their kinds say."""
    features = (schema_lib.Feature("kind", 4, 1, 3), schema_lib.Feature("label", 3, 2, 2))
    rows = np.array([[1, 1, 1, 0], [2, 1, 1, 2], [3, 2, 1, 0], [4, 2, 0, 0]])
    found = counts_by_feature(np.array([6, 2, 4, 0]), rows, features)
    kind = [(8 / 3 + 1) / 3, (4 / 3 + 1) / 3]
    label = [(12 / 3 + 1) / (2 * kind[0] + kind[1] + 1), (2 / 3 + 1) / (kind[0] + 1)]
    np.testing.assert_allclose(found, [3 * kind[0] * label[0], 3 * kind[0] * np.sqrt(label[0] * label[1]),
                                       3 * kind[1] * label[0], 3 * kind[1]])
    np.testing.assert_allclose(counts_by_feature(np.array([6, 2, 4, 0]), rows[:, :1], ()), 3)


def test_what_a_finer_feature_says_again_counts_once():
    rng = np.random.default_rng(0)
    fine = rng.integers(0, 20, 2000)
    rows = np.stack([np.arange(1, 2001), fine // 4 + 1, fine + 1, fine + 1], axis=1)
    rate = 10 * np.exp(rng.normal(0, 1, 20))[fine]
    columns = [schema_lib.Feature("coarse", 6, 1, 5), *(schema_lib.Feature(name, 21, 1, 20) for name in ("fine", "again"))]
    found = counts_by_feature(rng.poisson(rate), rows, columns)
    np.testing.assert_allclose(np.log(found), np.log(rate), atol=.25)


def test_export_has_cold_items_unless_told_otherwise(trained, tmp_path):
    config = trained["hidden"]
    paths = dict(data_dir=config.paths.data_dir, workdir=config.paths.workdir, export_checkpoint="latest")
    model = load_trained(config, "latest").model
    bundles, cold_ids = {}, [f"i{item}" for item in COLD]
    for cold in (True, False):
        bundles[cold] = bundle = load_bundle(
            export(Config.of(**paths, export_dir=str(tmp_path / str(cold)), cold_items=cold)))
        assert np.isin(cold_ids, bundle.item_ids).all() == cold
        assert len(bundle.item_ids) == KINDS * OF_KIND - (0 if cold else KINDS)
        if cold:  # by features alone
            row = list(bundle.item_ids).index("i5")
            kinds = json.loads(open(f"{config.paths.data_dir}/feature_values.json", encoding="utf-8").read())["kind"]
            alone = model.compared_items(tf.constant([[-1, 1 + kinds.index("k0")]], tf.int64)).numpy()[0]
            np.testing.assert_allclose(bundle.item_vectors(np.array([row]))[0][:len(alone)], alone, rtol=1e-5,
                                       atol=1e-6)
    items = tmp_path / "items.jsonl"
    items.write_text("".join(json.dumps(dict(id=f"i{item}", features=dict(kind=f"k{item // OF_KIND}"))) + "\n"
                             for item in COLD))
    updated = load_bundle(update_bundle(str(tmp_path / "False"), str(items), "", 0.9))
    whole = bundles[True]
    np.testing.assert_allclose(updated.item_vectors(updated.positions(np.array(cold_ids))),
                               whole.item_vectors(whole.positions(np.array(cold_ids))), rtol=0, atol=2e-7)
    for history in ([cold_ids[0]], [cold_ids[1], "i3"]):
        mine, theirs = (Retriever(each)([UserRequest(None, history)]) for each in (updated, whole))
        np.testing.assert_allclose(mine[1].vectors[..., :-1], theirs[1].vectors[..., :-1], atol=1e-6)
        assert not mine[0][0].fallback and not mine[0][0].unknown


def test_hidden_ids_need_something_else_to_see(data_dir):
    schema = schema_lib.load_schema(data_dir)
    for settings in (dict(use_features=False), dict(candidate_features=False)):
        with pytest.raises(UserError, match="--id_dropout=0.3 leaves nothing"):
            build_model(Config.of(id_dropout=0.3, **settings), schema, None, 0)


def test_catalogue_needs_items(tmp_path):
    with pytest.raises(UserError, match="--vocabulary=catalogue takes the items of --item_features"):
        prepare_text(tmp_path, text_of(20)[0], vocabulary="catalogue")


def test_catalogue_needs_features(tmp_path):
    (tmp_path / "items.tsv").write_text(text_of(20)[1])
    with pytest.raises(UserError, match="known by their features alone, and none is named: give --feature_columns"):
        prepare_text(tmp_path, text_of(20)[0], vocabulary="catalogue", item_features=str(tmp_path / "items.tsv"))


def test_a_format_with_a_file_of_items_has_a_catalogue(tmp_path):
    """MovieLens: film 3 is in u.item alone, film 4 has no genre."""
    (tmp_path / "log").mkdir()
    clicks = [f"{user}\t{1 + user % 2}\t5\t{1_600_000_000 + second}" for user in range(8) for second in range(4)]
    (tmp_path / "log" / "u.data").write_text("\n".join(clicks) + "\n")
    flags = lambda genre: "|".join("1" if number == genre else "0" for number in range(19))
    (tmp_path / "log" / "u.item").write_text("".join(
        f"{item}|film {item}|01-Jan-1995||url|{flags(genre)}\n" for item, genre in ((1, 1), (2, 2), (3, 1), (4, -1))))
    data_dir = str(tmp_path / "data")
    prepare_folder(Paths(data_dir=data_dir), PrepareConfig(
        input=str(tmp_path / "log"), format="movielens", vocabulary="catalogue", min_train_length=1))
    catalogue = read_catalogue(data_dir, schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir))
    assert list(catalogue.original_ids) == [1, 2, 3] and list(catalogue.cold) == [False, False, True]
