"""Ids of requests: the client's own, or a new one; every answer bears it, so do the rows of an impression log."""
import re
import secrets

HEADER = "x-request-id"  # of HTTP, and the key of gRPC's metadata
_SANE = re.compile(r"[!-~]{1,128}", re.ASCII)  # printable and without spaces, as both protocols carry it


def request_id(sent: str = "") -> str:
    """The id that a client sent, if it has 1 to 128 printable ASCII characters and no space; else 32 random digits."""
    return sent if _SANE.fullmatch(sent) else secrets.token_hex(16)


class IdentifiedAnswers:
    """An ASGI application whose answers all have the header `HEADER`, and whose requests have `request.state.id`.

    Args:
      app: the application that answers.
    """

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        name = HEADER.encode()
        sent = next((value.decode("latin-1") for header, value in scope["headers"] if header == name), "")
        found = request_id(sent)
        scope.setdefault("state", {})["id"] = found

        async def send_identified(message):
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (name, found.encode())]
            await send(message)
        return await self._app(scope, receive, send_identified)
