"""What finished runs have written, read for a page, and refused where it cannot be compared."""
import dataclasses
import math
import os
from typing import Any
from typing import Optional
from typing import Sequence

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.evaluation import intent_example
from clrec_tf.evaluation.report import METRICS_FILE
from clrec_tf.system.finite import is_number
from clrec_tf.system import json_files
from clrec_tf.system.local_path import local_path
from clrec_tf.training import checkpoint_list
from clrec_tf.training.checkpoints import BEST_FOLDER
from clrec_tf.training.checkpoints import LATEST_FOLDER
from clrec_tf.training import evaluations
from clrec_tf.training import run_config
from clrec_tf.training.reporter import METRICS_LOG

ALIKE = ("split", "users", "items", "filter_seen", "pop100_protocol", "popularity_of")  # of evaluations compared
_EVALUATE = "python -m clrec_tf.evaluate"
_MOST_NAMED = 10  # folders


@dataclasses.dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
      name: the end of its path by which it is told from the others.
      folder: as given.
      config: config.json.
      metrics: metrics.json.
      rows: of metrics.jsonl and of an evaluator, by step: {"step": int, name: number}.
      unread: lines of metrics.jsonl that cannot be read.
      example: one user's intents; None where the model has none, or evaluate did not write it.
      best, latest: steps of its checkpoints; None where they are not there.
    """
    name: str
    folder: str
    config: dict
    metrics: dict
    rows: Sequence[dict]
    unread: int = 0
    example: Optional[intent_example.IntentExample] = None
    best: Optional[int] = None
    latest: Optional[int] = None

    def number(self, name: str) -> Optional[float]:
        """A figure of metrics.json; None where there is none."""
        return number(self.metrics.get(name))

    def setting(self, section: str, name: str) -> Any:
        """A setting of config.json; None where there is none."""
        return _setting(self.config, section, name)

    def curve(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of what the rows have of a name, by step; later rows of a step hold."""
        return sorted({row["step"]: number(row[name]) for row in self.rows
                       if number(row.get(name)) is not None}.items())


def number(value: Any) -> Optional[float]:
    """The value where it is a finite number, else None."""
    return value if is_number(value) else None


def read_runs(folders: Sequence[str]) -> list[Run]:
    """Reads runs, in the order given.

    Args:
      folders: workdirs.

    Raises:
      UserError: no run is given, one twice, one that is none or was not evaluated, or runs of different data sets.
      DataError: a file is damaged.
    """
    if not folders:
        raise UserError("no RUN is given: name the --workdir of one or several trainings, as in "
                        "python -m clrec_tf.report RUN --html=FILE")
    folders = [local_path(folder, "workdir") for folder in folders]
    known = {}
    for folder in folders:
        other = known.setdefault(os.path.realpath(folder), folder)
        if other is not folder:
            raise UserError(f"{folder} is the same run as {other}: name each run once")
    for folder in folders:
        _check_folder(folder)
    configs = [run_config.load(folder) for folder in folders]
    _check_data(folders, configs)
    return [_read(name, folder, config) for name, folder, config in zip(_names(folders), folders, configs)]


def _check_folder(folder):
    """`UserError` where a folder holds no run; runs inside it are named."""
    if not os.path.isdir(folder):
        raise UserError(f"{folder} is {'a file' if os.path.exists(folder) else 'not there'}: give the folder of a run, "
                        "the --workdir of a training")
    if os.path.exists(os.path.join(folder, run_config.CONFIG_FILE)):
        return
    inside = sorted(entry.path for entry in os.scandir(folder)
                    if os.path.exists(os.path.join(entry.path, run_config.CONFIG_FILE)))
    more = f" and {len(inside) - _MOST_NAMED} more" if len(inside) > _MOST_NAMED else ""
    remedy = (f"it holds runs: give {' '.join(inside[:_MOST_NAMED])}{more}" if inside else
              "give the --workdir of a training (python -m clrec_tf.train)")
    raise UserError(f"{folder} is no run, it has no {run_config.CONFIG_FILE}: {remedy}")


def _check_data(folders, configs):
    """`UserError` where runs were trained on different data sets."""
    for folder, config in zip(folders, configs):
        if config["schema_hash"] != configs[0]["schema_hash"]:
            first, other = (f"{one} on {_data_dir(values) or 'an unnamed folder'} (schema {values['schema_hash'][:12]})"
                            for one, values in ((folders[0], configs[0]), (folder, config)))
            raise UserError(f"runs of different data sets cannot be compared: {first}, {other}: make a page for each "
                            "data set")


def _data_dir(config):
    return _setting(config, "paths", "data_dir")


def _setting(config, section, name):
    values = config.get(section)
    return values.get(name) if isinstance(values, dict) else None


def _read(name, folder, config) -> Run:
    command = f"{_EVALUATE} --data_dir={_data_dir(config) or 'DATA'} --workdir={folder}"
    path = os.path.join(folder, METRICS_FILE)
    metrics = json_files.load_json(path, f"the run was not evaluated; run {command}", f"run {command} again")
    if not isinstance(metrics.get("split"), str) or number(metrics.get("users")) is None:
        raise DataError(f"{path} is not what evaluate writes, without split or users: run {command} again")
    _check_popularities(metrics, f"{path} is damaged: run {command} again")
    rows, unread = read_rows(os.path.join(folder, METRICS_LOG))
    metric = _setting(config, "train", "validation_metric")
    rows += [{"step": row["step"], f"valid/{metric}": row.get("value")} for row in evaluations.read(folder, metric)
             if _is_step(row["step"])]
    return Run(name, folder, config, metrics, rows, unread, intent_example.load_example(folder),
               *(_newest_step(os.path.join(folder, kind)) for kind in (BEST_FOLDER, LATEST_FOLDER)))


def _newest_step(folder) -> Optional[int]:
    """The step of the newest checkpoint in a folder."""
    prefix = checkpoint_list.newest(folder)
    return prefix and int(prefix.rpartition("-")[2])


def _check_popularities(metrics, damaged):
    """`DataError` where a metric's name has a popularity that is no number."""
    for name in metrics:
        value = name.partition("/popularity=")[2].partition("/")[0]
        try:
            if value and not math.isfinite(float(value)):
                raise ValueError(value)
        except ValueError as error:
            raise DataError(f"{damaged} ({name[:100]})") from error


def read_rows(path: str) -> tuple[list[dict], int]:
    """The rows of a metrics.jsonl that have a step, and how many lines have none."""
    if not os.path.exists(path):
        return [], 0
    rows, unread = [], 0
    with open(path, "rb") as file:
        for line in file:
            try:
                row = json_files.parse(line)
                if not _is_step(row["step"]):
                    raise ValueError(row["step"])
                rows.append(row)
            except (ValueError, KeyError, TypeError):
                unread += 1
    return rows, unread


def _is_step(value):
    return number(value) is not None and value >= 0


def _names(folders):
    """The shortest ends of the paths that differ."""
    parts = [os.path.realpath(folder).split(os.sep) for folder in folders]
    for length in range(1, max(map(len, parts)) + 1):
        names = [os.sep.join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [os.path.realpath(folder) for folder in folders]
