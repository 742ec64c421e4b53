"""The roles of a cluster: what TF_CONFIG says, and what workers and parameter servers do.

tf.distribute servers have no authentication and no encryption and run any graph they are sent: keep them in a network
of their own.
"""
import dataclasses
import json
import os
import re
import signal
import socket
import threading
import time

from absl import logging
import tensorflow as tf

from clrec_tf.config import ClusterConfig
from clrec_tf.config import Config
from clrec_tf.errors import ClusterError
from clrec_tf.errors import UserError
from clrec_tf.system import json_files
from clrec_tf.training.monitoring.exporter import metrics_of
from clrec_tf.training.stop_signals import EXIT_PREEMPTED

TF_CONFIG = "TF_CONFIG"
ROLES = ("chief", "worker", "ps", "evaluator")
_ADDRESS = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?\]):[0-9]+")
TELL_EVERY_S = 15.0
MIN_THREADS = 4  # fewer operations at once, and roles that wait for each other stand still


@dataclasses.dataclass(frozen=True)
class Task:
    """This process in its cluster.

    Attributes:
      role: one of `ROLES`.
      index: among those of its role.
      addresses: role -> host:port of each of its tasks.
    """
    role: str
    index: int
    addresses: dict[str, list[str]]


def task_from_environment():
    """The `Task` that TF_CONFIG describes, None where it is not set.

    Raises:
      UserError: TF_CONFIG is not what it should be.
    """
    text = os.environ.get(TF_CONFIG)
    if not text:
        return None
    try:
        value = json_files.parse(text)
        addresses = value["cluster"]
        role, index = value["task"]["type"], _whole(value["task"]["index"])
        wrong = [host for hosts in addresses.values() for host in hosts if not _ADDRESS.fullmatch(host)]
        alike = sum(addresses.values(), [])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{TF_CONFIG}={text[:200]} cannot be read ({error!r}): it must be JSON with cluster, role -> "
                        "list of host:port, and task with type and index") from error
    if wrong:
        raise UserError(f"{TF_CONFIG} has the address {wrong[0]!r}: it must be host:port, as in \"host1:2222\" or "
                        "\"[::1]:2222\"")
    ports = [address for address in alike if not 1 <= int(address.rpartition(":")[2][:6]) <= 65_535]
    if ports:
        raise UserError(f"{TF_CONFIG} has the address {ports[0]!r}: a port is a number from 1 to 65535")
    if len({_same(address) for address in alike}) < len(alike):
        raise UserError(f"{TF_CONFIG} has an address twice: each task needs one of its own; {', '.join(alike)[:300]}")
    unknown = sorted(set(addresses) - set(ROLES))
    if unknown:
        raise UserError(f"{TF_CONFIG} has a role {unknown[0]!r}: choose from {', '.join(ROLES)}")
    expected = f"{TF_CONFIG} has the cluster {json.dumps(addresses)[:300]}"
    if role not in ROLES:
        raise UserError(f"{TF_CONFIG} has the task type {role!r}: choose from {', '.join(ROLES)}")
    if len(addresses.get("chief", [])) != 1 or not addresses.get("worker") or not addresses.get("ps"):
        raise UserError(f"{expected}: it needs one chief, and at least one worker and one ps")
    if not 0 <= index < (1 if role == "evaluator" else len(addresses[role])):
        raise UserError(f"{expected}, in which the task {role} {index} does not exist")
    return Task(role, index, addresses)


def _whole(index) -> int:
    """A task's index, which some launchers write as text; `ValueError` where it is no whole number."""
    if isinstance(index, bool) or not isinstance(index, (int, str)):
        raise ValueError(f"index {index!r} is no whole number")
    return int(index)


def _same(address: str) -> tuple[str, int]:
    """What two spellings of one address have in common."""
    host, _, port = address.rpartition(":")
    return host.lower(), int(port)


def check_evaluator(config: Config) -> None:
    """`UserError` where the chief would validate too."""
    if config.cluster.validation_by != "evaluator":
        raise UserError(f"--validation_by={config.cluster.validation_by}, but this task is an evaluator: give all "
                        "roles --validation_by=evaluator, or leave it out")


def cluster_spec(task: Task) -> tf.train.ClusterSpec:
    """Addresses of the roles that talk to each other."""
    return tf.train.ClusterSpec({role: task.addresses[role] for role in ("chief", "worker", "ps")})


def serve(task: Task, config: Config) -> int:
    """What workers and parameter servers do: run what the chief sends, until it has gone for long.

    Returns:
      The exit code; the success of a training is the chief's.
    """
    settings = tf.compat.v1.ConfigProto()
    settings.inter_op_parallelism_threads = max(config.train.parallel_ops or os.cpu_count(), MIN_THREADS)
    settings.intra_op_parallelism_threads = config.train.threads
    settings.gpu_options.allow_growth = True
    if task.role == "ps":
        settings.device_count["GPU"] = 0
    try:
        server = tf.distribute.Server(cluster_spec(task), job_name=task.role, task_index=task.index, protocol="grpc",
                                      config=settings, start=True)
    except tf.errors.OpError as error:
        raise ClusterError(f"{task.role} {task.index} cannot serve at {task.addresses[task.role][task.index]} "
                           f"({error.message[:200]}): is the port taken?") from error
    logging.info("%s %d serves at %s", task.role, task.index, task.addresses[task.role][task.index])
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
    with metrics_of(config, task) as metrics:
        seen = metrics.gauge("clrec_train_chief_up", "Whether the chief's address answers.")
        _until_chief_is_gone(task.addresses["chief"][0], config.cluster, stopping, seen)
    del server
    return EXIT_PREEMPTED


def _until_chief_is_gone(address: str, settings: ClusterConfig, stopping: threading.Event, seen) -> None:
    """Serves until the chief has been seen and then not for --chief_gone_s (0: for ever).

    When all roles are told to end together (SIGTERM, which sets `stopping`), the chief still saves a checkpoint: only
    when it has gone may the others go. The gauge `seen` tells whether it is there.

    Raises:
      ClusterError: it was not seen at all within --chief_deadline_s (0: for ever).
    """
    seconds, deadline, start = settings.chief_gone_s, settings.chief_deadline_s, time.monotonic()
    last, pause = None, min([5.0] + [limit / 4 for limit in (seconds, deadline) if limit])
    while not stopping.is_set():
        there = reachable(address)
        seen.set(there)
        if there:
            last = time.monotonic()
        elif seconds and last is not None and time.monotonic() - last >= seconds:
            logging.info("the chief at %s has not been there for %g s: ending", address, seconds)
            return
        elif deadline and last is None and time.monotonic() - start >= deadline:
            raise ClusterError(f"the chief at {address} was never there in --chief_deadline_s={deadline:g}: start it, "
                               f"or correct {TF_CONFIG}")
        stopping.wait(pause)
    logging.info("told to end: serving until the chief at %s has gone, which saves a checkpoint if it was told too",
                 address)
    while reachable(address):
        time.sleep(0.5)


def reachable(address: str, timeout: float = 2.0) -> bool:
    """Whether something listens at host:port."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout):
            return True
    except (OSError, ValueError):
        return False


def wait_for_servers(task: Task, seconds: float) -> None:
    """Waits until every worker and parameter server listens.

    Raises:
      ClusterError: naming those that do not after `seconds`.
    """
    absent = [(role, index) for role in ("ps", "worker") for index in range(len(task.addresses[role]))]
    start = last_logged = time.monotonic()
    while absent:
        absent = [(role, index) for role, index in absent if not reachable(task.addresses[role][index])]
        names = ", ".join(f"{role} {index} at {task.addresses[role][index]}" for role, index in absent)
        if absent and time.monotonic() > start + seconds:
            raise ClusterError(f"not there after --connect_deadline_s={seconds:g}: {names}. Start them, or correct "
                               f"{TF_CONFIG}")
        if absent and time.monotonic() > last_logged + TELL_EVERY_S:
            last_logged = time.monotonic()
            logging.info("waiting for %s", names)
        if absent:
            time.sleep(0.2)
