"""Puts a training together: data, model, queue, optimizer, checkpoints, and the step to go on from."""
import dataclasses
import os
from typing import Callable, Optional

from absl import logging
import tf_keras

from clrec_tf.config import Config
from clrec_tf.config import Paths
from clrec_tf.config import require
from clrec_tf.data.assignments import Assignments
from clrec_tf.data.epoch_plan import EpochPlan
from clrec_tf.data.fetched_pools import faults_told
from clrec_tf.data.input_pipeline import training_dataset
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import UserError
from clrec_tf.models.build import build_keys
from clrec_tf.models.build import build_model
from clrec_tf.models.build import load_content
from clrec_tf.objectives.build import build_objective
from clrec_tf.stores import names
from clrec_tf.system import atomic
from clrec_tf.training.checkpoints import BEST_FOLDER
from clrec_tf.training.checkpoints import Checkpoints
from clrec_tf.training.checkpoints import LATEST_FOLDER
from clrec_tf.training.dispatch import Dispatcher
from clrec_tf.training.optimizers import build_optimizer
from clrec_tf.training.places import check_apart
from clrec_tf.training.progress import Progress
from clrec_tf.training import run_config
from clrec_tf.training.step import make_train_call
from clrec_tf.training.step import TrainCall
from clrec_tf.training.validation import validation_steps
from clrec_tf.training.validation import Validator
from clrec_tf.training.warm_start import WarmStart


FEW_WINDOWS = 4  # of a step, below which a warning is due


@dataclasses.dataclass(frozen=True)
class Run:
    """What the loop needs.

    Attributes:
      model, optimizer: trained.
      call: several steps, see ``step``.
      dataset: makes the batches that are left, in one process.
      dispatcher: trains, see ``dispatch``.
      assignments: who trains which batches.
      progress: where the training stands.
      checkpoints: saves it.
      validator: None without validation.
      total_steps: of all epochs.
      validation_steps: steps after which to validate, ascending.
      num_items: of the catalogue.
    """
    model: tf_keras.Model
    optimizer: tf_keras.optimizers.Optimizer
    call: TrainCall
    dataset: Callable
    dispatcher: Dispatcher
    assignments: Assignments
    progress: Progress
    checkpoints: Checkpoints
    validator: Optional[Validator]
    total_steps: int
    validation_steps: list[int]
    num_items: int

    @property
    def finished(self) -> bool:
        """Whether training has ended, with its last epoch or by early stopping."""
        return self.progress.stopped_early or self.progress.step >= self.total_steps


def set_up(config: Config, runtime, init_checkpoint: str = "latest") -> Run:
    """Builds or restores the run in --workdir.

    Args:
      config: of the run.
      runtime: where it trains.
      init_checkpoint: which one of --init_from a new run begins with.

    Raises:
      UserError: flags that are missing or contradict each other, the data or an earlier run in the same folder.
    """
    data_dir, workdir = check_paths(config.paths)
    settings = config.train
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir, settings.verify_data)
    plan = training_plan(config, manifest)
    resumed = open_workdir(workdir, config, schema)

    total_steps = Assignments(plan, settings.epochs).total
    with runtime.unharmed("making the model"), runtime.scope():
        model = build_model(config, schema, load_content(data_dir, schema), config.paths.seed)
        optimizer = build_optimizer(settings, total_steps)
        optimizer.build(model.trainable_variables)
        keys = build_keys(config, schema, model, config.paths.seed)
    check_every_position(config, model)
    used = _parsed(schema, model, getattr(config.objective, "debias_context", ""))

    def dataset(order=plan, pools=None):
        pools = Assignments(order, settings.epochs).remaining() if pools is None else pools
        return training_dataset(data_dir, used, manifest, order, pools, config.model.max_history, settings.time_dropout)

    objective = build_objective(config, schema, manifest, model, runtime, dataset, plan.steps(0), keys)
    progress = Progress(metric=settings.validation_metric, judging=run_config.judging(config))
    checkpoints = Checkpoints(workdir, settings.keep_checkpoints, model, optimizer, objective.states, progress, runtime,
                              keys)
    if resumed:
        _restore(checkpoints, progress, config, runtime)
    assignments = Assignments(plan, settings.epochs, progress.step, progress.position)
    begins = not progress.step
    if config.train.init_from and not begins:
        _warn_of_other_start(config)
    taken = begins and _warm_start(config, schema, manifest, model, optimizer, checkpoints, runtime,
                                   init_checkpoint)
    if begins and keys is not None:
        with runtime.unharmed("copying the model to its key encoder"):
            keys.begin()
    if objective.prefills and begins and not taken:
        # Another seed than training's, or the first batches would meet themselves in the queue.
        with faults_told(data_dir):
            _prefill(objective, dataset(training_plan(config, manifest, another=1)), runtime)

    validator = _validator(config, schema, manifest, model, runtime)
    feed = runtime.feed(assignments, plan, data_dir, used, manifest, config.model.max_history, settings.time_dropout)
    call = make_train_call(model, objective, optimizer, settings.clip_norm, runtime, feed.open, keys)
    dispatcher = Dispatcher(call, feed, assignments, runtime, settings.steps_per_call, settings.log_every_steps)
    run = Run(
        model, optimizer, call, lambda: dataset(pools=assignments.remaining()), dispatcher, assignments, progress,
        checkpoints, validator, total_steps,
        validation_steps(assignments.epoch_ends, settings.validate_every) if validator else [], schema.num_items)
    if not run.finished:  # else these settings train nothing, and those that did stay on record
        record_run(workdir, config, schema.hash())
    runtime.check_workdir(workdir)
    return run


def _restore(checkpoints: Checkpoints, progress: Progress, config: Config, runtime) -> None:
    """Goes on from the latest checkpoint, if there is one that can be read."""
    with runtime.unharmed("restoring a checkpoint"):
        restored = checkpoints.restore_latest()
    if restored:
        logging.info("going on from %s", restored)
        progress.use_metric(config.train.validation_metric, run_config.judging(config))


def _warn_of_other_start(config: Config) -> None:
    """Says where a run that goes on has another --init_from on record, since what is given is not read."""
    given, saved = config.train.init_from, run_config.load(config.paths.workdir).get("train", {}).get("init_from", "")
    if os.path.realpath(given) != os.path.realpath(names.local_of(saved) or os.sep):
        logging.warning("--init_from=%s is not read: the run in --workdir=%s has a checkpoint of its own, and started "
                        "from %s; choose another --workdir to start from it", given, config.paths.workdir,
                        saved or "nothing")


def _warm_start(config, schema, manifest, model, optimizer, checkpoints, runtime, which) -> bool:
    """Begins with what --init_from has learned; returns whether queues were taken over."""
    if not config.train.init_from:
        return False
    start = WarmStart(config, schema, manifest, which)
    with runtime.unharmed("taking over --init_from"):
        return start.fill(model, optimizer, checkpoints.local_states, runtime)


def _prefill(objective, batches, runtime) -> None:
    """Fills the queues, on every worker alike."""
    objective.prefill(batches)
    for state in objective.states.values():
        for variable in state.local_variables.values():
            runtime.share_local(variable)


def _validator(config: Config, schema: schema_lib.Schema, manifest: schema_lib.Manifest, model, runtime):
    """The `Validator`; None where nothing is validated, or by another process."""
    if not config.train.validate_every:
        return None
    if not manifest.records("valid"):
        logging.info("the data set has no validation part: training runs without validation")
        return None
    return None if runtime.evaluator else Validator(config, schema, manifest, model)


def _parsed(schema: schema_lib.Schema, model, debias_context: str) -> schema_lib.Schema:
    """The schema without what neither model nor loss reads: the pipeline does not even parse it."""
    return dataclasses.replace(
        schema, features=schema.features if model.reads_features else (),
        has_dwell=schema.has_dwell and model.uses_dwell,
        query_features=schema.query_features if debias_context else model.query_features)


def check_every_position(config: Config, model) -> None:
    """`UserError` where --target_mode=all meets times that differ with every target; warns of steps of few windows."""
    if config.train.target_mode != "all":
        return
    if config.train.batch_size < FEW_WINDOWS * config.model.max_history:
        logging.warning("--batch_size=%d targets are few windows of --max_history=%d, if users have that many clicks: "
                        "what a step learns and what it adds to a queue is then of few users; give %d or more",
                        config.train.batch_size, config.model.max_history, FEW_WINDOWS * config.model.max_history)
    if model.uses_time and not model.user_encoder.gaps_to_next:
        raise UserError(f"--target_mode=all with --user_encoder={config.encoder_class.registered_name}: a click's time "
                        "before the request is another for each target after it; set --time_embedding=none, or use "
                        "--user_encoder=sasrec, which reads the time to the next click")


def training_plan(config: Config, manifest: schema_lib.Manifest, another: int = 0) -> EpochPlan:
    """Order and cut of the examples; `another` is added to the seed."""
    settings = config.train
    return EpochPlan(manifest.shards["train"], settings.batch_size, settings.shuffle_shards, settings.target_mode,
                     config.paths.seed + another, config.model.max_history,
                     config.pretext_class.clicks_read(config.model.max_history))


def check_paths(paths: Paths) -> tuple[str, str]:
    """--data_dir and --workdir; `UserError` where one is missing, or no run can be kept in --workdir."""
    data_dir = require(paths.data_dir, "data_dir", "a folder made by python -m clrec_tf.prepare")
    workdir = require(paths.workdir, "workdir", "a folder for checkpoints and metrics of this run")
    check_apart(workdir, data_dir)
    atomic.check_folder_place(workdir, "workdir")
    return data_dir, workdir


def open_workdir(workdir: str, config: Config, schema: schema_lib.Schema) -> bool:
    """Checks that the run in the folder may go on; returns whether there is one.

    A run without a checkpoint was started and trained nothing: whatever its settings, it begins anew.
    """
    folders = [os.path.join(workdir, folder) for folder in (LATEST_FOLDER, BEST_FOLDER)]
    saved = [name for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)]
    recorded = os.path.exists(os.path.join(workdir, run_config.CONFIG_FILE))
    if not recorded or not any(name.endswith(".index") for name in saved):
        return False
    run_config.check_resumable(run_config.load(workdir), config, schema.hash(), bool(schema.event_weights))
    return True


def record_run(workdir: str, config: Config, schema_hash: str) -> None:
    """Makes the folder with its config.json; `UserError` where that cannot be written."""
    with atomic.write_errors(workdir, f"workdir={workdir}"):
        os.makedirs(workdir, exist_ok=True)
        run_config.save(workdir, config, schema_hash)
