"""The process of a `MeasuredCluster`'s chief: starts the other roles, connects to them, runs functions it is sent."""
import dataclasses
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import threading
import time
import traceback

from clrec_tf.config import Config
from clrec_tf.errors import ClusterError
from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks.measured_cluster import tail
from clrec_tf.lab.children import quiet_about_functions
from clrec_tf.training.cluster.cluster_runtime import ClusterRuntime
from clrec_tf.training.cluster.local_roles import LocalRoles
from clrec_tf.training.cluster.own_network import raise_loopback
from clrec_tf.training.cluster.roles import Task

CONNECT_S = 120  # at most, for roles that need no more than to start


class Session:
    """What functions in the chief's process work with.

    Attributes:
      config: settings.
      runtime: a `ClusterRuntime`.
      kept: what functions leave for later ones.
    """

    def __init__(self, config: Config, workers: int, servers: int):
        settings = dataclasses.replace(config.cluster,
                                       connect_deadline_s=min(config.cluster.connect_deadline_s, CONNECT_S))
        self.config, self.kept = dataclasses.replace(config, cluster=settings), {}
        self._roles, self._logs = LocalRoles(workers, servers, own_groups=False), {}
        command = [sys.executable, "-m", "clrec_tf.train", f"--threads={config.train.threads}",
                   f"--parallel_ops={config.train.parallel_ops}"]
        for task in [("worker", index) for index in range(workers)] + [("ps", index) for index in range(servers)]:
            self._logs[task] = tempfile.TemporaryFile()  # pylint: disable=consider-using-with
            self._roles.launch(*task, command, self._logs[task])
        quiet_about_functions()
        try:
            self.runtime = ClusterRuntime(Task("chief", 0, self._roles.addresses), self.config)
        except ClusterError as error:
            ended = "".join(f"\n{role} {index} has ended: {tail(log)}" for (role, index), log in self._logs.items()
                            if not self._roles.running(role, index))
            raise ClusterError(f"{error}{ended}") from error

    def pids(self, role: str) -> list[int]:
        """Processes of the tasks of a role."""
        return self._roles.pids(role)


def _end_with(parent):
    """Ends the group of processes when the one that measures is gone."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.killpg(0, signal.SIGKILL)


def _done(function, *arguments):
    """What is sent back: a result, or an error."""
    try:
        return function(*arguments)
    except UserError as error:
        return error
    except Exception:  # pylint: disable=broad-except  (its own class may not be one that can be sent)
        return RuntimeError(f"in a measured cluster:\n{traceback.format_exc()}")


def main():
    """Serves the process at the other end of the connection whose file descriptor is the first argument."""
    if "own_network" in sys.argv[2:]:
        raise_loopback()
    connection = multiprocessing.connection.Connection(int(sys.argv[1]))
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        session = _done(lambda: Session(*connection.recv()))
        connection.send(session if isinstance(session, Exception) else None)
        while True:
            function, arguments = connection.recv()
            connection.send(_done(function, session, *arguments))
    finally:
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
