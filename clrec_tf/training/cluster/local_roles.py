"""Roles of a cluster as processes on this machine: free addresses, TF_CONFIG, starting, signals and stopping.

Does not import TensorFlow, which the processes import at the same time.
"""
import json
import os
import signal
import socket
import subprocess
from typing import Callable
from typing import Optional

from clrec_tf.errors import UserError


def free_addresses(workers: int, servers: int) -> dict[str, list[str]]:
    """Role -> free addresses; the ports are held until all are known."""
    sockets = []
    try:
        for _ in range(1 + workers + servers):
            sockets.append(socket.socket())
            sockets[-1].bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{held.getsockname()[1]}" for held in sockets]
    except OSError as error:
        raise UserError(f"no free port on 127.0.0.1 for {1 + workers + servers} roles: {error.strerror}") from error
    finally:
        for held in sockets:
            held.close()
    return {"chief": addresses[:1], "worker": addresses[1:1 + workers], "ps": addresses[1 + workers:]}


class LocalRoles:
    """Processes of a cluster's roles.

    Args:
      workers, servers: how many.
      own_groups: whether each process has a group of its own, which is killed with it; else all are of this process's.
      start: what starts a process, called as subprocess.Popen is.

    Attributes:
      addresses: role -> host:port of each of its tasks.
    """

    def __init__(self, workers: int, servers: int, own_groups: bool = True,
                 start: Callable[..., subprocess.Popen] = subprocess.Popen):
        self.addresses = free_addresses(workers, servers)
        self._own_groups, self._start, self._processes = own_groups, start, {}

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.kill_all()

    def tf_config(self, role: str, index: int) -> str:
        """What tells a process its place."""
        return json.dumps({"cluster": self.addresses, "task": {"type": role, "index": index}})

    def launch(self, role: str, index: int, command: list[str], log, environ: Optional[dict] = None, cwd=None):
        """Starts the process of a role.

        Args:
          role, index: its place.
          command: that is run.
          log: file that it prints to.
          environ: variables besides those of this process.
          cwd: its working folder.

        Returns:
          The `subprocess.Popen`.
        """
        self._processes[role, index] = self._start(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=cwd, start_new_session=self._own_groups,
            env={**os.environ, "TF_CONFIG": self.tf_config(role, index), **(environ or {})})
        return self._processes[role, index]

    def pids(self, role: str) -> list[int]:
        """Processes of the tasks of a role, in the order in which they were started."""
        return [process.pid for (name, _), process in self._processes.items() if name == role]

    def running(self, role: str, index: int = 0) -> bool:
        """Whether the process has not ended."""
        return self._processes[role, index].poll() is None

    def wait(self, role: str, index: int = 0, seconds: Optional[float] = None) -> int:
        """The exit code, once the process has ended; `subprocess.TimeoutExpired` where it runs on."""
        return self._processes[role, index].wait(seconds)

    def signal(self, role: str, index: int, number: int) -> None:
        """Sends a signal, for example SIGSTOP or SIGCONT, to the process and what it has started."""
        (os.killpg if self._own_groups else os.kill)(self._processes[role, index].pid, number)

    def kill(self, role: str, index: int = 0) -> None:
        """kill -9; returns when the process is gone."""
        if self.running(role, index):
            self.signal(role, index, signal.SIGKILL)
        self._processes.pop((role, index)).wait()

    def kill_all(self) -> None:
        """Kills what still runs; returns when all are gone."""
        for role, index in list(self._processes):
            if self.running(role, index):
                self.signal(role, index, signal.SIGKILL)
        for process in self._processes.values():
            process.wait()
        self._processes.clear()
