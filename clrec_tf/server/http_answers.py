"""Answers of the HTTP server: JSON, also where something is wrong."""
from typing import Optional

from fastapi import FastAPI
from fastapi import Request
from fastapi import Response
import msgspec
from starlette.exceptions import HTTPException

from clrec_tf.errors import UserError
from clrec_tf.server.faults import ServiceError
from clrec_tf.server.faults import TooSlow

_JSON = "application/json"
_MOST_TEXT = 1000  # characters of an error's text
_encode = msgspec.json.Encoder(enc_hook=str).encode


def as_json(value, status: int = 200, headers: Optional[dict] = None) -> Response:
    """An answer that holds a value of JSON."""
    return Response(_encode(value), status, headers, _JSON)


def add_error_answers(app: FastAPI) -> None:
    """Has errors answered by {"error": text}."""
    app.add_exception_handler(UserError, _error)
    app.add_exception_handler(HTTPException, _no_such_path)
    app.add_exception_handler(Exception, _error)


async def _error(request: Request, error: Exception) -> Response:
    """The answer to a request that could not be served. What its client still sends is read and forgotten."""
    del request
    if not isinstance(error, UserError):
        return as_json({"error": "the service failed; its log has the details"}, 500)
    status = error.status if isinstance(error, ServiceError) else 400
    headers = {}
    if getattr(error, "retry_s", None):
        headers["retry-after"] = str(error.retry_s)
    if isinstance(error, TooSlow):
        headers["connection"] = "close"
    text = str(error)  # which may quote what was sent
    return as_json({"error": text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} …"}, status, headers)


async def _no_such_path(request: Request, error: HTTPException) -> Response:
    text = f"{request.method} {request.url.path}: {error.detail}; /openapi.json lists what there is"
    return as_json({"error": text}, error.status_code, error.headers)
