"""The retrieval service as a process of its own, as a user starts it, and requests to it."""
import contextlib
import http.client
import json
import pathlib
import signal
import socket
import time
import typing

from clrec_tf.lab.serving_process import ServingProcess
from tests import forked

ROOT = pathlib.Path(__file__).parents[1]
START_S = 90  # on a machine that is busy with other tests


class Answer(typing.NamedTuple):
    """An HTTP answer; header names are in lower case."""
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        """The body, which says that it is JSON."""
        assert self.headers["content-type"] == "application/json", self
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The text of an error, which is all that the body holds."""
        assert set(self.json) == {"error"}, self
        return self.json["error"]


class Service(ServingProcess):
    """A process that serves a folder; it has begun when this returns, and `port` waits until it serves."""

    def __init__(self, export_dir, *flags: str):
        super().__init__(str(export_dir), "--poll_s=0.1", "--drain_s=0", "--max_wait_ms=10000", "--timeout_ms=30000",
                         *flags, start_s=START_S, folder=str(ROOT), start=forked.Popen)

    def connect(self, timeout: float = 30) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def client(self, timeout: float = 30) -> http.client.HTTPConnection:
        """A connection that is kept alive."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, path: str, body=None, method: str = "", headers=(), timeout: float = 30) -> Answer:
        """One request on a connection of its own: GET, or POST if there is a body."""
        with contextlib.closing(self.client(timeout)) as client:
            return ask(client, path, body, method, headers)

    def predict(self, body, version: str = "", headers=()) -> Answer:
        """A prediction; a body that is not bytes is made JSON."""
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request(f"/v1/models/clrec{version and '/versions/' + version}:predict", body, headers=headers)

    def users(self, *instances: dict, signature: str = "retrieve") -> list[dict]:
        """The predictions for instances, which succeed."""
        answer = self.predict({"signature_name": signature, "instances": instances})
        assert answer.status == 200, answer
        return answer.json["predictions"]

    def metrics(self) -> dict[str, float]:
        """By name and labels as /metrics writes them."""
        lines = self.request("/metrics").body.decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[:1] != "#")}

    def signal(self, number: int) -> None:
        """Sends a signal."""
        self.process.send_signal(number)

    def exit_code(self, timeout: float = 60) -> int:
        """Waits for its end."""
        return self.process.wait(timeout)


@contextlib.contextmanager
def serving(export_dir, *flags: str):
    """Yields a `Service`, which is ended in any case."""
    service = Service(export_dir, *flags)
    try:
        yield service
    finally:
        service.kill()


def ask(client: http.client.HTTPConnection, path: str, body=None, method: str = "", headers=()) -> Answer:
    """One request on a connection."""
    client.request(method or ("GET" if body is None else "POST"), path, body, dict(headers))
    answer = client.getresponse()
    return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())


def wait_for(condition, seconds: float):
    """What `condition` gives as soon as that is true of it; fails after `seconds`."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"nothing came within {seconds} s"
        time.sleep(0.01)
    return found


def read_all(connection: socket.socket) -> bytes:
    """Everything that comes until the other side closes."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def answer_of(text: bytes) -> Answer:
    """The first answer in what a bare connection brought."""
    head, _, rest = text.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return Answer(int(first.split()[1]), headers, rest[:int(headers.get("content-length", len(rest)))])


SIGNALS = signal.Signals
