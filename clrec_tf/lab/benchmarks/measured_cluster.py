"""A cluster of processes on this machine, for measuring: a chief that runs functions it is sent, and its other roles.

Chief and roles are a group of processes in a network of their own, where the system allows that: its byte counters
count them alone. The group ends with this process, however that ends.
"""
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from typing import Callable

from clrec_tf.config import Config
from clrec_tf.errors import ClusterError
from clrec_tf.errors import UserError
from clrec_tf.training.cluster.own_network import own_network

OWN_NETWORK = "a network of its own"
COUNTERS = "/proc/net/dev"
SHOWN = 1500  # characters


class MeasuredCluster:
    """Context in which a cluster runs.

    Args:
      config: settings; of `cluster` and `train` the roles have theirs.
      workers, servers: how many of each; parameter servers.
    """

    def __init__(self, config: Config, workers: int, servers: int):
        self._arguments = config, workers, servers
        self._process = self._connection = self._messages = None

    def __enter__(self):
        self._connection, theirs = multiprocessing.Pipe()
        prefix, _ = own_network()
        command = [*prefix, sys.executable, "-m", "clrec_tf.lab.benchmarks.measured_chief", str(theirs.fileno()),
                   *(["own_network"] if prefix else [])]
        self._messages = tempfile.TemporaryFile()
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdout=self._messages,
                                         stderr=self._messages, start_new_session=True)
        theirs.close()
        try:
            self._answer(self._arguments)
        except BaseException:
            self.close()
            raise
        return self

    @property
    def group(self) -> int:
        """The group of its processes."""
        return self._process.pid

    def call(self, function: Callable, *arguments):
        """function(session, *arguments) of the chief's process; see `measured_chief.Session`.

        Raises:
          ClusterError: the chief is gone; errors of the function as they are where they are for a person.
        """
        return self._answer((function, arguments))

    def _answer(self, question):
        try:
            self._connection.send(question)
            answer = self._connection.recv()
        except (EOFError, ConnectionError) as error:
            raise ClusterError("the chief of a measured cluster is gone; if memory was short, lower --benchmark_items "
                               f"or --embedding_dim. It said: {tail(self._messages)}") from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self):
        """Ends all processes of the cluster."""
        self._connection.close()
        try:
            os.killpg(self.group, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._messages.close()

    def __exit__(self, *error):
        self.close()


def tail(log) -> str:
    """The end of what a process wrote to a file."""
    log.seek(0)
    return log.read().decode(errors="replace").strip()[-SHOWN:] or "nothing"


def network() -> str:
    """What network the cluster runs in, in words."""
    prefix, reason = own_network()
    return OWN_NETWORK if prefix else f"this machine's loopback with whatever else uses it, since {reason}"


def loopback_bytes() -> int:
    """Bytes that this process' network has sent over the loopback, headers included.

    Raises:
      UserError: the system does not count them.
    """
    try:
        with open(COUNTERS, encoding="ascii") as file:
            received = next(line.split(":")[1].split()[0] for line in file if line.strip().startswith("lo:"))
    except (OSError, StopIteration) as error:
        raise UserError(f"traffic is read from {COUNTERS}, which has no line of the loopback here: run the suite "
                        "cluster on Linux") from error
    return int(received)
