"""--init_from: rows, slots and queues of a run on grown data, by what they stand for."""
import numpy as np
import pytest

from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.catalogue import read_feature_values
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import UserError
from clrec_tf.preparation.splits import DAY
from clrec_tf.training import grown_rows
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import set_up
from tests import query_world
from tests import small_run
from tests.cases import in_ci
from tests.prepared_data import prepare_text

PREPARED = dict(shard_records=16, feature_columns=("category",), multi_feature_columns=("tags",), oov_buckets=2)


def day_log(day: int, items: range, users: int = 40) -> str:
    """Clicks of one day; an item's features depend on the item, its category is new for items from 40 on."""
    rng, lines = np.random.default_rng(day), ["user_id,item_id,timestamp,category,tags"]
    for user in range(users):
        for click in range(8):
            item = rng.choice(items)
            kind = f"c{item % 3}" if item < 40 else "c-new"
            lines.append(f"{user},{item},{1_600_000_000 + DAY * day + 60 * click},{kind},t{item % 2}|t{item % 5}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module", name="days")
def fixture_days(tmp_path_factory):
    """Two data folders, of which the second continues the first."""
    folder = tmp_path_factory.mktemp("days")
    first = prepare_text(folder, day_log(0, range(1, 31)), name="first", **PREPARED)
    return first, prepare_text(folder, day_log(1, range(15, 46)), name="second", vocabulary_from=first, **PREPARED)


MODELS = {
    "raw": dict(queue="raw", use_features=True), "cached": dict(queue="cached", user_encoder="svdpp"),
    "multi": dict(small_run.SMALL_MULTI, queue="raw", category_feature="category"),
    "multi_cached": dict(small_run.SMALL_MULTI, queue="cached", category_feature="category"),
}


@pytest.fixture(scope="module", name="trained", params=in_ci(MODELS, "raw", "multi_cached"))
def fixture_trained(request, days, tmp_path_factory):
    """Settings of a run on the first day, and those of its model."""
    settings = small_run.config(days[0], tmp_path_factory.mktemp(request.param) / "run", 0, MODELS[request.param])
    assert small_run.run(settings) == 0
    return settings, MODELS[request.param]


def tables(data_dir):
    """(original ids, item rows, feature values) of a data folder."""
    schema = schema_lib.load_schema(data_dir)
    catalogue = read_catalogue(data_dir, schema, schema_lib.load_manifest(data_dir))
    return list(catalogue.original_ids), catalogue.item_rows, read_feature_values(data_dir)


def slots_of(run, variable) -> list[np.ndarray]:
    """Values of an optimizer's slots of a variable."""
    number = [id(each) for each in run.model.trainable_variables].index(id(variable))
    return [slot.numpy() for slot in run.optimizer.variables[1 + 2 * number:3 + 2 * number]]


def test_rows_slots_and_queues_are_taken_by_name(days, trained, tmp_path):
    trained, model = trained
    before = set_up(trained, LocalRuntime())
    fresh = set_up(small_run.config(days[1], tmp_path / "fresh", 7, model), LocalRuntime())
    after = set_up(small_run.config(days[1], tmp_path / "run", 7, model, init_from=trained.paths.workdir),
                   LocalRuntime())
    (old_ids, _, old_values), (ids, rows, values) = map(tables, days)
    assert ids[:len(old_ids)] == old_ids and len(ids) > len(old_ids)
    assert after.progress.step == 0 and int(after.optimizer.iterations) == 0

    known = {item: row for row, item in enumerate(old_ids, 1)}
    features = {item: tuple(row[1:]) for item, row in zip(ids, rows)}
    assert sum(item not in known for item in ids) >= 10 and any(f[0] == 4 for f in features.values())
    assert hasattr(before.model.item_encoder, "factors") == (model.get("user_encoder") == "svdpp")
    for name in [name for name in ("ids", "factors") if hasattr(before.model.item_encoder, name)]:
        table = lambda run: getattr(run.model.item_encoder, name).table  # pylint: disable=cell-var-from-loop
        read = lambda run: table(run).numpy()  # pylint: disable=cell-var-from-loop
        for row, item in enumerate(ids, 1):
            alike = [known[other] for other in known if features[other] == features[item]]
            expected = (read(before)[known[item]] if item in known else read(before)[alike].mean(axis=0) if alike
                        else read(fresh)[row])
            np.testing.assert_allclose(read(after)[row], expected, rtol=1e-6, err_msg=str(item))
        np.testing.assert_array_equal(read(after)[-2:], read(before)[-2:])  # hash buckets
        for old, new in zip(slots_of(before, table(before)), slots_of(after, table(after))):
            np.testing.assert_array_equal(new[:len(old_ids) + 1], old[:len(old_ids) + 1])
            assert not new[len(old_ids) + 1:-2].any() and old[1:].any()
            np.testing.assert_array_equal(new[-2:], old[-2:])

    if after.model.reads_features:
        for number, feature in enumerate(after.model.item_encoder.features):
            old, new, untrained = (run.model.item_encoder.feature_tables[number].table.numpy()
                                   for run in (before, after, fresh))
            names = old_values[feature.name]
            assert values[feature.name][:len(names)] == names
            np.testing.assert_array_equal(new[:len(names) + 1], old[:len(names) + 1])
            np.testing.assert_array_equal(new[len(names) + 1:-1], untrained[len(names) + 1:-1])
            np.testing.assert_array_equal(new[-1], old[-1])
        assert values["category"][-1] == "c-new"
    for old, new in zip(before.model.user_encoder.trainable_variables, after.model.user_encoder.trainable_variables):
        np.testing.assert_array_equal(new.numpy(), old.numpy())
        for old_slot, new_slot in zip(slots_of(before, old), slots_of(after, new)):
            np.testing.assert_array_equal(new_slot, old_slot)

    names = {0: 0} | {number: item for number, item in enumerate(ids, 1)}
    old_names = {0: 0} | {number: item for number, item in enumerate(old_ids, 1)}
    for name, state in after.checkpoints.local_states.items():
        old = before.checkpoints.local_states[name].owner.local_variables
        for field, variable in state.owner.local_variables.items():
            found, expected = variable.numpy(), old[field].numpy()
            if field.endswith("item"):
                assert [names[row] for row in found[:, 0]] == [old_names[row] for row in expected[:, 0]]
                filled = found[found[:, 0] > 0]
                np.testing.assert_array_equal(filled, rows[filled[:, 0] - 1][:, :found.shape[1]])
                assert len(filled) > 10
            elif field.endswith("owner"):
                assert (found == -1).all()
            else:
                np.testing.assert_array_equal(found, expected)


def test_training_goes_on_where_it_was(days, trained, tmp_path, caplog):
    """The first losses are below those of a model that knows nothing."""
    trained, model = trained
    warm = small_run.config(days[1], tmp_path / "warm", 0, model, init_from=trained.paths.workdir)
    cold = small_run.config(days[1], tmp_path / "cold", 0, model)
    assert small_run.run(warm) == 0 and small_run.run(cold) == 0
    first = [np.mean(list(small_run.losses(each.paths.workdir).values())[:3]) for each in (warm, cold)]
    assert first[0] < first[1]
    assert not [name for name in (tmp_path / "warm").iterdir() if name.name.startswith(".init_from")]
    assert small_run.run(warm) == 0  # complete, whatever becomes of the run it started from
    assert "is not read" not in caplog.text
    assert small_run.run(cold.but(init_from=trained.paths.workdir)) == 0  # too late: it has begun without
    assert f"--init_from={trained.paths.workdir} is not read: the run in --workdir={tmp_path}/cold" in caplog.text
    assert "started from nothing; choose another --workdir" in caplog.text


@pytest.mark.parametrize("model", [dict(debias_context="country"), dict(small_run.SMALL_MULTI)], ids=["clrec", "multi"])
def test_features_of_users_and_requests_are_taken_by_value(tmp_path, model):
    """The second day numbers the countries otherwise, and has a new one."""
    first = query_world.prepared(tmp_path, name="first")
    log = query_world.log_text(3).replace("16000", "16001").replace(",US,", ",IT,").replace(",FR,", ",US,")
    (tmp_path / "second").mkdir()
    second = prepare_text(tmp_path / "second", log, **{**query_world.SETTINGS, "vocabulary_from": first,
                                                       "user_features": str(tmp_path / "users.csv")})
    settings = small_run.config(first, tmp_path / "run", 0, model)
    assert small_run.run(settings) == 0
    before = set_up(settings, LocalRuntime())
    after = set_up(small_run.config(second, tmp_path / "later", 7, model, init_from=settings.paths.workdir),
                   LocalRuntime())
    old, new = read_feature_values(first)["c:country"], read_feature_values(second)["c:country"]
    assert new[:3] == old and "IT" in new
    of_country = lambda run: next(table.table for table, feature in zip(encoder(run).tables, encoder(run).features)
                                  if feature.key == "c:country")
    encoder = lambda run: getattr(run.model, "query_encoder", None) or run.model.user_encoder.query_encoder
    np.testing.assert_array_equal(of_country(after).numpy()[:4], of_country(before).numpy())
    for mine, theirs in zip(slots_of(after, of_country(after)), slots_of(before, of_country(before))):
        np.testing.assert_array_equal(mine[:4], theirs)
        assert (mine[4:] == 0).all() and np.abs(theirs).max() > 0
    np.testing.assert_array_equal(encoder(after).mlp.first_kernel, encoder(before).mlp.first_kernel)
    with pytest.raises(UserError, match="features of users and requests .*c:country .category., .*prepare it alike"):
        other = prepare_text(tmp_path / "second", log, name="other", **{
            **query_world.SETTINGS, "vocabulary_from": first, "context_columns": ("hour:number",),
            "user_features": str(tmp_path / "users.csv")})
        set_up(small_run.config(other, tmp_path / "no", 7, dict(model, debias_context="") if "debias_context" in model
                                else model, init_from=settings.paths.workdir), LocalRuntime())


@pytest.mark.parametrize("before,after", [
    ("hour", "country"), ("", "country"), *(pytest.param(*names, marks=pytest.mark.long) for names in (
        ("country", "hour"), ("country", "")))])
def test_a_queue_of_another_context_begins_anew(tmp_path, before, after):
    data_dir = query_world.prepared(tmp_path)
    of = lambda name, context, **train: small_run.config(
        data_dir, tmp_path / name, 0, dict(debias_context=context, queue="raw"), **train)
    assert small_run.run(of("first", before)) == 0
    fill = lambda context: int(set_up(of("again" + context, context, init_from=str(tmp_path / "first")), LocalRuntime(
        )).checkpoints.local_states["queue"].owner.open().fill())
    assert fill(after) == 0 and fill(before) > 0


def test_earlier_rows():
    np.testing.assert_array_equal(grown_rows.earlier_rows(["b", "new", "a"], ["a", "b", "gone"], 2),
                                  [0, 2, -1, 1, 4, 5])


def test_means_of_alike_by_hand():
    """Items 1 and 3 are alike, 4 (new) too; 5 (new) has features that nobody has, 6 (new) has none."""
    rows = np.array([[9.0], [1.0], [7.0], [3.0], [0.0], [0.0], [0.0]], np.float32)
    features = np.array([[0, 0], [1, 2], [1, 0], [1, 2], [1, 2], [4, 4], [0, 0]])
    means, places = grown_rows.means_of_alike(rows, features, np.array([0, 1, 2, 3, -1, -1, -1]))
    np.testing.assert_array_equal(places, [4])
    np.testing.assert_array_equal(means, [[2.0]])


@pytest.mark.parametrize("settings, said", [
    (dict(embedding_dim=16), r"has another model: .*--embedding_dim=16 \(there 8\)"),
    (dict(user_encoder="mean"), r"has another model: .*--user_encoder=mean"),
    (dict(max_history=7), r"has another model: --max_history=7 \(there 6\), .*position"),
])
@pytest.mark.parametrize("trained", ["raw"], indirect=True)
def test_another_model_is_refused(days, trained, tmp_path, settings, said):
    trained, model = trained
    with pytest.raises(UserError, match=said):
        set_up(small_run.config(days[1], tmp_path / "run", 0, {**model, **settings}, init_from=trained.paths.workdir),
               LocalRuntime())
    assert not (tmp_path / "run").exists()


def test_other_data_are_refused(days, tmp_path):
    first = small_run.config(days[0], tmp_path / "run", 0, dict(use_features=True))
    assert small_run.run(first) == 0
    for name, settings, said in (
            ("fewer", dict(multi_feature_columns=()), "item features category, tags, .* has category"),
            ("buckets", dict(oov_buckets=3), "hash buckets of items 2, .* has 3")):
        other = prepare_text(tmp_path, day_log(1, range(15, 46)), name=name, **{**PREPARED, **settings})
        with pytest.raises(UserError, match=said):
            set_up(small_run.config(other, tmp_path / f"run_{name}", 0, dict(use_features=True),
                                    init_from=first.paths.workdir), LocalRuntime())
    with pytest.raises(UserError, match="is --workdir itself"):
        set_up(small_run.config(days[1], tmp_path / "run2", 0, dict(use_features=True),
                                init_from=str(tmp_path / "run2")), LocalRuntime())
    second = small_run.config(days[1], tmp_path / "later", 0, dict(use_features=True))
    assert small_run.run(second) == 0
    with pytest.raises(UserError, match="ends before the data that --init_from=.*known already"):
        set_up(small_run.config(days[0], tmp_path / "run4", 0, dict(use_features=True),
                                init_from=second.paths.workdir), LocalRuntime())
    with pytest.raises(UserError, match="--init_from=.*nothing holds no run: give the --workdir"):
        set_up(small_run.config(days[1], tmp_path / "run3", 0, dict(use_features=True),
                                init_from=str(tmp_path / "nothing")), LocalRuntime())


def test_moved_queue_by_hand():
    """Items 1 and 2 are 3 and 1 now; the bucket 3 is 4. An entry of an item that is no more, or another shape: none."""
    rows = np.array([[0, 0], [1, 7], [2, 8], [3, 9], [4, 0]])
    earlier = np.array([0, 2, -1, 1, 3])
    fields = {"item/0": np.array([[1, 5], [2, 5], [3, 0], [0, 0]]), "owner/0": np.arange(4), "count/0": np.array(3)}
    shapes = dict(item=(4, 2), owner=(4,), count=())
    fields["context/0"], shapes["context"] = np.array([2, 1, 0, 3]), (4,)
    renumbered = grown_rows.moved_queue(fields, shapes, rows, earlier, np.array([0, 5, -1, 1]))
    np.testing.assert_array_equal(renumbered["context/0"], [0, 5, 0, 1])
    moved = grown_rows.moved_queue(fields, shapes, rows, earlier)
    np.testing.assert_array_equal(moved["context/0"], fields["context/0"])
    np.testing.assert_array_equal(moved["item/0"], [[3, 9], [1, 7], [4, 0], [0, 0]])
    np.testing.assert_array_equal(moved["owner/0"], [-1] * 4)
    assert moved["count/0"] == 3
    assert grown_rows.moved_queue(fields, {**shapes, "owner": (5,)}, rows, earlier) is None
    assert grown_rows.moved_queue(fields, shapes, rows, np.array([0, 2, -1, -1, 3])) is None
