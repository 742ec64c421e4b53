"""Lets requests through that show a token, over HTTP and gRPC; of HTTP health alone is open."""
from typing import Sequence

from clrec_tf.server.counted_line import CountedLine
from clrec_tf.server.faults import Unauthenticated
from clrec_tf.server.http_answers import as_json
from clrec_tf.server.metrics import Metrics
from clrec_tf.server.tokens import Tokens

HEADER = "authorization"
OPEN = ("/healthz", "/readyz")  # what orchestrators ask; they tell whether the service lives, and the version's number


class Gate:
    """Checks tokens, and counts and logs who shows none.

    Args:
      tokens: that are let through.
      metrics: counts what is not.
    """

    def __init__(self, tokens: Tokens, metrics: Metrics):
        self._tokens, self._metrics = tokens, metrics
        self._refused = CountedLine("{count} requests without a valid token were refused, the latest from {latest}")

    def check(self, sent: Sequence[str], client: str) -> None:
        """`Unauthenticated` unless the values of `HEADER` are one valid token; `client`: the address, for the log."""
        try:
            self._tokens.check(sent)
        except Unauthenticated as error:
            self._metrics.answered("", error.status, 0.0)
            self._refused.count(client)
            raise

    def flush(self) -> None:
        """Logs now what was refused since the last line."""
        self._refused.flush()


class GatedApp:
    """An ASGI application behind a gate, which answers 401.

    Args:
      app: the application.
      gate: before it.
    """

    def __init__(self, app, gate: Gate):
        self._app, self._gate = app, gate

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http" or scope["path"] in OPEN:
            return await self._app(scope, receive, send)
        sent = [value.decode("latin-1") for name, value in scope["headers"] if name == HEADER.encode()]
        try:
            self._gate.check(sent, scope["client"][0] if scope.get("client") else "")
        except Unauthenticated as error:
            answer = as_json({"error": str(error)}, error.status, {"www-authenticate": "Bearer"})
            return await answer(scope, receive, send)
        return await self._app(scope, receive, send)
