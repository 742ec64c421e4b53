"""A network namespace for the processes of a cluster on one machine.

TensorFlow's servers listen on all interfaces, whatever address they are given, and run any graph that they are sent. In
a network namespace of their own there is nothing but the loopback interface, and nobody else on it.
"""
import fcntl
import functools
import shutil
import socket
import struct
import subprocess

OPTIONS = (("--net",), ("--user", "--map-root-user", "--net"))  # as root, or as root of a user namespace of its own
_SIOCSIFFLAGS, _IFF_UP_RUNNING = 0x8914, 0x41


@functools.cache
def own_network() -> tuple[list[str], str]:
    """(How a command is started in a network of its own, or [] and why that is not possible)."""
    if not shutil.which("unshare"):
        return [], "there is no command unshare"
    for options in OPTIONS:
        prefix = ["unshare", *options]
        if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
            return prefix, ""
    return [], "unshare --net is not allowed"


def raise_loopback() -> None:
    """Brings up the loopback interface of a new network, which is down at first; `OSError` without the right to."""
    with socket.socket() as request:
        fcntl.ioctl(request, _SIOCSIFFLAGS, struct.pack("16sh", b"lo", _IFF_UP_RUNNING).ljust(40, b"\0"))
