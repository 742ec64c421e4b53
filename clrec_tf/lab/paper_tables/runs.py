"""The runs of a table, each row and seed in a folder of its own: done once, and gone on with where one was stopped."""
import dataclasses
import gc
import os
import re
import time
from typing import Iterator

from absl import logging
import numpy as np

from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.errors import UserError
from clrec_tf.lab.paper_tables import data_sets
from clrec_tf.lab.paper_tables import record
from clrec_tf.lab.paper_tables.definition import Row
from clrec_tf.lab.paper_tables.definition import Table
from clrec_tf.system import atomic
from clrec_tf.system.json_files import load_json
from clrec_tf.system.json_files import save_json
from clrec_tf.training.cluster.choose_runtime import choose_runtime
from clrec_tf.training import loop
from clrec_tf.training.evaluate_run import evaluate
from clrec_tf.training.restore import load_trained

RESULT_FILE, MARK_FILE = "result.json", "tables.json"


class StoppedError(UserError):
    """A signal has stopped a training, which has saved a checkpoint."""

    def __init__(self, workdir: str, exit_code: int):
        super().__init__(f"the training in {workdir} was stopped; run the same command to go on")
        self.exit_code = exit_code


@dataclasses.dataclass(frozen=True)
class Run:
    """One row with one seed.

    Attributes:
      row: see there.
      seed: of initial values and order.
      settings: by flag, those given alone.
      base: what they are added to.
      workdir: the run's folder.
    """
    row: Row
    seed: int
    settings: dict
    base: Config
    workdir: str

    @property
    def config(self) -> Config:
        """All settings but folders; `UserError` where this version does not take one."""
        try:
            return self.base.but(**self.settings).without_unread()
        except UserError as error:
            raise UserError(f"row {self.row.name}: {error}; --table_rows chooses other rows") from error

    @property
    def result(self) -> dict:
        """What `measured` left, or nothing."""
        path = os.path.join(self.workdir, RESULT_FILE)
        if not os.path.exists(path):
            return {}
        remedy = "delete it and run the same command again"
        return load_json(path, remedy, remedy)


def plan(table: Table, data: str, config: Config) -> list[Run]:
    """All runs of a table on a data set, seed by seed.

    Raises:
      UserError: --tables_dir is missing or holds something else.
    """
    folder = require(config.tables.tables_dir, "tables_dir", "prepared data and runs are kept there")
    _claim(folder)
    first, count = config.paths.seed, config.tables.table_seeds or table.seeds
    base, runs = Config.of(threads=config.train.threads, parallel_ops=config.train.parallel_ops), []
    for seed in range(first, first + count):
        for row in table.rows_on(data):
            settings = {**table.settings, **table.data[data].settings, **row.settings, "seed": seed}
            settings |= dict(epochs=config.tables.table_epochs) if config.tables.table_epochs else {}
            workdir = os.path.join(folder, table.name, data, _slug(row.name), f"seed_{seed}")
            runs.append(Run(row, seed, settings, base, workdir))
    return runs


def chosen(table: Table, runs: list[Run], names: tuple[str, ...]) -> list[Run]:
    """The runs of the rows of --table_rows; `UserError` for an unknown row, or settings that this version refuses."""
    names = [table.row(name).name for name in names] or [row.name for row in table.rows]
    kept = [run for run in runs if run.row.name in names]
    if not kept:
        raise UserError(f"--table_rows={','.join(names)}: this data set has none of these rows")
    for run in kept:
        run.config  # pylint: disable=pointless-statement  (refuses)
    return kept


def work(table: Table, runs: list[Run], todo: list[Run], config: Config) -> Iterator[Run]:
    """Trains, evaluates and measures what has no result yet; yields each run that is done.

    Args:
      table: of the runs.
      runs: all of `plan`.
      todo: of `chosen`.
      config: with the folders of the data, from `data_sets.prepared`.

    Raises:
      UserError: a row needs another that is not trained. StoppedError: a signal came.
    """
    open_runs = [run for run in todo if not run.result]
    for number, run in enumerate(open_runs):
        begin = time.monotonic()
        metrics = measured(table, run, runs, config)
        save_json(os.path.join(run.workdir, RESULT_FILE), dict(metrics, seconds=round(time.monotonic() - begin, 1)))
        seconds = [other.result["seconds"] for other in todo if other.result]
        logging.info("%s: %s, seed %d done, %d of %d; about %.0f min remain", table.name, run.row.name, run.seed,
                     number + 1, len(open_runs), np.mean(seconds) * (len(open_runs) - number - 1) / 60)
        gc.collect()  # models hold their compiled functions in cycles
        yield run


def check_records(runs: list[Run], data: Config) -> None:
    """`UserError` where a run began with other settings, also one that is finished; writes the record of new ones."""
    for run in runs:
        record.keep(run.workdir, dict(run.settings, data=os.path.basename(os.path.dirname(data.paths.data_dir))))


def measured(table: Table, run: Run, runs: list[Run], data: Config) -> dict:
    """Metrics of one run, which is trained where it has to be."""
    config = run.config.but(data_dir=data.paths.data_dir, workdir=run.workdir,
                            world_dir=data.exposure_world.world_dir)
    if run.row.measure:
        needed = [other for name in run.row.needs for other in runs if (other.row.name, other.seed) == (name, run.seed)]
        for other in needed:
            if not other.result:
                raise UserError(f"row {run.row.name} needs {other.row.name}: train that too, see --table_rows")
        return run.row.measure(config, [other.workdir for other in needed])
    if code := loop.train(config, choose_runtime(config)):
        raise StoppedError(run.workdir, code)
    trained = load_trained(config, config.evaluate.eval_checkpoint)
    with data_sets.quietly(os.path.join(run.workdir, "evaluation.txt")):
        result = evaluate(config, trained)
    return result | (table.measure(config, trained) if table.measure else {})


def _claim(folder: str) -> None:
    """Marks a new --tables_dir; `UserError` where it holds something else."""
    mark = os.path.join(folder, MARK_FILE)
    if os.path.exists(mark):
        return
    if os.path.exists(folder) and not (os.path.isdir(folder) and not os.listdir(folder)):
        raise UserError(f"--tables_dir={folder} exists and was not made by this command: choose another")
    with atomic.write_errors(folder, f"tables_dir={folder}"):
        os.makedirs(folder, exist_ok=True)
        save_json(mark, dict(made_by="python -m clrec_tf.tables"))


def _slug(name: str) -> str:
    """A name that a folder may have."""
    return re.sub(r"\W+", "_", name.lower().replace("+", " and ").replace("/", " ")).strip("_")
