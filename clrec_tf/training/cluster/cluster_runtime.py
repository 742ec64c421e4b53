"""The runtime of a cluster: variables on parameter servers, calls on workers, the chief hands out the work.

What TensorFlow promises: a call whose worker is lost is done again by another (at least once), a lost worker comes back
by itself, a lost parameter server ends everything. What it does not notice is a process that stands still; for that
there are deadlines here.
"""
import contextlib
import os
import threading
import time

from absl import logging
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.errors import ClusterError
from clrec_tf.errors import UserError
from clrec_tf.system.pattern_names import is_pattern
from clrec_tf.system import private_tensorflow
from clrec_tf.training.cluster import roles
from clrec_tf.training.cluster.watch import end
from clrec_tf.training.cluster.watch import GO_ON
from clrec_tf.training.cluster.watch import Watch
from clrec_tf.training.feeds import PoolFeed
from clrec_tf.training.reasons import reason
from clrec_tf.training.reasons import servers_named

LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.DeadlineExceededError,
        tf.errors.FailedPreconditionError)
POLL_S = 0.02


def _argument(spec, choose):
    """An argument of a call that is chosen by the worker which takes it.

    The coordinator asks for the value of the worker that is about to run a call; before that, when the call is
    scheduled on this thread, for that of worker 0, by whose type the function is traced.
    """
    scheduler = threading.get_ident()
    return private_tensorflow.PerWorkerArgument(
        lambda worker: spec if threading.get_ident() == scheduler else choose(worker)[0])


def _partitioner(least_rows, servers):
    """Splits the first axis of large tables over all servers."""
    def shards(shape, dtype, **_):
        del dtype
        return [min(servers, shape[0]) if shape[0] >= least_rows else 1] + [1] * (shape.rank - 1)
    return shards


class ClusterRuntime:
    """Chief's side of a cluster.

    Args:
      task: of the chief.
      config: settings.

    Raises:
      ClusterError: roles that are absent or do not answer.
    """

    def __init__(self, task: roles.Task, config: Config):
        settings = config.cluster
        if is_pattern(config.paths.workdir):
            raise UserError(f"--workdir={config.paths.workdir}: parameter servers would take *, ?, [ and \\ for a "
                            "pattern and not find the checkpoints; choose a folder without them in its path")
        self._deadline, self.task = settings.progress_deadline_s, task
        self.num_workers = len(task.addresses["worker"])
        self.depth = (1 + settings.calls_ahead) * self.num_workers
        tf.config.threading.set_inter_op_parallelism_threads(
            max(config.train.parallel_ops or os.cpu_count(), roles.MIN_THREADS))
        tf.config.set_visible_devices([], "GPU")  # the chief encodes nothing that pays for one
        roles.wait_for_servers(task, settings.connect_deadline_s)
        self._watch = Watch(len(task.addresses["ps"]), settings.progress_deadline_s)
        with self.unharmed("connecting"):
            resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
                roles.cluster_spec(task), task_type="chief", task_id=0, rpc_layer="grpc")
            self.strategy = tf.distribute.ParameterServerStrategy(
                resolver, _partitioner(settings.shard_rows, len(task.addresses["ps"])))
            self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        self._check_devices()
        self._servers, self.evaluator = len(task.addresses["ps"]), settings.validation_by == "evaluator"
        self._watch.ping_parameter_servers()
        self.save_options = None
        if settings.checkpoint_io == "chief":
            self.save_options = tf.train.CheckpointOptions(
                experimental_io_device="/job:chief/replica:0/task:0/device:CPU:0")
        self._locals = {}  # id of a worker-local variable -> (itself, its make, worker -> value to begin anew with)
        self._progress, self._lost_since = time.monotonic(), None  # results that no worker holds, since when
        logging.info("the cluster has %d workers and %d parameter servers", self.num_workers, len(task.addresses["ps"]))

    def _check_devices(self):
        gpus = [device.name for device in tf.config.list_logical_devices("GPU") if "/job:worker" in device.name]
        several = [name for name in gpus if not name.endswith("GPU:0")]
        if several:
            raise UserError(f"a worker uses one GPU, but {several[0]} is a second one: start one worker per GPU, each "
                            "with its own CUDA_VISIBLE_DEVICES")
        logging.info("GPUs of workers: %d", len(gpus))

    def scope(self):
        """Context in which variables are made: on parameter servers, large ones in shards."""
        return self.strategy.scope()

    def local_variable(self, make, shape, dtype):
        """A variable that each worker has for itself; make(worker) gives its initial value."""
        known = {}

        def initial():
            worker = private_tensorflow.dispatching_worker()
            value = None if worker is None else known.get(worker)
            return make(worker or 0) if value is None else tf.constant(value, dtype)

        with self.strategy.scope():
            variable = private_tensorflow.per_worker_variable(initial, shape, dtype)
        self._locals[id(variable)] = variable, make, known
        return variable

    def local_constant(self, value):
        """A large constant that each worker holds: sent to it once, when it starts."""
        tensor = tf.constant(value)
        variable = self.local_variable(lambda worker: tensor, tensor.shape, tensor.dtype)
        return lambda: tf.ensure_shape(
            tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=tensor.dtype), tensor.shape)

    def read_local(self, variable):
        """Values of a worker-local variable as NumPy, one per worker (None: the worker is down).

        A worker that is lost later begins anew with what was read here last.
        """
        values = []
        for remote in private_tensorflow.values_of_workers(variable):
            try:
                values.append(remote.get().numpy())
            except tf.errors.OpError:
                values.append(None)
        _, _, known = self._locals[id(variable)]
        known.update((worker, value) for worker, value in enumerate(values) if value is not None)
        return values

    def write_local(self, variable, values):
        """Sets a worker-local variable, one value per worker (None: as it is made); before the first trace."""
        _, _, known = self._locals[id(variable)]
        known.update(enumerate(values))

    def share_local(self, variable):
        """Gives every worker what the chief's own copy has gained since it was made; before the first trace."""
        _, make, known = self._locals[id(variable)]
        gained = private_tensorflow.chiefs_own(variable).numpy() - make(0).numpy()
        known.update((worker, make(worker).numpy() + gained) for worker in range(self.num_workers))

    def feed(self, assignments, plan, data_dir, schema, manifest, max_history, time_dropout):
        """What gives calls their batches; see ``feeds``."""
        return PoolFeed(assignments, plan, manifest.paths(data_dir, "train"), schema, max_history, time_dropout,
                        self.local_variable)

    def start(self, call, feed, choose):
        """Begins a call of ``step``; choose(worker) gives its argument when a worker takes it."""
        with self._lost_as_error():
            result = self._coordinator.schedule(call.function, args=(_argument(feed.spec, choose),))
        self._progress = time.monotonic()  # the first one is traced here
        return result

    def ended(self, result) -> bool:
        """Whether a call is over, well or not."""
        over = private_tensorflow.has_ended(result)
        if over:
            self._progress = time.monotonic()
        return over

    def wait(self, taken, under_way):
        """Waits a little for one of the calls under way; where none has ended, and none was taken, for
        --progress_deadline_s, ends the process."""
        now = time.monotonic()
        if taken.wait(POLL_S):
            taken.clear()
            self._progress = max(self._progress, now)
        elif now - self._progress > self._deadline:
            held = [call.holder for call in under_way if call.workers]
            end(f"no call has ended for --progress_deadline_s={self._deadline:g}; under way: "
                f"{', '.join(held) or 'none, no worker takes one'}. One of them, or a parameter server, stands still "
                "or is lost")

    def fetch(self, result, holder):
        """Result of a call that has ended, as NumPy; raises its error. `holder`: who has it, for messages.

        The result is still at the worker, which may stand still from now on. Where it is lost before the coordinator
        has copied the result, that gives the call to another worker; until then None is returned.
        """
        with self.unharmed(f"fetching from {holder}"):
            try:
                fetched = result.fetch()
            except LOST:
                now = time.monotonic()
                self._lost_since = self._lost_since or now
                if private_tensorflow.has_failed(result) or now - self._lost_since > self._deadline:
                    raise
                time.sleep(POLL_S)
                return None
            self._lost_since = None
            return fetched

    def check_workdir(self, workdir):
        """`UserError` where a parameter server, which writes its part of a checkpoint, sees another folder."""
        if self.save_options:
            return
        with self.unharmed("writing to --workdir"):
            for index in range(self._servers):
                probe = os.path.join(workdir, f"written-by-ps-{index}")
                why = ""
                try:
                    with tf.device(f"/job:ps/replica:0/task:{index}/device:CPU:0"):
                        tf.io.write_file(probe, "")
                except (tf.errors.NotFoundError, tf.errors.PermissionDeniedError, tf.errors.UnknownError) as error:
                    why = f" ({error.message[:200]})"
                if not tf.io.gfile.exists(probe):
                    raise UserError(f"--workdir={workdir} is not the same folder for the chief and parameter server "
                                    f"{index}{why}, which writes its part of each checkpoint there: choose one that "
                                    "all roles see, or --checkpoint_io=chief")
                tf.io.gfile.remove(probe)

    @contextlib.contextmanager
    def unharmed(self, doing):
        """Context for work on the chief's own thread in which the cluster may be lost, or stand still."""
        with self._watch.busy(doing), self._lost_as_error():
            yield
        self._progress = time.monotonic()

    def close(self):
        """Training is over: the chief goes on alone, for as long as it takes."""
        self._watch.stop()

    @contextlib.contextmanager
    def unwatched(self):
        """The same for work that may take any time, such as a validation."""
        with self._lost_as_error():
            yield
        self._progress = time.monotonic()

    @contextlib.contextmanager
    def _lost_as_error(self):
        try:
            yield
        except LOST as error:
            through = servers_named(error)
            raise ClusterError(f"the cluster was lost: {reason(error)}{f' (seen at {through})' if through else ''}. "
                               f"{GO_ON}") from error
