"""Which workers and parameter servers of a cluster are there, and how often each came back: for the chief's metrics.

A thread asks each address for a connection, once a second. So a process that stands still counts as there: what tells
of that is clrec_train_result_timestamp_seconds.
"""
import contextlib
import selectors
import socket
import threading
import time

EVERY_S = 1.0
PATIENCE_S = 2.0


class RoleMetrics:
    """What is told of each role.

    Args:
      metrics: of the process, see ``exporter``.
      task: a `roles.Task`.
    """

    def __init__(self, metrics, task):
        labels = ["role", "index"]
        self._up = metrics.gauge("clrec_train_role_up", "Whether a role's address answers.", labels)
        self._restarts = metrics.counter("clrec_train_role_restarts", "How often a role answered again after it had "
                                         "not.", labels)
        self._addresses = {(role, index): address for role in ("worker", "ps")
                           for index, address in enumerate(task.addresses[role])}
        self._seen, self._is_up = set(), set()
        for role in self._addresses:
            self._restarts.labels(*role)

    def look(self) -> None:
        """Asks all roles."""
        up = answering(self._addresses, PATIENCE_S)
        for role in self._addresses:
            if role in up - self._is_up and role in self._seen:
                self._restarts.labels(*role).inc()
            self._up.labels(*role).set(role in up)
        self._seen |= up
        self._is_up = up


@contextlib.contextmanager
def watched_roles(metrics, task):
    """Context in which a thread looks after the roles of a cluster."""
    if not metrics.served or task is None:
        yield
        return
    roles, over = RoleMetrics(metrics, task), threading.Event()

    def watch():
        while not over.is_set():
            roles.look()
            over.wait(EVERY_S)
    thread = threading.Thread(target=watch, daemon=True, name="roles")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def answering(addresses: dict, seconds: float) -> set:
    """The keys of those addresses, host:port, that take a connection within so many seconds, all asked at once."""
    up = set()
    with contextlib.ExitStack() as stack:
        waiting = stack.enter_context(selectors.DefaultSelector())
        for key, address in addresses.items():
            with contextlib.suppress(OSError, ValueError):
                host, _, port = address.rpartition(":")
                family, kind, protocol, _, place = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
                connection = stack.enter_context(socket.socket(family, kind, protocol))
                connection.setblocking(False)
                connection.connect_ex(place)
                waiting.register(connection, selectors.EVENT_WRITE, key)
        end = time.monotonic() + seconds
        while waiting.get_map() and (left := end - time.monotonic()) > 0:
            for ready, _ in waiting.select(left):
                waiting.unregister(ready.fileobj)
                if not ready.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    up.add(ready.data)
    return up
