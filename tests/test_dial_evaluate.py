"""The dial's curve in an evaluation, and the value that evaluate and export choose on validation users."""
import dataclasses
import json

from matplotlib.axes import Axes
import numpy as np
import pytest

from clrec_tf.config import DialConfig
from clrec_tf.config import EvaluateConfig
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.errors import UserError
from clrec_tf.evaluate import evaluate
from clrec_tf.evaluation import curve
from clrec_tf.evaluation.popularity import counted_of
from clrec_tf.export import export
from clrec_tf.models import dial
from clrec_tf.models.encode import Encoder
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.training.restore import load_trained
from tests import small_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dial")
    settings = small_run.config(small_run.prepared(folder), folder / "run")
    assert small_run.run(settings) == 0
    return settings


def dialled(settings, *popularity, **others):
    return dataclasses.replace(settings, dial=DialConfig(popularity=popularity or ("auto",), **others))


def loop_hits(settings, alpha, split="test", k=10):
    """HR@k of φ + α·log p̂ by NumPy, a user at a time, seen items left out."""
    trained = load_trained(settings, "best" if settings.train.validate_every else "latest")
    catalogue = read_catalogue(settings.paths.data_dir, trained.schema, trained.manifest)
    users = read_evaluation_set(settings.paths.data_dir, split, trained.schema, trained.manifest)
    encoder = Encoder(trained.model, settings.model.max_history)
    vectors, items = encoder.user_vectors(users), encoder.compared_items(catalogue.item_rows)
    log_p, hits = np.log(np.maximum(catalogue.counts, 1) / np.maximum(catalogue.counts, 1).sum()), []
    for row, target in enumerate(users.next_clicks):
        scores = vectors[row].astype(float) @ items.T / settings.model.temperature + alpha * log_p
        seen = users.history_ids[users.history_splits[row]:users.history_splits[row + 1]]
        rivals = [item for item in range(1, len(items) + 1) if item not in set(seen) - {target}]
        hits.append(sum(scores[item - 1] > scores[target - 1] for item in rivals) < k)
    return float(np.mean(hits))


def test_the_curve_stands_beside_the_metrics_and_its_zero_is_theirs(run, capsys):
    result = evaluate(dialled(run, "0", "0.5", "1"))
    printed = capsys.readouterr().out
    with open(f"{run.paths.workdir}/metrics.json", encoding="utf-8") as file:
        assert json.load(file) == result
    for name in ("hr@10/full", "ndcg@10/full", "hr@10/pop100", "mrr/uniform100", "aggregate_diversity@10/full",
                 "popularity_index@10/full", "recall@50/full"):
        assert result[f"{name}/popularity=0"] == result[name]
        assert {f"{name}/popularity=0.5", f"{name}/popularity=1"} <= set(result)
    for alpha in (0, 0.5, 1):
        assert result[dial.name("hr@10/full", alpha)] == pytest.approx(loop_hits(run, alpha), abs=0.02)
    assert result["popularity"] in (0, 0.5, 1) and result["popularity_of"] == "clicks"
    assert result["popularity_index@10/full/popularity=1"] > result["popularity_index@10/full"]
    assert not [name for name in result if "popularity=" in name and name.endswith(("/low", "/high"))]
    table = printed[printed.index("\npopularity  hr@10"):].strip().splitlines()
    assert len(table) == 4 and "(chosen)" in printed and "popularity=" not in printed
    assert "The table above is at popularity 0, as trained." in printed and "popularity_of" not in printed
    with open(f"{run.paths.workdir}/dial.png", "rb") as file:
        assert file.read(8) == b"\x89PNG\r\n\x1a\n"


def test_the_untrained_model_is_that_of_the_run_not_of_the_evaluations_seed(run, tmp_path):
    other = dataclasses.replace(run, paths=dataclasses.replace(run.paths, workdir=str(tmp_path / "run"), seed=1))
    assert small_run.run(other) == 0
    found = [evaluate(dataclasses.replace(dialled(other, "0"), paths=dataclasses.replace(other.paths, seed=seed),
                                          evaluate=EvaluateConfig(untrained=True, candidate_sets=("full",))))
             for seed in (0, 1)]
    names = [name for name in found[0] if name.startswith("untrained/") and not name.endswith(("/low", "/high"))]
    assert names and [found[0][name] for name in names] == [found[1][name] for name in names]
    assert found[0]["untrained/mrr/full"] != evaluate(dataclasses.replace(dialled(run, "0"), evaluate=EvaluateConfig(
        untrained=True, candidate_sets=("full",))))["untrained/mrr/full"]


def test_export_takes_what_validation_users_choose(run, tmp_path):
    result = evaluate(dialled(run))
    assert dial.values_named("hr@10/full", result) == [-0.25, 0, 0.25, 0.5, 0.75, 1, 1.25]
    settings = dataclasses.replace(run, paths=dataclasses.replace(run.paths, export_dir=str(tmp_path / "export")))
    manifest = load_bundle(export(dialled(settings))).manifest
    assert manifest["popularity"] == result["popularity"]
    facts = manifest["dial"]
    assert facts["metric"] == "ndcg@10/full" and facts["split"] == "valid" and facts["users"] > 20
    best = max(value for value, _ in facts["curve"].values())
    assert facts["curve"][f"{manifest['popularity']:g}"][0] == best
    hits = load_bundle(export(dialled(settings, "0", "1", popularity_metric="hr@10/full"))).manifest
    assert list(hits["dial"]["curve"]) == ["0", "1"]
    for alpha in (0, 1):
        assert hits["dial"]["curve"][str(alpha)][0] == pytest.approx(loop_hits(run, alpha, "valid"), abs=0.02)
    # Any value is good enough then, and of these the one with the most distinct items is taken.
    wide = load_bundle(export(dialled(settings, "-0.25", "1", popularity_tolerance=1.0))).manifest
    assert wide["popularity"] == (-0.25 if wide["dial"]["curve"]["-0.25"][1] >= wide["dial"]["curve"]["1"][1] else 1)
    given = load_bundle(export(dialled(settings, "0.3", popularity_range=("0", "0.4")))).manifest
    assert given["popularity"] == 0.3 and given["dial"]["metric"] == "given" and given["dial"]["highest"] == 0.4


def test_mistakes_are_named_before_anything_is_read(run):
    for command in (evaluate, export):
        with pytest.raises(UserError, match="--popularity=2 is outside --popularity_range=-0.25,1.25"):
            command(dialled(run, "2"))
        for metric in ("clicks", "recall@10/pop100", "ndcg@010/full", "hr@0/full", "hr@１0/full", "hr@10/new"):
            with pytest.raises(UserError, match=f"--popularity_metric={metric}: must be hr@K, ndcg@K"):
                command(dialled(run, popularity_metric=metric))


def test_other_systems_stand_in_the_picture_or_are_named(run, tmp_path, monkeypatch):
    points = tmp_path / "points.json"
    points.write_text(json.dumps({"other": {"hr@10/full": 0.1, "aggregate_diversity@10/full": 20}}))
    evaluate(dialled(run, "0", "1", curve_points=str(points)))
    along = {f"{name}/popularity={value}": number for value in (0, 0.5) for name, number in (
        ("hr@10/full", .1 + value), ("aggregate_diversity@10/full", 20 - value))}
    points.write_text(json.dumps({"another tower": along}))
    drawn = []
    monkeypatch.setattr(Axes, "plot", lambda axes, xs, ys, *style, plot=Axes.plot, **words: (
        drawn.append((xs, ys)), plot(axes, xs, ys, *style, **words))[1])
    evaluate(dialled(run, "0", "1", curve_points=str(points)))
    assert ([20, 19.5], [.1, .6]) in drawn
    del along["aggregate_diversity@10/full/popularity=0.5"]
    points.write_text(json.dumps({"another tower": along}))
    with pytest.raises(UserError, match="a curve needs aggregate_diversity@10/full at every popularity, .*0.5 is missing"):
        evaluate(dialled(run, "0", "1", curve_points=str(points)))
    points.write_text(json.dumps({"other": {"hr@10/full": 0.1}}))
    with pytest.raises(UserError, match="--curve_points: each system needs aggregate_diversity@10/full and hr@10/full, oth"):
        evaluate(dialled(run, "0", "1", curve_points=str(points)))
    for text, words in (("[1]", "an object is expected"), ('{"a": {"hr@10/full": "x"}}', "a is no object of numbers"),
                        ('{"a": 3}', "a is no object"), ('{"a": {"hr@10/full": 1%s}}' % ("0" * 400), "a is no object"),
                        ('{"a": {"hr@10/full": NaN}}', "a is no object"), (None, "does not")):
        points.write_text(text) if text else points.unlink()
        with pytest.raises(UserError, match=words):
            evaluate(dialled(run, "0", "1", curve_points=str(points)))


def test_a_choice_at_an_end_of_the_range_names_a_wider_one(run, tmp_path, caplog):
    """Where the range begins with what is best, log and manifest say so."""
    settings = dataclasses.replace(run, paths=dataclasses.replace(run.paths, export_dir=str(tmp_path / "export")))
    inside, at_border = (load_bundle(export(dialled(settings, popularity_range=(lowest, "0.25")))).manifest["dial"]
                         for lowest in ("-0.25", "0"))
    for found in (inside, at_border):
        assert max(found["curve"], key=lambda value: found["curve"][value][0]) == "0"  # as trained is best here
    said = ("popularity 0 is the least of --popularity_range=0,0.25, and one beyond may be better: try "
            "--popularity_range=-0.5,0.25")
    assert "at_border" not in inside and at_border["at_border"] == said
    assert said in caplog.text


def test_what_is_no_end_of_the_range_is_no_border():
    border = lambda value, *bounds, popularity=("auto",): curve.border_of(
        value, DialConfig(popularity=popularity, popularity_range=bounds))
    assert border(-0.25, "-0.25", "1.25").endswith("the least of --popularity_range=-0.25,1.25, and one beyond may be "
                                                   "better: try --popularity_range=-0.75,1.25")
    assert border(4.75, "0", "4.75").endswith("try --popularity_range=0,5")
    assert not border(1, "-0.25", "1.25") and not border(5, "0", "5") and not border(0, "0", "0")
    assert not border(0.25, "0", "0.25", popularity=("0.25",))


def test_fewer_users_choose_where_items_are_many():
    assert curve.users_to_choose_on(3416) == 10_000 and curve.users_to_choose_on(10**6) == 2000
    assert curve.users_to_choose_on(10**8) == 1000


def test_impressions_are_counted_where_the_model_was_trained_against_them(tmp_path):
    """By the same ids as clicks are, hash buckets left out."""
    log = small_run.click_log()
    rng, lines = np.random.default_rng(0), ["user_id,item_id,timestamp"]
    for line in log.splitlines()[1:]:
        user, _, second = line.split(",")[:3]
        item = rng.integers(1, small_run.ITEMS // 2)  # the other half is never shown
        lines.append(f"{user},{item},{int(second) + 1}")
    (tmp_path / "shown.csv").write_text("\n".join(lines) + "\n")
    settings = small_run.config(small_run.prepared(tmp_path, impressions=str(tmp_path / "shown.csv")), tmp_path / "run",
                                epochs=1)
    settings = settings.but(negatives="impressions")
    assert small_run.run(settings) == 0
    trained = load_trained(settings, "latest")
    catalogue = read_catalogue(settings.paths.data_dir, trained.schema, trained.manifest)
    found = counted_of(trained, catalogue, settings.paths.data_dir)
    exposures = np.load(f"{settings.paths.data_dir}/impressions.npy")
    for number in range(1, len(catalogue.counts) + 1):
        assert found.counts[number - 1] == sum(exposures[:, 1] == number)
    assert found.source == "impressions" and found.counts.sum() > 100
    half = [str(item).isdigit() and int(item) >= small_run.ITEMS // 2 for item in catalogue.original_ids]
    assert not found.counts[half].any() and catalogue.counts[half].any()
    assert evaluate(dialled(settings, "0", "1"))["popularity_of"] == "impressions"
    clicks = dataclasses.replace(trained, run_config={"loss": {"negatives": "clicks"}})
    assert counted_of(clicks, catalogue, settings.paths.data_dir).source == "clicks"
    weighted = dataclasses.replace(trained, run_config={"loss": {"loss": "ipw", "propensity_data": "impressions"}})
    assert counted_of(weighted, catalogue, settings.paths.data_dir).source == "impressions"
