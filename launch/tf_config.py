"""Starts one task of a cluster: works out TF_CONFIG from the task's role and index, then becomes the command.

  python launch/tf_config.py --role=worker --index=1 --workers=2 --parameter_servers=1 \
      --hosts='clrec-{role}-{index}.clrec' -- python -m clrec_tf.train --flagfile=train.flags

Pods of Kubernetes jobs have predictable names, so every task derives the same cluster without asking anyone. Values
that are not given as arguments come from the environment:

  --index              JOB_COMPLETION_INDEX, which Kubernetes sets in pods of Indexed Jobs
  --workers            CLREC_WORKERS
  --parameter_servers  CLREC_PARAMETER_SERVERS
  --hosts              CLREC_HOSTS: {role} and {index} stand for a task's, as in clrec-{role}-{index}.clrec for Jobs, or
                       clrec-{role}-0-{index}.clrec for a JobSet (jobset-replicatedJob-jobIndex-podIndex.subdomain)
  --port               CLREC_PORT, 2222 if neither is given

A TF_CONFIG that is already set is replaced. Only the standard library is used. Exit code 2: bad input."""
import argparse
import json
import os
import re
import sys
import typing

CLUSTER_ROLES = ("chief", "worker", "ps")  # those that others connect to
ROLES = (*CLUSTER_ROLES, "evaluator")
EXIT_USER_ERROR = 2
MAX_TASKS = 10_000  # of one role; more is a slip of the pen
LONGEST_LABEL = 63  # of a DNS name: Kubernetes cuts longer host names
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class LaunchError(ValueError):
    """Bad input. Its message names argument, value and remedy."""


def tf_config(role: str, index: int, workers: int, parameter_servers: int, hosts: str, port: int) -> dict:
    """The value of TF_CONFIG for one task; "cluster" is the same for all tasks.

    Args:
      role: chief, worker, ps or evaluator. The evaluator is not part of the cluster.
      index: the task's number among those of its role, from 0. There is one chief, and at most one evaluator.
      workers: number of workers.
      parameter_servers: number of parameter servers.
      hosts: pattern of the host names, with {role} and {index}.
      port: port that all tasks listen on.
    """
    if role not in ROLES:
        raise LaunchError(f"--role={role}: choose from {', '.join(ROLES)}")
    for name, count in (("workers", workers), ("parameter_servers", parameter_servers)):
        if not 1 <= count <= MAX_TASKS:
            raise LaunchError(f"--{name}={count}: a cluster has 1 to {MAX_TASKS} of them")
    if not 1 <= port <= 65535:
        raise LaunchError(f"--port={port}: a port is a number from 1 to 65535")
    counts = {"chief": 1, "worker": workers, "ps": parameter_servers, "evaluator": 1}
    if not 0 <= index < counts[role]:
        raise LaunchError(f"--index={index}: there are {counts[role]} tasks of --role={role}, counted from 0; "
                          "the number of pods and the number given to all roles must agree")
    cluster = {name: [f"{host(hosts, name, task)}:{port}" for task in range(counts[name])] for name in CLUSTER_ROLES}
    return {"cluster": cluster, "task": {"type": role, "index": index}, "rpc_layer": "grpc"}


def host(hosts: str, role: str, index: int) -> str:
    """The host name of one task."""
    if "{role}" not in hosts or "{index}" not in hosts:
        raise LaunchError(f"--hosts={hosts}: must hold {{role}} and {{index}}, or tasks would share an address")
    name = hosts.replace("{role}", role).replace("{index}", str(index))
    for label in name.split("."):
        if not LABEL.fullmatch(label):
            raise LaunchError(f"--hosts={hosts}: {label!r} in {name} is no DNS label; use a-z, 0-9 and -")
        if len(label) > LONGEST_LABEL:
            raise LaunchError(f"--hosts={hosts}: {label} is longer than {LONGEST_LABEL} characters, which Kubernetes "
                              "would cut; choose a shorter name for the job")
    return name


def parse(argv: typing.Sequence[str], environ: typing.Mapping[str, str]) -> tuple[dict, list[str]]:
    """TF_CONFIG and the command that stands after "--"."""
    own, command = list(argv), []
    if "--" in own:
        own, command = own[:own.index("--")], own[own.index("--") + 1:]
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, usage="tf_config.py --role=… -- COMMAND",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("role", "index", "workers", "parameter_servers", "hosts", "port"):
        parser.add_argument(f"--{name}")
    given = parser.parse_args(own)
    if not command:
        raise LaunchError("no command: give it after --, as in -- python -m clrec_tf.train --flagfile=train.flags")

    def value(name, variable, default=None):
        text = getattr(given, name) or environ.get(variable) or default
        if not text:
            raise LaunchError(f"--{name} is missing: give it, or set {variable}")
        return text

    def number(name, variable, default=None):
        text = value(name, variable, default)
        if not re.fullmatch(r"[0-9]{1,9}", text):
            raise LaunchError(f"--{name}={text} (or {variable}): must be a whole number, not negative")
        return int(text)

    if not given.role:
        raise LaunchError(f"--role is missing: choose from {', '.join(ROLES)}")
    return tf_config(given.role, number("index", "JOB_COMPLETION_INDEX"), number("workers", "CLREC_WORKERS"),
                     number("parameter_servers", "CLREC_PARAMETER_SERVERS"), value("hosts", "CLREC_HOSTS"),
                     number("port", "CLREC_PORT", "2222")), command


def main(argv: typing.Sequence[str]) -> int:
    """Becomes the command, so that signals reach it and its exit code is the container's; returns only on errors."""
    try:
        config, command = parse(argv, os.environ)
        print(f"TF_CONFIG={json.dumps(config)}", file=sys.stderr, flush=True)
        os.execvpe(command[0], command, {**os.environ, "TF_CONFIG": json.dumps(config)})
    except LaunchError as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"error: {command[0]} cannot be run: {error.strerror}", file=sys.stderr)
    return EXIT_USER_ERROR


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
