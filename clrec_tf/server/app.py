"""The HTTP server's paths: those of TF Serving's REST API, health and metrics."""
import functools
from typing import Callable

from fastapi import FastAPI
from fastapi import Request
from fastapi import Response
from fastapi.responses import JSONResponse
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException

import clrec_tf
from clrec_tf.server import description
from clrec_tf.server.faults import NotFound
from clrec_tf.server.faults import ServiceError
from clrec_tf.server.faults import Unavailable
from clrec_tf.server.http_answers import add_error_answers
from clrec_tf.server.http_answers import as_json
from clrec_tf.server.http_body import read_body
from clrec_tf.server.metrics import Metrics
from clrec_tf.server.model_status import metadata
from clrec_tf.server.model_status import version_states
from clrec_tf.server.page import add_page
from clrec_tf.server.predictor import Predictor
from clrec_tf.server.versions import Versions
from clrec_tf.settings.service import ServeConfig

_MODEL = "/v1/models/{name}"


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
    paths = _Paths(settings, versions, predictor, metrics, ready)
    app.add_api_route(_MODEL + ":predict", paths.predict, methods=["POST"], responses=description.PREDICTION)
    app.add_api_route(_MODEL + "/versions/{version}:predict", paths.predict_version, methods=["POST"],
                      responses=description.PREDICTION)
    for path, answer, responses in (
            (_MODEL, paths.status, description.MODEL), (_MODEL + "/metadata", paths.metadata, description.MODEL),
            ("/healthz", paths.health, None), ("/readyz", paths.readiness, description.READINESS),
            ("/metrics", paths.show_metrics, None)):
        kind = PlainTextResponse if path == "/metrics" else JSONResponse
        app.add_api_route(path, answer, methods=["GET"], responses=responses, response_class=kind)
        app.add_api_route(path, answer, methods=["HEAD"], include_in_schema=False)
    described = functools.cache(functools.partial(description.describe, app, settings))

    def openapi():
        engine = versions.engine
        return described(engine.id_type, engine.intents, engine.bundle.dial, engine.bundle.query.features,
                         engine.bundle.attributes.kinds)

    app.openapi = openapi
    if settings.page:
        add_page(app, settings, versions, paths.check_name)
    add_error_answers(app)
    return app


class _Paths:
    """One method for each path; their names and docstrings stand in /openapi.json. Args: see `make_app`."""

    def __init__(self, settings, versions, predictor, metrics, ready):
        self._settings, self._versions, self._predictor = settings, versions, predictor
        self._metrics, self._ready = metrics, ready

    def check_name(self, name: str) -> None:
        """Raises `NotFound` for a model of another name than the one served."""
        if name != self._settings.model_name:
            raise NotFound(f"there is no model {name!r}, the service has {self._settings.model_name!r} (--model_name)")

    async def predict(self, name: str, request: Request) -> Response:
        """Answers `retrieve`, `serving_default` (user vectors) or `encode_items`."""
        return await self._prediction(name, "", request)

    async def predict_version(self, name: str, version: str, request: Request) -> Response:
        """The same, if this very version is served."""
        return await self._prediction(name, version, request)

    async def _prediction(self, name, version, request):
        # Not by FastAPI's models: it would take a body of any size and at any pace before anything could refuse it, and
        # JSON and gRPC share one reader, `bodies`, whose errors and limits are the same for both.
        with self._predictor.held.request() as take:
            try:
                self.check_name(name)
                body = await read_body(request, self._settings, take)
            except ServiceError as error:
                self._metrics.answered("", error.status, 0.0)
                raise
            client = request.client.host if request.client else ""
            answer = await self._predictor.json(body, version, client, request.state.id)
            made_by = {"x-model-name": name, "x-model-version": answer["model_version"]}
            return as_json(answer, headers=made_by)

    async def status(self, name: str) -> Response:
        """States of versions: the one served, and those refused with the reason."""
        if name.endswith(":predict"):  # which has a path of its own, but not for GET
            raise HTTPException(405, headers={"allow": "POST"})
        self.check_name(name)
        return as_json({"model_version_status": version_states(self._versions)})

    async def metadata(self, name: str) -> Response:
        """What is served: facts of the bundle, and the signatures."""
        self.check_name(name)
        return as_json(metadata(self._settings.model_name, self._versions.engine))

    async def health(self) -> Response:
        """200 while the process lives."""
        return as_json({"status": "alive"})

    async def readiness(self) -> Response:
        """200 while requests are welcome."""
        if not self._ready():
            raise Unavailable("the service is about to end: send requests elsewhere")
        return as_json({"status": "ready", "version": self._versions.engine.version})

    async def show_metrics(self) -> Response:
        """Metrics for Prometheus."""
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")
