"""python -m clrec_tf.train: trains CLRec on a prepared data set, or with --stages the whole way from log to index.

  python -m clrec_tf.train --data_dir=DATA --workdir=RUN --target_mode=sliding --epochs=5
  python -m clrec_tf.train --flagfile=configs/quickstart.flags

A run that was stopped or killed goes on from its last checkpoint when the same command is given again. Exit codes:
0 complete, 2 bad input, 74 no space left, 75 stopped by SIGTERM and 130 by Ctrl-C, both after saving a checkpoint; 75
too where another training has --workdir. Where TF_CONFIG is set this process is a role of a cluster (docs/cluster.md):
then also 69 where the chief has lost the cluster, and 75 where a worker or parameter server has lost the chief."""
import dataclasses

from absl import logging

from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.data.stored_data import makes_data_set
from clrec_tf.data.stored_data import reads_data_set
from clrec_tf.errors import UserError
from clrec_tf.preparation.stored_inputs import STORES as PREPARE_STORES
from clrec_tf.publishing.stored_exports import exports_run
from clrec_tf.publishing.stored_exports import exports_to
from clrec_tf.retrieval.stored_versions import reads_bundle
from clrec_tf.stores import names
from clrec_tf.stores.files import reads_files
from clrec_tf.system.callable_module import make_callable
from clrec_tf.system import json_log
from clrec_tf.training.cluster import roles
from clrec_tf.training.cluster import stored_roles
from clrec_tf.training.monitoring import profile
from clrec_tf.training import stored_run

# To read on: training/loop.py (the loop), training/step.py (a step), models/clrec.py and models/multi_clrec.py (towers),
# objectives/queue_negatives.py (CLRec's loss; its equation: losses/contrastive.py), objectives/multi_queue_negatives.py
# (Multi-CLRec's), objectives/ipw.py and its neighbours (the others), objectives/contrastive.py (settings and choice).
STAGES = ("generate", "prepare", "train", "evaluate", "export", "show")


def run_stages(config: Config) -> int:
    """Runs the stages of --stages in their natural order; returns the first exit code that is not 0."""
    stages = config.train.stages
    unknown = [stage for stage in stages if stage not in STAGES]
    if unknown or not stages:
        raise UserError(f"--stages={','.join(stages)}: choose from {','.join(STAGES)}")
    check_settings(config)
    for stage in (stage for stage in STAGES if stage in stages):
        if len(stages) > 1:
            logging.info("stage %s", stage)
        if stage == "generate":
            from clrec_tf.preparation.generate import generate_log  # pylint: disable=import-outside-toplevel
            prepare = generate_log(config.paths, config.world, config.prepare)
            config = dataclasses.replace(config, prepare=prepare)
        elif code := run_stage(stage, config):
            return code
    return 0


def check_settings(config: Config) -> None:
    """`UserError` where a later stage would refuse its settings, before an earlier one spends hours."""
    # pylint: disable=import-outside-toplevel
    stages, paths = config.train.stages, config.paths
    if "train" in stages and paths.data_dir:
        from clrec_tf.training.setup import check_paths
        from clrec_tf.training.validation import metric_of
        check_paths(paths)
        if config.train.validate_every:
            metric_of(config)
    if {"evaluate", "export"} & set(stages):
        _check_dial(config)
    if "export" in stages and "train" in stages:
        config.encoder_class.refuse_search("--stages=export")
    if "evaluate" in stages:
        from clrec_tf.evaluation import report
        report.check_settings(config.evaluate.ks, config.evaluate.candidate_sets)
        if "train" in stages:
            report.check_model(config.evaluate, config.encoder_class, config.encoder_class.vectors_of(config.encoder))


def _check_dial(config):
    from clrec_tf.evaluation import curve  # pylint: disable=import-outside-toplevel
    curve.check_settings(config.dial)


def run_stage(stage: str, config: Config) -> int:
    """One stage; imports are made here so that each loads only what it needs."""
    # pylint: disable=import-outside-toplevel
    if stage == "prepare":
        from clrec_tf.preparation.prepare_folder import prepare_folder
        prepare_folder(config.paths, config.prepare)
    elif stage == "train":
        return train(config)
    elif stage == "evaluate":
        from clrec_tf.training.evaluate_run import evaluate
        evaluate(config)
    elif stage == "export":
        from clrec_tf.publishing.export_run import export
        print(names.address_of(export(config)))
    else:
        from clrec_tf.retrieval.show import show
        show(config)
    return 0


def train(config: Config) -> int:
    """The stage train, on this machine or from the chief of a cluster; returns the exit code."""
    # pylint: disable=import-outside-toplevel
    from clrec_tf.training.cluster.choose_runtime import choose_runtime
    from clrec_tf.training import loop
    return loop.train(config, choose_runtime(config))


def main(config: Config) -> int:
    """Runs the command: the stages, or what a role of a cluster other than the chief does."""
    task = roles.task_from_environment()
    if task is not None:
        json_log.note(role=task.role, index=task.index)
    if task is None or task.role == "chief":
        profile.refuse("no step is being trained now")
        return run_stages(config)
    profile.refuse("the chief profiles")
    if task.role == "evaluator":
        from clrec_tf.training.cluster import evaluator  # pylint: disable=import-outside-toplevel
        roles.check_evaluator(config)
        return evaluator.run(config, task)
    return roles.serve(task, config)


def _data_dir(address, flag, door):
    """Opens --data_dir in a store, by stages and role."""
    if {"generate", "prepare"} & set(door.values["stages"]):
        return makes_data_set(address, flag, door)
    task = roles.task_from_environment()
    return (stored_roles.data_opener(task) if task else reads_data_set)(address, flag, door)


def _workdir(address, flag, door):
    """Opens --workdir in a store, by stages and role."""
    run = _run_opener(door.values)
    exports = "export" in door.values["stages"]
    return exports_run(run, address, flag, door) if exports else run(address, flag, door)


def _run_opener(values):
    """The opener of a run, by stages and role."""
    if "train" not in values["stages"]:
        return stored_run.reads_run
    task = roles.task_from_environment()
    return stored_roles.run_opener(task, values) if task else stored_run.keeps_run


def _export_dir(address, flag, door):
    """Opens --export_dir in a store, by stages."""
    return (exports_to if "export" in door.values["stages"] else reads_bundle)(address, flag, door)


STORES = PREPARE_STORES | dict(
    data_dir=_data_dir, init_from=stored_run.starts_from_run, export_dir=_export_dir, workdir=_workdir,
    eval_checkpoint=stored_run.reads_checkpoint, export_checkpoint=stored_run.reads_checkpoint,
    attribute_items=reads_files, curve_points=reads_files)


make_callable(__name__, "clrec_tf.api.run", "train")  # clrec_tf.train(data)

if __name__ == "__main__":
    command_line.run(main, usage=__doc__, uses=("paths", "world", "prepare", "model", "loss", "train", "cluster",
                                                "operations", "evaluate", "dial", "export", "retrieve", "stores"),
                     stores=STORES)
