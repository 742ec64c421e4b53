"""A server of S3 on this machine (moto), and a proxy before it that fails in the ways stores do."""
import contextlib
import http.client
import http.server
import threading
import urllib.request

from clrec_tf.settings.stores import StoresConfig
from clrec_tf.stores import address as addresses
from clrec_tf.stores import door
from clrec_tf.stores import folder as folder_lib

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
SLOW_DOWN = (503, b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>")
NO_KEY = (404, b"<Error><Code>NoSuchKey</Code></Error>")
DENIED = (403, b"<Error><Code>AccessDenied</Code></Error>")
WRONG_KEY = (403, b"<Error><Code>InvalidAccessKeyId</Code></Error>")
CUT = "cut"  # the connection ends in the middle of what is sent or answered
STALE = "stale"  # a listing of nothing
_EMPTY = (200, b'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></ListBucketResult>')


@contextlib.contextmanager
def moto():
    """The address of a server in this process, without any bucket."""
    from moto.server import ThreadedMotoServer  # pylint: disable=import-outside-toplevel
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def make_bucket(endpoint: str, bucket: str) -> None:
    """An empty bucket."""
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")).close()


def point_at(endpoint: str, monkeypatch, keys=None) -> None:
    """Sets the environment so that requests go to a server."""
    for name, value in {**(keys or KEYS), "AWS_ENDPOINT_URL": endpoint}.items():
        monkeypatch.setenv(name, value)


def folder(address: str, flag: str = "x", deadline_s: float = 3.0) -> folder_lib.Folder:
    """The objects under an address."""
    return folder_lib.open_folder(addresses.parse(address, flag), flag, deadline_s)


class Bucket:
    """A bucket: `bucket(name)` is a folder in it, `bucket.at(name)` its address, `faults` of the proxy before it."""

    def __init__(self, name, faults=None, deadline_s=3.0):
        self.address, self.faults, self._deadline_s = f"s3://{name}", faults, deadline_s

    def __call__(self, name):
        return folder(self.at(name), deadline_s=self._deadline_s)

    def at(self, name):
        """See the class."""
        return f"{self.address}/{name}"


class Faults:
    """What the proxy does instead of passing requests on, the requests that came, and how many failed.

    `add(method, part, fault, times, after)`: of requests whose path has `part`, after so many, so many fail. A fault is
    a word, or status and content of an answer, and its headers if it has some.
    """

    def __init__(self):
        self.seen, self.failed, self._rules, self._lock = [], 0, [], threading.Lock()

    def add(self, method, part, fault, times=10**9, after=0):
        """See the class."""
        with self._lock:
            self._rules.append([method, part, fault, times, after])

    def clear(self):
        """From now on nothing fails."""
        with self._lock:
            self._rules.clear()

    def of(self, method, path):
        """The fault of a request, or None."""
        with self._lock:
            self.seen.append((method, path))
            for rule in self._rules:
                if rule[0] == method and rule[1] in path:
                    if rule[4] > 0:
                        rule[4] -= 1
                    elif rule[3] > 0:
                        rule[3] -= 1
                        self.failed += 1
                        return rule[2]
        return None


@contextlib.contextmanager
def proxy(endpoint: str):
    """(address, `Faults`) of a proxy before a server."""
    faults, behind = Faults(), endpoint.removeprefix("http://")

    class Handler(http.server.BaseHTTPRequestHandler):
        """One connection."""
        protocol_version = "HTTP/1.1"

        def _pass(self):
            fault, size = faults.of(self.command, self.path), int(self.headers.get("Content-Length") or 0)
            if fault == CUT and size:
                self.rfile.read(size // 2)
                self.close_connection = True
                return
            body = self.rfile.read(size)
            if isinstance(fault, tuple):
                return self._answer(*fault[:2], fault[2] if len(fault) > 2 else {})
            if fault == STALE:
                return self._answer(*_EMPTY, {})
            connection = http.client.HTTPConnection(behind, timeout=30)
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content, headers = answer.read(), dict(answer.getheaders())
            connection.close()
            self._answer(answer.status, content, headers, cut=fault == CUT)

        def _answer(self, status, content, headers, cut=False):
            self.send_response(status)
            length = headers.get("Content-Length", len(content)) if self.command == "HEAD" else len(content)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "server", "date"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content[:len(content) // 2] if cut else content)
            self.close_connection = self.close_connection or cut

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass

        def log_message(self, format, *args):  # pylint: disable=redefined-builtin
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", faults
    finally:
        server.shutdown()
        server.server_close()


def settings(folder, **changes) -> StoresConfig:
    """Settings of stores with short deadlines."""
    return StoresConfig(**{**dict(cache_dir=str(folder), store_deadline_s=3.0, lease_s=20.0), **changes})


@contextlib.contextmanager
def opened(folder, openers, changes=None, **values):
    """Local paths by flag, as a command gets them; other flags that openers read have their defaults."""
    others = dict(dry_run=False, keep_checkpoints=3, stages=("train",), format="columns")
    with door.opened({**others, **values}, openers, settings(folder, **(changes or {}))) as local:
        yield local
