"""The HTTP door: TF Serving's REST paths, health, metrics, and JSON errors."""
import asyncio
import functools
from typing import Callable, Optional

from fastapi import FastAPI, Request, Response
import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

import clrec_tf
from clrec_tf.config import ServeConfig
from clrec_tf.errors import UserError
from clrec_tf.server import description
from clrec_tf.server.faults import Gone, NotFound, ServiceError, TooLarge, TooSlow, Unavailable
from clrec_tf.server.metrics import Metrics
from clrec_tf.server.page import add_page
from clrec_tf.server.predictor import Predictor
from clrec_tf.server.versions import Versions
from clrec_tf.server.without_paths import without_paths

_JSON = "application/json"
_MAX_ERROR = 1000  # characters of an error's text
_encode = msgspec.json.Encoder(enc_hook=str).encode


def make_app(settings: ServeConfig, versions: Versions, predictor: Predictor, metrics: Metrics,
             ready: Callable[[], bool]) -> FastAPI:
    """The application.

    Args:
      settings: of the service.
      versions: which is served.
      predictor: answers predictions.
      metrics: shown at /metrics.
      ready: whether requests are welcome, as /readyz says.
    """
    app = FastAPI(title="clrec_tf", version=clrec_tf.__version__, docs_url=None, redoc_url=None,
                  redirect_slashes=False)
    described = functools.cache(functools.partial(description.describe, app, settings))
    app.openapi = lambda: described(versions.engine.id_type, versions.engine.intents, versions.engine.bundle.dial)
    model, in_version = "/v1/models/{name}", "/v1/models/{name}/versions/{version}"

    def checked(name):
        if name != settings.model_name:
            raise NotFound(f"there is no model {name!r}, the service has {settings.model_name!r} (--model_name)")

    def get(path):
        """Decorates what answers GET and HEAD."""
        return lambda made: app.head(path, include_in_schema=False)(app.get(path)(made))

    @app.post(model + ":predict")
    async def predict(name: str, request: Request) -> Response:
        """Answers `retrieve`, `serving_default` (user vectors) or `encode_items`."""
        return await answer(name, "", request)

    @app.post(in_version + ":predict")
    async def predict_version(name: str, version: str, request: Request) -> Response:
        """The same, if this very version is served."""
        return await answer(name, version, request)

    async def answer(name, version, request):
        with predictor.held.request() as take:
            try:
                checked(name)
                body = await _body(request, settings, take)
            except ServiceError as error:
                metrics.answered("", error.status, 0.0)
                raise
            client = request.client.host if request.client else ""
            return _json(await predictor.json(body, version, client))

    app.add_middleware(_ShortPath, path=f"/v1/models/{settings.model_name}:predict",
                       answer=functools.partial(answer, settings.model_name, ""))

    @get(model)
    async def status(name: str) -> Response:
        """States of versions: the one served, and those refused with the reason."""
        if name.endswith(":predict"):  # which has a path of its own, but not for GET
            raise HTTPException(405, headers={"allow": "POST"})
        checked(name)
        return _json({"model_version_status": version_states(versions)})

    @get(model + "/metadata")
    async def metadata(name: str) -> Response:
        """What is served: facts of the bundle, and the signatures."""
        checked(name)
        return _json(description.metadata(settings.model_name, versions.engine))

    @get("/healthz")
    async def health() -> Response:
        """200 while the process lives."""
        return _json({"status": "alive"})

    @get("/readyz")
    async def readiness() -> Response:
        """200 while requests are welcome."""
        if not ready():
            raise Unavailable("the service is about to end: send requests elsewhere")
        return _json({"status": "ready", "version": versions.engine.version})

    @get("/metrics")
    async def show_metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    if settings.page:
        add_page(app, settings, versions, checked, _json)

    app.add_exception_handler(UserError, _told)
    app.add_exception_handler(HTTPException, _no_such_page)
    app.add_exception_handler(Exception, _told)
    return app


class _ShortPath:
    """Answers POST to one path before FastAPI looks for a route, which takes longer than reading the request does."""

    def __init__(self, app, path, answer):
        self._app, self._path, self._answer = app, path, answer

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http" or scope["path"] != self._path or scope["method"] != "POST":
            return await self._app(scope, receive, send)
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except UserError as error:
            response = await _told(request, error)
        return await response(scope, receive, send)


def version_states(versions: Versions) -> list[dict]:
    """As TF Serving's GetModelStatus lists versions, the newest first, with what the latest look found wrong."""
    served, refusals = versions.engine.version, dict(versions.refusals)  # another thread may add to them
    # What is no version's own fault, such as a bad text in the file `serve_version`, stands by the one that is served.
    fault = "" if versions.complaint in refusals.values() else versions.complaint
    states = {served: ("AVAILABLE", "OK", fault)} | {
        number: ("END", "FAILED_PRECONDITION", text) for number, text in refusals.items() if number != served}
    return [dict(version=str(number), state=state, status=dict(
        error_code=code, error_message=without_paths(text, versions.export_dir)))
            for number, (state, code, text) in sorted(states.items(), reverse=True)]


async def _body(request: Request, settings: ServeConfig, take: Callable[[int], None]) -> bytes:
    """The whole body, within its size and its time; `take` is told of each part."""
    def refuse(size):
        raise TooLarge(f"the body has {size}, at most {settings.max_request_bytes} bytes are accepted "
                       "(--max_request_bytes): send fewer instances, and of a history the latest clicks")
    told = request.headers.get("content-length", "")
    if told.isdigit() and int(told) > settings.max_request_bytes:
        refuse(f"{told} bytes")
    parts, size = [], 0
    try:
        async with asyncio.timeout(settings.read_timeout_s):
            async for part in request.stream():
                size += len(part)
                if size > settings.max_request_bytes:
                    refuse(f"{size} bytes and more")
                take(len(part))
                parts.append(part)
    except ClientDisconnect:
        raise Gone("the client has gone before its request was there") from None
    except TimeoutError:
        raise TooSlow(f"the body did not arrive within {settings.read_timeout_s:g} s (--read_timeout_s)") from None
    return b"".join(parts)


def _json(value, status=200, headers: Optional[dict] = None) -> Response:
    return Response(_encode(value), status, headers, _JSON)


async def _told(request: Request, error: Exception) -> Response:
    """The answer to a request that could not be served. What its client still sends is read and forgotten."""
    del request
    if not isinstance(error, UserError):
        return _json({"error": "the service failed; its log has the details"}, 500)
    status = error.status if isinstance(error, ServiceError) else 400
    headers = {}
    if getattr(error, "retry_s", None):
        headers["retry-after"] = str(error.retry_s)
    if isinstance(error, TooSlow):
        headers["connection"] = "close"
    text = str(error)  # which may quote what was sent
    return _json({"error": text if len(text) <= _MAX_ERROR else f"{text[:_MAX_ERROR]} …"}, status, headers)


async def _no_such_page(request: Request, error: HTTPException) -> Response:
    text = f"{request.method} {request.url.path}: {error.detail}; /openapi.json lists what there is"
    return _json({"error": text}, error.status_code, error.headers)
