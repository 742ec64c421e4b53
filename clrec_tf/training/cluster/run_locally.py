"""Trains on a cluster of processes on this machine; what launch/local_cluster.sh runs, and says how it is used.

Ends with the chief's exit code, and then ends all other roles.
"""
import os
import signal
import sys
import tempfile
import time

from clrec_tf.training.cluster.local_roles import LocalRoles
from clrec_tf.training.cluster.own_network import own_network
from clrec_tf.training.cluster.own_network import raise_loopback

EXIT_USER_ERROR = 2
POLL_S = 0.1
INSIDE = "loopback"  # value of NETWORK in the namespace


def enter_own_network(arguments: list[str]) -> None:
    """Becomes this command in a network of its own; `SystemExit` where the system allows none."""
    prefix, _ = own_network()
    if not prefix:
        print("error: this user may not make a network namespace (unshare --net), and without one TensorFlow's servers "
              "would take graphs from everybody who reaches this machine: NETWORK=host allows that, behind a firewall",
              file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)
    os.environ["NETWORK"] = INSIDE
    os.execvp(prefix[0], [*prefix, sys.executable, "-m", "clrec_tf.training.cluster.run_locally", *arguments])


class _Signals:
    """SIGTERM and SIGINT are the chief's, which saves a checkpoint; before it is started, they end this process."""

    def __init__(self, roles: LocalRoles):
        self._roles = roles
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)
        signal.signal(signal.SIGHUP, lambda number, frame: sys.exit(128 + number))

    def _pass_on(self, number, frame):
        del frame
        if not self._roles.pids("chief"):
            sys.exit(128 + number)
        if self._roles.running("chief"):
            os.kill(self._roles.pids("chief")[0], number)


def _follow(path: str, roles: LocalRoles) -> int:
    """Shows the chief's log as it grows until the chief has ended; its exit code, 128 + n where signal n ended it."""
    with open(path, "rb") as log:
        while True:
            ended = not roles.running("chief")
            try:
                sys.stdout.buffer.write(log.read())
                sys.stdout.buffer.flush()
            except BrokenPipeError:  # nobody reads any more
                sys.stdout = open(os.devnull, "w", encoding="utf-8")
            if ended:
                code = roles.wait("chief")
                return code if code >= 0 else 128 - code
            time.sleep(POLL_S)


def run(arguments: list[str], workers: int, servers: int, evaluator: bool, folder: str) -> int:
    """Starts all roles with the same flags, and waits for the chief.

    Args:
      arguments: flags of clrec_tf.train.
      workers, servers: how many.
      evaluator: whether one scores checkpoints beside the training.
      folder: for logs.

    Returns:
      The chief's exit code.
    """
    command = [sys.executable, "-m", "clrec_tf.train", *arguments]
    command += ["--validation_by=evaluator"] if evaluator else []
    others = [("worker", index) for index in range(workers)] + [("ps", index) for index in range(servers)]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1")}
    with LocalRoles(workers, servers) as roles:
        _Signals(roles)
        for role, index in others + ([("evaluator", 0)] if evaluator else []) + [("chief", 0)]:
            name = role if role in ("chief", "evaluator") else f"{role}-{index}"
            with open(os.path.join(folder, f"{name}.log"), "wb") as log:
                roles.launch(role, index, command, log, quiet)
        with open(os.path.join(folder, "chief.pid"), "w", encoding="utf-8") as file:
            file.write(f"{roles.pids('chief')[0]}\n")
        return _follow(os.path.join(folder, "chief.log"), roles)


def main(arguments: list[str]) -> int:
    """Runs the command with what the environment says; see launch/local_cluster.sh."""
    if os.environ.get("NETWORK", "private") == "private":
        enter_own_network(arguments)
    folder = os.environ.get("LOGS") or tempfile.mkdtemp(prefix="clrec-logs-")
    os.makedirs(folder, exist_ok=True)
    if os.environ.get("NETWORK") == INSIDE:
        raise_loopback()
    print(f"logs: {folder} (chief.log and one for each other role)", file=sys.stderr, flush=True)
    return run(arguments, int(os.environ.get("WORKERS") or 2), int(os.environ.get("PARAMETER_SERVERS") or 2),
               (os.environ.get("EVALUATOR") or "0") != "0", folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
