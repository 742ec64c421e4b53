"""The life of the service: listening, saying that it is ready, and an end that finishes what was accepted."""
import asyncio
import contextlib
import signal
import socket
import sys

from absl import logging
import uvicorn

from clrec_tf.errors import UserError
from clrec_tf.server.app import make_app
from clrec_tf.server.impression_files import ImpressionFiles
from clrec_tf.server.impression_log import ImpressionLog
from clrec_tf.server.metrics import Metrics
from clrec_tf.server.predictor import Predictor
from clrec_tf.server.private_uvicorn import KEEP_ALIVE_S
from clrec_tf.server.private_uvicorn import SignalledServer
from clrec_tf.server.protocol import protocol
from clrec_tf.server.request_ids import IdentifiedAnswers
from clrec_tf.server.token_gate import Gate
from clrec_tf.server.token_gate import GatedApp
from clrec_tf.server.tokens import Tokens
from clrec_tf.server.versions import Versions
from clrec_tf.settings.service import ServeConfig
from clrec_tf.system import atomic

_SWITCH_S = 5e-4  # longest that a thread keeps Python's lock while another waits: 5 ms would be half of a good answer
_BACKLOG = 2048  # connections that wait to be accepted
_ENDING_S = 30  # for requests under way when accepting has ended


def serve(settings: ServeConfig, versions: Versions, metrics: Metrics) -> None:
    """Serves until SIGTERM or SIGINT; a second one ends at once.

    Raises:
      UserError: the port cannot be had, --impression_log cannot be written to, or --token_file holds no tokens.
    """
    sys.setswitchinterval(_SWITCH_S)
    gate = Gate(Tokens(settings.token_file), metrics) if settings.token_file else None
    impressions = None
    if settings.impression_log:
        with atomic.write_errors(settings.impression_log, "impression_log"):
            impressions = ImpressionLog(ImpressionFiles(
                settings.impression_log, settings.impression_log_rows, settings.impression_log_s), metrics.impressions)
    predictor = Predictor(settings, versions, metrics, impressions)
    server = _http_server(settings, versions, predictor, metrics, gate)
    listener = _listener(settings.host, settings.port)
    host, port = listener.getsockname()[:2]
    versions.follow(settings.poll_s)

    async def run():
        async with _grpc(settings, predictor, versions, gate) as grpc_port:
            logging.info("serving %s version %d at http://%s:%d", settings.model_name, versions.engine.version,
                         host, port)
            if grpc_port:
                logging.info("gRPC at %s:%d", settings.host, grpc_port)
            signal.signal(signal.SIGHUP, lambda *_: versions.look_now())
            await server.serve([listener])
        if gate is not None:
            gate.flush()
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(run())
    versions.stop()
    predictor.close()
    logging.info("ended at once" if server.force_exit else "ended; every accepted request was answered")


def _http_server(settings, versions, predictor, metrics, gate) -> SignalledServer:
    """uvicorn's server, not started, over the application."""
    drain = _Drain(settings.drain_s)
    app = make_app(settings, versions, predictor, metrics, ready=lambda: not drain.begun)
    app = app if gate is None else GatedApp(app, gate)
    server = SignalledServer(uvicorn.Config(
        IdentifiedAnswers(app), http=protocol(settings, lambda: drain.begun), ws="none", loop="uvloop",
        lifespan="off", log_config=None,
        access_log=False, server_header=False, date_header=False, timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=_ENDING_S, backlog=_BACKLOG, proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies)), lambda number: drain.begin(number, server))
    return server


class _Drain:
    """The end in two steps: first /readyz says no, and after --drain_s accepting ends. Args: seconds."""

    def __init__(self, seconds: float):
        self._seconds, self.begun = seconds, False

    def begin(self, number: int, server: SignalledServer) -> None:
        """At a signal of this number; a second one ends the server at once."""
        if self.begun:
            server.end(at_once=True)
            return
        self.begun = True
        logging.info("%s: not ready any more; accepting ends in %g s", signal.Signals(number).name, self._seconds)
        loop = asyncio.get_running_loop()
        loop.call_soon_threadsafe(loop.call_later, self._seconds, server.end)


def _listener(host, port):
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)  # before the log says so: who reads it may come at once
        return listener
    except OSError as error:
        raise UserError(f"--host={host} --port={port} cannot be listened at ({error.strerror or error}): give another, "
                        "or end what listens there; --port=0 takes any free one") from error


@contextlib.asynccontextmanager
async def _grpc(settings, predictor, versions, gate):
    """Yields the port of gRPC, 0 if there is none."""
    if settings.grpc_port < 0:
        yield 0
        return
    from clrec_tf.server import grpc_server  # pylint: disable=import-outside-toplevel
    async with grpc_server.listening(settings, predictor, versions, gate) as port:
        yield port
