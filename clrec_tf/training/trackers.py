"""Where the numbers of a training go beside metrics.jsonl, by --tracker."""
import os
import time

from absl import logging
import tensorflow as tf

from clrec_tf.errors import UserError
from clrec_tf.system import json_files
from clrec_tf.training import run_config

SUMMARIES_FOLDER = "summaries"
MLFLOW_FILE = "mlflow_run.json"  # names the run that goes on, of this folder


class Tracker:
    """Nowhere else: --tracker=none.

    Args:
      config: of the run.
    """

    def __init__(self, config):
        del config

    def write(self, step: int, row: dict) -> None:
        """Numbers by name, at a step."""

    def close(self, finished: bool) -> None:
        """The training ends, with its last step or before."""


class TensorBoard(Tracker):
    """Scalars in the folder `summaries` of --workdir."""

    def __init__(self, config):
        super().__init__(config)
        self._writer = tf.summary.create_file_writer(os.path.join(config.paths.workdir, SUMMARIES_FOLDER))

    def write(self, step, row):
        """See `Tracker`."""
        with self._writer.as_default():
            for name, value in row.items():
                tf.summary.scalar(name, value, step=step)
        self._writer.flush()

    def close(self, finished):
        """See `Tracker`."""
        self._writer.close()


class MlFlow(Tracker):
    """A run of MLflow with all settings and metrics, in which a resumed training goes on.

    MLflow's own variables say where: MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME (default: clrec_tf). A store that
    fails later does not end the training: what it does not take stays in metrics.jsonl.
    """

    def __init__(self, config):
        super().__init__(config)
        self._warned, workdir = False, config.paths.workdir
        try:
            import mlflow  # pylint: disable=import-outside-toplevel
        except ImportError as error:
            raise UserError(f"--tracker=mlflow needs the package mlflow, which does not load ({error}): pip install "
                            "mlflow-skinny sqlalchemy alembic, or use --tracker=tensorboard") from error
        self._entities, self._error = mlflow.entities, mlflow.exceptions.MlflowException
        try:
            self._client = mlflow.MlflowClient()
            self._run = self._earlier(workdir) or self._new(workdir, config)
            self._client.update_run(self._run, status="RUNNING")
        except (self._error, OSError) as error:
            raise UserError(f"--tracker=mlflow: the store {mlflow.get_tracking_uri()} cannot be used ({error}): set "
                            "MLFLOW_TRACKING_URI, for a file of a database pip install sqlalchemy alembic, or use "
                            "--tracker=tensorboard") from error
        logging.info("--tracker=mlflow: run %s in %s", self._run, mlflow.get_tracking_uri())

    def _earlier(self, workdir):
        """The id of the run in which this folder's training was tracked before, if the store has it."""
        path = os.path.join(workdir, MLFLOW_FILE)
        if not os.path.exists(path):
            return None
        facts = json_files.load_json(path, "it was just there", "remove it to track in a new run of MLflow")
        known = facts.get("run_id")
        try:
            return self._client.get_run(known).info.run_id
        except self._error as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            logging.warning("MLflow has no run %s any more, in which this training was tracked: a new one begins",
                            known)
            return None

    def _new(self, workdir, config):
        """The id of a new run, noted in the folder."""
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "clrec_tf")
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        run = self._client.create_run(experiment, run_name=os.path.basename(os.path.abspath(workdir))).info.run_id
        settings = run_config.settings_in_force(run_config.record(config)) | {"data_dir": config.paths.data_dir}
        self._client.log_batch(run, params=[
            self._entities.Param(name, str(value)[:500]) for name, value in settings.items()])
        json_files.save_json(os.path.join(workdir, MLFLOW_FILE), {"run_id": run})
        return run

    def write(self, step, row):
        """See `Tracker`. MLflow allows no @ in names: hr@10/full is hr_at_10/full there."""
        now = int(1000 * time.time())
        self._tell(lambda: self._client.log_batch(self._run, metrics=[
            self._entities.Metric(name.replace("@", "_at_"), value, now, step) for name, value in row.items()]))

    def close(self, finished):
        """See `Tracker`."""
        self._tell(lambda: self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED"))

    def _tell(self, tell):
        try:
            tell()
        except Exception as error:  # pylint: disable=broad-except  (whatever the store or the network raises)
            if not self._warned:
                logging.warning("MLflow did not take what it was told (%s): the training goes on, and metrics.jsonl "
                                "has all", str(error).partition("\n")[0])
            self._warned = True


TRACKERS = dict(tensorboard=TensorBoard, mlflow=MlFlow, none=Tracker)
