"""The page on which a person tries histories out, and the look-up of items that it needs."""
import base64
import hashlib
import html
import json
import pathlib
import re
from typing import Callable

from fastapi import FastAPI
from fastapi import Request
from fastapi import Response
from fastapi.responses import HTMLResponse

from clrec_tf.server.faults import ServiceError
from clrec_tf.server.http_answers import as_json
from clrec_tf.server.item_finder import ItemFinder
from clrec_tf.server.item_finder import known_items
from clrec_tf.server.one_thread import OneThread
from clrec_tf.server.versions import Versions
from clrec_tf.settings.service import ServeConfig

_TEMPLATE = (pathlib.Path(__file__).parent / "page.html").read_text(encoding="utf-8")
_MOST_ITEMS = 100  # that one search gives
_MOST_QUERY = 200  # characters
_MOST_LOOKUPS = 1000  # ids at once
_MOST_WAITING = 20  # look-ups, beyond which they are refused


def add_page(app: FastAPI, settings: ServeConfig, versions: Versions, check_name: Callable[[str], None]) -> None:
    """Adds / and /v1/models/NAME/items, which is for the page alone.

    Args:
      app: to be added to.
      settings: of the service.
      versions: which is served.
      check_name: raises if a model's name is not the one served.
    """
    finder = ItemFinder()
    # One thread: whatever people type, the service's own work waits for one search at most.
    thread = OneThread("items", _MOST_WAITING, "{waiting} searches for items are under way: try again in a second")

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page() -> Response:
        return HTMLResponse(page_for(settings, versions.engine.defaults), headers=HEADERS)

    @app.get("/v1/models/{name}/items", include_in_schema=False)
    async def items(name: str, request: Request) -> Response:
        """Items of ids (`?id=…&id=…`), or those that a text finds (`?query=…&limit=…`)."""
        check_name(name)
        return as_json(await thread.run(_work(finder, versions.engine.bundle, request.query_params)))


def _work(finder, bundle, parameters):
    """What a request to look items up asks for, as a function without arguments."""
    ids, query, limit = parameters.getlist("id"), parameters.get("query", ""), parameters.get("limit", "20")
    if len(ids) > _MOST_LOOKUPS:
        raise ServiceError(f"there are {len(ids)} ids, at most {_MOST_LOOKUPS} are looked up at once: send fewer")
    if len(query) > _MOST_QUERY:
        raise ServiceError(f"the query has {len(query)} characters, at most {_MOST_QUERY} are searched for: shorten it")
    if not (limit.isascii() and limit.isdigit() and len(limit) < 6 and 1 <= int(limit) <= _MOST_ITEMS):
        raise ServiceError(f"limit is {limit[:20]!r}: give a number from 1 to {_MOST_ITEMS}")
    return lambda: known_items(bundle, ids) if ids else finder.find(bundle, query, int(limit))


def page_for(settings: ServeConfig, defaults) -> str:
    """The page, which begins with the service's own options."""
    facts = dict(model=settings.model_name, k=min(defaults.k, settings.max_k), max_k=settings.max_k,
                 intents=defaults.intents, merge=defaults.merge, exclude_seen=defaults.exclude_seen,
                 popularity=defaults.popularity)
    return (_TEMPLATE.replace("{{settings}}", html.escape(json.dumps(facts)))
            .replace("{{model_name}}", html.escape(settings.model_name)))


def _only(tag):
    """The hash by which a browser knows the page's own script or style from one that got in."""
    inside = re.search(f"<{tag}>(.*?)</{tag}>", _TEMPLATE, re.DOTALL)[1]
    return "'sha256-" + base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode() + "'"


HEADERS = {
    "cache-control": "no-store", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer",
    "content-security-policy": f"default-src 'none'; script-src {_only('script')}; style-src {_only('style')}; "
                               "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                               "frame-ancestors 'none'"}
