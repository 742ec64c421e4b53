"""The process of a `LocalCluster`'s chief: starts the other roles, connects to them, and runs functions it is sent.

TensorFlow is imported after the roles are started, which import it at the same time.
"""
import dataclasses
import json
import multiprocessing.connection
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

from clrec_tf.config import Config
from clrec_tf.errors import ClusterError
from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks.local_cluster import tail

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
        addresses = free_addresses(workers, servers)
        self._roles = {f"{role} {index}": _start(role, index, addresses, config)
                       for role in ("worker", "ps") for index in range(len(addresses[role]))}
        # pylint: disable=import-outside-toplevel
        from clrec_tf.lab.children import quiet_about_functions
        from clrec_tf.training.cluster.cluster_runtime import ClusterRuntime
        from clrec_tf.training.cluster.roles import Task
        quiet_about_functions()
        try:
            self.runtime = ClusterRuntime(Task("chief", 0, addresses), self.config)
        except ClusterError as error:
            said = "".join(f"\n{name} has ended: {tail(log)}" for name, (process, log) in self._roles.items()
                           if process.poll() is not None)
            raise ClusterError(f"{error}{said}") from error

    def pids(self, role: str) -> list[int]:
        """Processes of the tasks of a role."""
        return [process.pid for name, (process, _) in self._roles.items() if name.startswith(role)]


def free_addresses(workers, servers):
    """Role -> free addresses; the ports are held until all are known."""
    held = []
    try:
        for _ in range(1 + workers + servers):
            held.append(socket.socket())
            held[-1].bind(("127.0.0.1", 0))
        found = [f"127.0.0.1:{one.getsockname()[1]}" for one in held]
    except OSError as error:
        raise UserError(f"no free port on 127.0.0.1 for {1 + workers + servers} roles: {error.strerror}") from error
    finally:
        for one in held:
            one.close()
    return {"chief": found[:1], "worker": found[1:1 + workers], "ps": found[1 + workers:]}


def _start(role, index, addresses, config):
    """(Process, its log)."""
    task = {"cluster": addresses, "task": {"type": role, "index": index}}
    log = tempfile.TemporaryFile()  # pylint: disable=consider-using-with
    process = subprocess.Popen(  # pylint: disable=consider-using-with
        [sys.executable, "-m", "clrec_tf.train", f"--threads={config.train.threads}",
         f"--parallel_ops={config.train.parallel_ops}"],
        env={**os.environ, "TF_CONFIG": json.dumps(task)}, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    return process, log


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
    """Serves the process at the other end of the connection whose file descriptor is the argument."""
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
