"""TF_CONFIG, and whether the addresses in it resolve and answer."""
import functools
import os
import socket
from typing import Iterator

from clrec_tf.diagnosis.findings import About
from clrec_tf.diagnosis.findings import Check
from clrec_tf.diagnosis.findings import Finding
from clrec_tf.errors import UserError
from clrec_tf.training.cluster import roles

_NAME = "cluster"
_SILENT = ("evaluator",)  # listens nowhere


def cluster_checks(timeout_s: float) -> list[Check]:
    """Checks of TF_CONFIG and of every address in it; none where it is not set.

    Args:
      timeout_s: seconds in which an address must answer.
    """
    if not os.environ.get(roles.TF_CONFIG):
        return []
    remedy = f"correct {roles.TF_CONFIG}; launch/tf_config.py writes it"
    try:
        task = roles.task_from_environment()
    except UserError as error:
        return [Check(_NAME, roles.TF_CONFIG, functools.partial(_raise, error), remedy)]
    checks = [Check(_NAME, roles.TF_CONFIG, functools.partial(_own, task), remedy)]
    for role, addresses in task.addresses.items():
        for index, address in enumerate(addresses):
            if role not in _SILENT and (role, index) != (task.role, task.index):
                subject = f"{role} {index} at {address}"
                checks.append(Check(_NAME, subject, functools.partial(_reached, subject, address, timeout_s), remedy))
    return checks


def _raise(error):
    raise error


def _own(task: roles.Task) -> Iterator[Finding]:
    """What TF_CONFIG says of this process, whose own address must resolve too."""
    about = About(_NAME, roles.TF_CONFIG)
    numbers = ", ".join(f"{len(addresses)} {role}" for role, addresses in task.addresses.items())
    yield about.ok(f"{numbers}; this process is {task.role} {task.index}")
    if task.role in _SILENT:
        return
    address = task.addresses[task.role][task.index]
    own = About(_NAME, f"{task.role} {task.index} at {address}, this process")
    try:
        socket.getaddrinfo(*_parts(address), type=socket.SOCK_STREAM)
        yield own.ok("resolves")
    except OSError as error:
        yield _unresolved(own, address, error)


def _reached(subject: str, address: str, timeout_s: float) -> Iterator[Finding]:
    """Whether an address resolves, and something accepts a connection there."""
    about = About(_NAME, subject)
    try:
        places = socket.getaddrinfo(*_parts(address), type=socket.SOCK_STREAM)
    except OSError as error:
        yield _unresolved(about, address, error)
        return
    error = None
    for family, kind, protocol, _, place in places[:4]:
        try:
            with socket.socket(family, kind, protocol) as connection:
                connection.settimeout(timeout_s)
                connection.connect(place)
            yield about.ok("answers")
            return
        except OSError as failed:
            error = failed
    why = f"does not answer within {timeout_s:g} s" if isinstance(error, TimeoutError) else (
        f"cannot be connected to ({error.strerror or error})")
    yield about.fault(why, "start that role, open its port in firewalls and network policies, or correct "
                           f"{roles.TF_CONFIG}")


def _unresolved(about, address, error):
    return about.fault(f"{_parts(address)[0]} does not resolve ({error.strerror or error})",
                       f"correct {roles.TF_CONFIG} or the name service; in Kubernetes the headless Service needs "
                       "publishNotReadyAddresses")


def _parts(address):
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
