"""`clrec.train`: trains on a data set, and gives the run, which evaluates and exports itself."""
import contextlib
import dataclasses
import os
import signal
import tempfile
from typing import Any, Iterator, Optional, Union

import polars as pl

from clrec_tf.api import flags as flags_lib
from clrec_tf.api import stores
from clrec_tf.api import tables
from clrec_tf.api.calls import long_call
from clrec_tf.api.data import Data
from clrec_tf.api.data import folder_of
from clrec_tf.config import Config
from clrec_tf.data.schema import load_schema
from clrec_tf.errors import UserError
from clrec_tf.publishing.export_run import export
from clrec_tf.reporting.runs import read_rows
from clrec_tf.stores import names
from clrec_tf.training.evaluate_run import evaluate
from clrec_tf.training import run_config
from clrec_tf.training.loop import train as train_run
from clrec_tf.training.reporter import METRICS_LOG
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.stop_signals import EXIT_PREEMPTED
from clrec_tf.training.threads import set_threads


@dataclasses.dataclass(frozen=True)
class Run:
    """A trained run.

    Attributes:
      workdir: its folder, an absolute path or an address in a store; a temporary one goes with this object.
      data: what it was trained on.
      config: its settings; paths that are addresses are empty there.
    """
    workdir: str
    data: Data
    config: Config = dataclasses.field(repr=False)
    _temporary: Optional[tempfile.TemporaryDirectory] = dataclasses.field(default=None, repr=False)

    @property
    def history(self) -> Union[pl.DataFrame, Any]:
        """metrics.jsonl as a frame: a row for each step that was reported, validations as valid/…, null elsewhere.

        Raises:
          DataError: the run is not there any more.
        """
        with self._opened({}, stores.HISTORY) as config:
            run_config.load(config.paths.workdir)  # or a run that is gone would be one without rows
            rows, _ = read_rows(os.path.join(config.paths.workdir, METRICS_LOG))
        frame = pl.DataFrame(rows, infer_schema_length=None)
        by_step = frame.group_by("step", maintain_order=True).agg(pl.all().drop_nulls().last()) if rows else frame
        return tables.of_kind(by_step, self.data.pandas)

    def evaluate(self, **flags) -> dict[str, Any]:
        """Evaluates as ``python -m clrec_tf.evaluate`` does, and prints the table; metrics by name, as "hr@10/full".

        Args:
          **flags: of evaluate, such as `ks=[10, 50]` or `popularity=[0, 0.5, 1]`, the points of the dial's curve.

        Raises:
          UserError: flags that do not fit the run.
        """
        with long_call(), self._opened(flags_lib.settings("Run.evaluate", flags), stores.EVALUATE) as config:
            return evaluate(config)

    def export(self, **flags) -> str:
        """Publishes a bundle as ``python -m clrec_tf.export`` does, and returns its folder, for `clrec_tf.load`.

        Args:
          **flags: of export; `export_dir` is by default the folder export in the run's, and may be in a store.

        Raises:
          UserError: flags that do not fit the run, or a check of the bundle that fails; nothing is left then.
        """
        with long_call(), self._opened(flags_lib.settings("Run.export", flags), stores.EXPORT) as config:
            return stores.lasting(names.address_of(export(config)), "export_dir")

    @contextlib.contextmanager
    def _opened(self, settings, openers) -> Iterator[Config]:
        """The run's settings with others, local paths in place of addresses; `UserError` where they do not fit."""
        config = self.config.but(**stores.without_addresses(settings, openers))
        paths = dict(data_dir=self.data.folder, workdir=self.workdir)
        settings = settings | {name: path for name, path in paths.items() if name in openers}
        with stores.opened(dataclasses.asdict(config.stores) | settings, openers) as local:
            yield config.but(**local)


def train(data: Union[Data, str, os.PathLike], **flags) -> Run:
    """Trains as ``python -m clrec_tf.train`` does, on this machine; a run in `workdir` goes on from its checkpoint.

    Trainings of several threads of a process wait for each other.

    Args:
      data: of `prepare`, or the folder of a data set, which may be an address in a store.
      **flags: of train, such as `epochs=5`; `workdir` is by default a temporary folder, and may be in a store.

    Returns:
      The run, trained to its end, and complete in its store.

    Raises:
      UserError: flags or data at fault. BusyError: another process trains in `workdir`. KeyboardInterrupt: stopped by
        Ctrl-C; SIGTERM is passed on to the program. In both cases after a checkpoint was saved, in the store too.
    """
    if "TF_CONFIG" in os.environ:
        raise UserError("TF_CONFIG is set, which makes this process a part of a cluster: train there by python -m "
                        "clrec_tf.train, or unset it")
    settings = dict(data_dir=folder_of(data)) | flags_lib.settings("train", flags)
    temporary = None if settings.get("workdir") else tempfile.TemporaryDirectory(prefix="clrec-run-")
    settings["workdir"] = os.path.join(temporary.name, "run") if temporary else stores.lasting(
        settings["workdir"], "workdir")
    kept = Config.of(**stores.without_addresses(settings, stores.TRAIN))
    with long_call(), stores.opened(settings, stores.TRAIN) as local:
        config = kept.but(**local)
        if not isinstance(data, Data):
            data = Data(settings["data_dir"], load_schema(config.paths.data_dir), _stores=kept.stores)
        set_threads(config.train)
        code = train_run(config, LocalRuntime())
    if code == EXIT_PREEMPTED:
        signal.raise_signal(signal.SIGTERM)
    if code:
        raise KeyboardInterrupt("training was stopped after a checkpoint: the same call with the same workdir goes on")
    return Run(kept.paths.workdir or settings["workdir"], data, kept, temporary)
