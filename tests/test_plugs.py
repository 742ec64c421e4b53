"""Encoders and losses of one's own: the very files of docs/add_an_encoder.md and docs/add_a_loss.md, from outside."""
import dataclasses
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.data.schema import Schema
from clrec_tf.encoders.base import NoSettings
from clrec_tf.encoders.base import Sizes
from clrec_tf.encoders.base import UserEncoder
from clrec_tf.encoders.mean import MeanUserEncoder
from clrec_tf.errors import UserError
from clrec_tf.lab.proof.exposure_simulator import tabular_simulation
from clrec_tf.lab.proof import tabular_losses
from clrec_tf.models.build import build_model
from clrec_tf.models.multi_clrec import MultiCLRecSettings
from clrec_tf.objectives.alias_sampler import AliasSampler
from clrec_tf.objectives.base import RowObjective
from clrec_tf.objectives.contrastive import build_variant
from clrec_tf.objectives.sampled_softmax import SampledSoftmax
from clrec_tf.settings.registry import ENCODERS
from clrec_tf.settings.registry import LOSSES
from clrec_tf.settings.registry import PRETEXTS
from clrec_tf.settings.registry import Registry
from clrec_tf.settings.registry import TOWERS
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting
from clrec_tf.training import run_config
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.step import make_train_call
from tests import forked
from tests.loops import local_variable
from tests.loops import LOG_Q
from tests.loops import ROWS
from tests.loops import SHARE
from tests.naive_queue import make_batch
from tests.naive_queue import tiny_model
from tests import small_run
from tests import tiny_multi

ROOT = pathlib.Path(__file__).parents[1]
PAGES = ("add_an_encoder", "add_a_loss")
TRAINING = {**small_run.SMALL_TRAIN, "embedding_dim": 8, "max_history": 6, "epochs": 12, "steps_per_call": 28,
            "log_every_steps": 1000, "checkpoint_every_steps": 1000}


def files_of(page: str) -> dict[str, str]:
    """Name -> text of the files that a page shows: blocks of Python whose first line names them."""
    blocks = re.findall(r"^```python\n(# (\w+\.py)\n.*?)^```$", (ROOT / "docs" / f"{page}.md").read_text(), re.M | re.S)
    return {name: text for text, name in blocks}


@pytest.fixture(scope="module", name="folder")
def fixture_folder(tmp_path_factory):
    """All files of both pages, as a user would save them."""
    folder = tmp_path_factory.mktemp("plugs")
    for page in PAGES:
        for name, text in files_of(page).items():
            (folder / name).write_text(text)
    (folder / "log.csv").write_text(small_run.click_log(users=120))
    return folder


def call(folder, module, *flags):
    environ = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}  # as in a new shell
    environ["PYTHONPATH"] = str(ROOT)
    return forked.run([sys.executable, "-m", *module.split(), *flags], cwd=folder, env=environ, capture_output=True,
                      text=True, check=False)


def test_the_pages_show_a_file_and_its_test_each():
    assert [sorted(files_of(page)) for page in PAGES] == [["decayed_mean.py", "test_decayed_mean.py"],
                                                          ["bpr.py", "test_bpr.py"]]


def test_the_tests_of_the_pages_pass(folder):
    """In a new shell, where nothing has chosen Keras 2 yet."""
    environ = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_decayed_mean.py", "test_bpr.py"], cwd=folder,
        env={**environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout[-3000:]


@pytest.mark.parametrize("power", [-1.0, 0.5])
def test_the_closed_form_of_the_pages_loss_is_its_optimum(folder, monkeypatch, power):
    """There the gradient of the expected loss over positives from p and negatives from p_n vanishes."""
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(LOSSES, "_classes", dict(LOSSES.classes()))
    monkeypatch.delitem(sys.modules, "bpr", raising=False)
    bpr, world = importlib.import_module("bpr"), tabular_simulation()
    cls = LOSSES.get("bpr")
    optimum = cls.closed_form(world, cls.Settings(sampler_power=power))
    noise = world.click_popularity ** abs(power)
    phi, p, noise = tf.Variable(np.log(optimum[0])), world.clicks[0], noise / noise.sum()
    with tf.GradientTape() as tape:
        losses = [bpr.bpr_loss(phi, tf.fill([len(p), 1], phi[item]), 0.0) for item in range(len(p))]
        expected = tf.reduce_sum([p * noise[item] * losses[item] for item in range(len(p))])
    gradient = tape.gradient(expected, phi)
    assert np.abs(gradient).max() < 1e-9
    assert cls.closed_form(world, cls.Settings(bpr_margin=0.1)) is None


def test_both_train_and_export_from_outside_the_package(folder):
    """With each other: they learn what follows an item, the settings are on record, and the bundle serves without them."""
    flags = [f"--{name}={value}" for name, value in TRAINING.items()]
    plugs = ["--plugins=decayed_mean,bpr", f"--data_dir={folder}/data", f"--workdir={folder}/run"]
    done = call(folder, "clrec_tf.train", *plugs, *flags, "--stages=prepare,train,evaluate,export",
                f"--input={folder}/log.csv", "--shard_records=16", "--user_encoder=decayed_mean", "--half_life=1.5",
                "--loss=bpr", "--bpr_margin=0.1", "--num_negatives=12", "--ks=3", "--candidate_sets=full",
                "--list_length=5", "--recall_k=3", "--export_users=50", "--popularity=0", "--queue_size=40")
    assert done.returncode == 0, done.stderr[-3000:]
    record = json.loads((folder / "run" / "config.json").read_text())
    assert (record["model"]["half_life"], record["loss"]["bpr_margin"]) == (1.5, 0.1)
    metrics = json.loads((folder / "run" / "metrics.json").read_text())
    assert metrics["hr@3/full"] > 2 * metrics["most_popular"]["hr@3/full"] if "most_popular" in metrics else (
        metrics["hr@3/full"] > 0.3)
    shown = call(folder, "clrec_tf.retrieve", f"--export_dir={folder}/run/export", "--history=4,5,6", "--k=3",
                 "--exclude_seen")
    assert shown.returncode == 0 and re.search(r"\b7\b", shown.stdout), shown.stdout + shown.stderr[-2000:]
    # Another half-life is another model: the run does not go on with it.
    other = call(folder, "clrec_tf.train", *plugs, *flags, "--user_encoder=decayed_mean", "--loss=bpr",
                 "--bpr_margin=0.1", "--num_negatives=12", "--queue_size=40")
    assert other.returncode == 2 and "--half_life=5.0 differs from 1.5" in other.stderr
    refused = call(folder, "clrec_tf.train", *plugs, *flags, "--half_life=2", "--queue_size=40",
                   f"--workdir={folder}/refused")
    assert refused.returncode == 2
    assert "--half_life=2.0 belongs to --user_encoder=decayed_mean, not to multi_att: leave it out" in refused.stderr


def test_a_module_that_cannot_be_imported_is_named(folder):
    (folder / "broken.py").write_text("import nothing_of_this_name\n")
    for module, words in (("absent_module", "No module named 'absent_module'"), ("broken", "nothing_of_this_name")):
        (folder / "plugs.flags").write_text(f"--plugins={module}\n")
        done = call(folder, "clrec_tf.evaluate", "--flagfile=plugs.flags")
        assert done.returncode == 2 and f"importing {module} failed" in done.stderr and words in done.stderr


# The registry itself.


@dataclasses.dataclass(frozen=True)
class Speed(Section):
    """Settings of a test."""
    speed: float = setting(1.0, "How fast.", lower=0.0)


def registered(registry, name, settings, tower=""):
    cls = type(name, (), dict(Settings=settings, summary=f"does {name}."))
    return registry.register(name, tower)(cls)


def test_names_classes_and_help():
    registry = Registry("engine")
    steam, both = registered(registry, "steam", Speed), registered(registry, "diesel", NoSettings)
    alone = registered(registry, "diesel", Speed, tower="multi_clrec")
    assert registry.names() == ("steam", "diesel") and registry.help() == "steam: does steam. diesel: does diesel."
    assert registry.get("diesel") is both and registry.get("diesel", "multi_clrec") is alone
    assert registry.get("steam", "multi_clrec") is steam and registry.owners("speed") == ["steam", "diesel"]
    with pytest.raises(UserError, match="--engine=sail: must be one of steam, diesel"):
        registry.get("sail")


def test_a_name_is_taken_once_and_a_setting_means_one_thing():
    registry = Registry("engine")
    registered(registry, "steam", Speed)
    with pytest.raises(ValueError, match="--engine=steam is registered twice"):
        registered(registry, "steam", NoSettings)
    with pytest.raises(ValueError, match="needs Settings"):
        registered(registry, "sail", dict)

    @dataclasses.dataclass(frozen=True)
    class Other(Section):
        """Another default."""
        speed: float = setting(2.0, "How fast.", lower=0.0)

    with pytest.raises(ValueError, match="--speed of .* is another setting"):
        registered(registry, "sail", Other)
    registry.unregister("steam")
    assert registry.names() == ()


def test_every_plug_has_a_phrase_a_title_and_flags():
    help_text = " ".join(command_line._help(("model", "loss"), "").split())  # pylint: disable=protected-access
    for registry in (TOWERS, ENCODERS, LOSSES, PRETEXTS):
        for (name, tower), cls in registry.classes().items():
            assert cls.summary and cls.Settings.__doc__, name
            assert tower or f"{name}: {cls.summary}" in help_text
            for field in dataclasses.fields(cls.Settings):
                assert f"--{field.name} " in help_text


def test_every_loss_with_a_closed_form_is_proved():
    """The stochastic check trains a table with each, at settings that it names."""
    simulation, targets = tabular_simulation(), []
    for case in tabular_losses.cases(simulation, False):
        targets.append(case.target.tobytes())
    for (name, tower), cls in LOSSES.classes().items():
        settings = cls.Settings(**(dict(propensity="softmax", ipw_cap=0.0) if name == "ipw" else {}))
        assert cls.closed_form(simulation, settings).tobytes() in targets, (name, tower)


def test_settings_by_their_flags_names():
    settings = Config.of(queue="raw", embedding_dim=8, batch_size=16, from_time="3")
    assert (settings.objective.queue, settings.model.embedding_dim, settings.train.batch_size) == ("raw", 8, 16)
    other = settings.but(loss="bce", queue_size=32)
    assert other.prepare.from_time == "3" and other.loss.queue_size == 32 and other.loss_class is LOSSES.get("bce")
    with pytest.raises(UserError, match="--queue=raw belongs to --loss=contrastive, not to bce: leave it out"):
        other.refuse_unread()
    other.refuse_unread("model")
    assert other.without_unread().plugs == {}
    with pytest.raises(UserError, match="unknown settings colour"):
        Config.of(colour="red")


def test_records_from_when_all_settings_of_queues_stood_with_the_model_are_read():
    settings = Config.of(queue="raw", queue_size=64, batch_size=16, attention_heads=2, loss="contrastive", debias_beta=.5)
    saved = json.loads(json.dumps(run_config.record(settings)))
    for name in ("queue", "queue_size", "mask_same_user", "balanced_gradient", "prefill_queue", "st_mode", "st_max_ratio"):
        saved["model"][name] = saved["loss"].pop(name)
    del saved["loss"]["sampler"]  # a setting that did not exist yet
    read = run_config.saved_settings(saved)
    assert (read.objective, read.encoder, read.tower) == (settings.objective, settings.encoder, settings.tower)
    assert read.model == settings.model and read.loss == settings.loss
    run_config.check_resumable({**saved, "schema_hash": "h"}, settings, "h")
    with pytest.raises(UserError, match="--queue=cached differs from raw"):
        run_config.check_resumable({**saved, "schema_hash": "h"}, settings.but(queue="cached"), "h")
    with pytest.raises(UserError, match="unknown settings colour"):
        run_config.saved_settings({**saved, "model": {**saved["model"], "colour": "red"}})


def test_what_cannot_be_a_flag_or_is_one_already_is_refused(monkeypatch):
    def settings_of(kind, default, made=True, **bounds):
        field = setting(default, "A setting.", **bounds) if made else default
        return dataclasses.make_dataclass("Own", [("own", kind, field)], bases=(Section,), frozen=True)

    registry = Registry("engine")
    for settings, words in ((settings_of(int, 0, lower=1), "defaults of .*must be ≥ 1"),
                            (settings_of(dict, None), "has the type"), (settings_of(int, 3, made=False), "must be made by"),
                            (type("Bare", (Speed,), {}), "needs Settings")):
        with pytest.raises(ValueError, match=words):
            registered(registry, "steam", settings)
    # Encoders and losses share the command line: dropout of both would be one flag.
    monkeypatch.setattr(ENCODERS, "_classes", dict(ENCODERS.classes()))
    monkeypatch.setattr(LOSSES, "_classes", dict(LOSSES.classes()))
    registered(ENCODERS, "fast", Speed)
    with pytest.raises(ValueError, match="--speed of .* is another setting"):
        registered(LOSSES, "slow", dataclasses.make_dataclass(
            "Slow", [("speed", float, setting(3.0, "How fast.", lower=0.0))], bases=(Section,), frozen=True))
    taken = dataclasses.make_dataclass("Taken", [("batch_size", int, setting(8, "Mine."))], bases=(Section,), frozen=True)
    registered(LOSSES, "slow", taken)
    with pytest.raises(ValueError, match="--batch_size is a general setting"):
        Config.of(loss="slow")


def test_states_of_an_objective_within_another_are_saved_too():
    class Outer(RowObjective):
        """Holds another objective."""

    model = tiny_model()
    inner = SampledSoftmax(model, ROWS, AliasSampler(SHARE, 0, local_variable), 5, LOG_Q)
    assert Outer(model, inner=inner).states == {"sampler": inner.sampler}


def test_a_subclass_of_what_chooses_a_variant_is_refused():
    for cls in (LOSSES.get("contrastive"), LOSSES.get("contrastive", "multi_clrec")):
        with pytest.raises(TypeError, match="would lose what it overrides"):
            type("Mine", (cls,), {}).make(None)


def test_optima_by_their_formulas():
    """p over what each loss divides by, written out."""
    world, even = tabular_simulation(), lambda rows: rows / rows.sum(axis=1, keepdims=True)
    p, clicks, shown = world.clicks, world.click_popularity, world.mean_exposure
    items = p.shape[1]
    for loss, settings, expected in (
            ("contrastive", dict(debias_beta=.3), p / clicks ** .3),
            ("contrastive", dict(negatives="impressions", debias_beta=.3), p / shown ** .3),
            ("contrastive", dict(queue="cached", balanced_gradient=False), None),
            ("contrastive", dict(mask_same_user=True), None),
            ("ipw", dict(ipw_cap=0.0), p / shown), ("ipw", dict(propensity="softmax", ipw_cap=0.0), p / world.exposure),
            ("ipw", dict(ipw_cap=2.0), p * np.minimum(1 / shown, 2.0 * items)), ("ipw", dict(propensity="category"), None),
            ("negative_sampling", {}, p / clicks ** .75), ("negative_sampling", dict(sampler_power=2.0), p / clicks ** 2),
            ("shared_negative_sampling", dict(sampler_power=0.0), p), ("bce", {}, p), ("full_softmax", {}, p),
            ("sampled_softmax", dict(sampler_power=.5), p), ("sampled_softmax", dict(sampler="tf_default"), None)):
        cls = LOSSES.get(loss)
        optimum = cls.closed_form(world, cls.Settings(**settings))
        if expected is None:
            assert optimum is None, (loss, settings)
        else:
            np.testing.assert_allclose(optimum, even(expected), rtol=1e-9, err_msg=f"{loss} {settings}")


def test_a_run_of_before_the_gated_objective_stays_what_it_was():
    """What it did not have is as it worked then; and where another model reads a setting, nobody asks for it."""
    old = Config.of(model="multi_clrec", num_intents=5, residual=False, multi_objective="paper", intent_context="none")
    assert old.objective.beta_of("paper") == 1 and old.objective.beta_of("gated") == 0
    saved = json.loads(json.dumps(run_config.record(old)))
    for section, name in (("model", "multi_objective"), ("model", "intent_context"), ("model", "intent_margin"),
                          ("loss", "intent_beta")):
        del saved[section][name]
    read = run_config.saved_settings(saved)
    assert (read.tower, read.encoder, read.objective) == (old.tower, old.encoder, old.objective)
    run_config.check_resumable({**saved, "schema_hash": "h"}, old, "h")
    with pytest.raises(UserError, match="--multi_objective=gated differs from paper"):
        run_config.check_resumable({**saved, "schema_hash": "h"}, old.but(multi_objective="gated"), "h")
    single = Config.of(attention_heads=2)
    saved = json.loads(json.dumps(run_config.record(single)))
    saved["model"] |= dict(residual=False)  # the default of then
    del saved["model"]["multi_objective"]
    run_config.saved_settings(saved).refuse_unread()
    run_config.check_resumable({**saved, "schema_hash": "h"}, single, "h")


def test_a_run_of_before_towers_read_behaviours_goes_on_without_them():
    saved = json.loads(json.dumps(run_config.record(Config())))
    assert run_config.saved_settings(saved).model.use_events
    del saved["model"]["use_events"]
    saved["schema_hash"] = "h"
    assert not run_config.saved_settings(saved).model.use_events
    run_config.check_resumable(saved, Config.of(use_events=False), "h")
    with pytest.raises(UserError, match="--use_events=True differs from False, .*: give the old value to go on"):
        run_config.check_resumable(saved, Config(), "h")
    run_config.check_resumable(saved, Config(), "h", has_events=False)


def test_a_flagfile_of_a_training_serves_every_command():
    """evaluate reads it whole: a batch that no queue of the default kind holds fits the queue that the file names."""
    flags = ["--queue=in_batch", "--batch_size=4096", "--loss=contrastive"]
    code = ("import sys; from absl import flags; from clrec_tf import command_line; command_line.define_flags(); "
            "flags.FLAGS(sys.argv); print(command_line.read_flags().objective.queue)")
    done = subprocess.run([sys.executable, "-c", code, *flags], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "in_batch", done.stderr[-2000:]


def test_a_run_names_the_plugins_that_it_needs(monkeypatch):
    saved = json.loads(json.dumps(run_config.record(Config.of(plugins=("absent_module",)))))
    with pytest.raises(UserError, match="trained with --plugins=absent_module: give it here too"):
        run_config.saved_settings(saved)
    monkeypatch.setitem(sys.modules, "absent_module", pytest)
    assert run_config.saved_settings(saved).encoder == Config().encoder


def noting(monkeypatch, declared):
    """An encoder registered for this test, which notes what each of its calls is given: (training, gaps, dwell)."""
    monkeypatch.setattr(ENCODERS, "_classes", dict(ENCODERS.classes()))
    seen = []

    @ENCODERS.register("noting")
    class Noting(MeanUserEncoder):
        """The mean of the clicks, laid out."""
        reads, adds_clicks = frozenset(declared), False

        def call(self, clicks, training=False):
            seen.append((training, clicks.gaps is not None, clicks.dwell is not None))
            return super().call(clicks, training)

    schema = Schema(20, 21, (), 0, "int", True, 0, 0, {}, {}, has_dwell=True)
    config = Config.of(user_encoder="noting", embedding_dim=4, max_history=2, queue="in_batch", batch_size=4)
    return seen, build_model(config, schema)


@pytest.mark.parametrize("declared", [(), ("times",), ("dwell",), ("times", "dwell")])
def test_an_encoder_is_given_what_it_declares_and_told_whether_it_trains(monkeypatch, declared):
    seen, model = noting(monkeypatch, declared)
    batch = make_batch([2, 3, 4, 5]) | dict.fromkeys(("time_gap", "dwell"), tf.ones([4, 2], tf.int64))
    variant = build_variant("in_batch", model, 4, False, local_variable)
    optimizer = tf_keras.optimizers.SGD(0.1, jit_compile=False)
    optimizer.build(model.trainable_variables)
    call = make_train_call(model, variant, optimizer, 0.0, LocalRuntime())
    call(iter(tf.data.Dataset.from_tensors(batch)), tf.constant(1, tf.int64))
    given = ("times" in declared, "dwell" in declared)
    assert set(seen) == {(True, *given)}
    seen.clear()
    ones = tf.ones([1, 2], tf.int64)
    model.user_vectors(tf.ones([1, 2, 4]), tf.constant([[True, True]]), ones, ones)
    assert seen == [(False, *given)]


def test_what_an_encoder_reads_is_checked():
    with pytest.raises(ValueError, match="reads .*hours.*choose from"):
        type("Mine", (MeanUserEncoder,), {"reads": frozenset({"hours"})})(NoSettings(), Sizes(4))


@pytest.mark.parametrize("kind", ["in_batch", "raw", "cached"])
def test_queues_add_what_the_model_adds(kind):
    """Once to each row, whatever the queue."""
    batch, rows = tiny_multi.random_batch(np.random.default_rng(5), 6), {}
    for name, settings in (("none", tiny_multi.NO_AUXILIARY), ("all", MultiCLRecSettings(multi_objective="paper"))):
        model = tiny_multi.tiny_model(settings=settings)
        rows[name] = build_variant(kind, model, 8, False, local_variable).open().rows(batch)
    added = model.auxiliary_losses(model.encode(batch), batch)
    assert np.std(added) > 0.1
    np.testing.assert_allclose(rows["all"] - rows["none"], added, rtol=1e-4)


def test_every_position_needs_positions():
    class Without(UserEncoder):
        every_position = True

    with pytest.raises(ValueError, match="has every_position but no positions"):
        Without(NoSettings(), Sizes(dim=4))
