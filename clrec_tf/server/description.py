"""The OpenAPI description: FastAPI's, with the bodies that msgspec reads.

FastAPI describes paths, parameters and, from the dictionaries below, answers. It cannot describe bodies, since it does
not read them (see `app`): their schemas come from the types by which msgspec checks them, with this service's limits
and with the id type, intents and popularities of the version served.
"""
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
import msgspec

from clrec_tf.retrieval.attributes import BOUNDS
from clrec_tf.retrieval.attributes import MOST_VALUES
from clrec_tf.server import instances
from clrec_tf.settings.service import ServeConfig

_REF = "#/components/schemas/{name}"
_RETRY_AFTER = {"Retry-After": {"schema": {"type": "string"}, "description": "seconds, where trying again may help"}}


def _error(status, text):
    """An answer that says what is wrong."""
    answer = {"description": text, "content": {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}}}
    return answer | ({"headers": _RETRY_AFTER} if status in (429, 503) else {})


_NO_SUCH_MODEL = "No such model or version."
_TOO_MUCH = "The service has too much to do; Retry-After says when to try again."
PREDICTION = {
    200: {"description": "predictions, one per instance; or outputs, for inputs", "content": {"application/json": {
        "schema": {"type": "object", "properties": {
            "predictions": {"type": "array", "items": {"$ref": _REF.format(name="Prediction")}},
            "outputs": {"type": "object"}, "model_version": {"type": "string"}, "request_id": {"type": "string"}}}}}}
} | {status: _error(status, text) for status, text in {
    400: "Something in the body is wrong; the text says what, where, and what is expected.",
    404: _NO_SUCH_MODEL,
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    429: "This client has too many requests under way.",
    500: "The service failed.",
    503: _TOO_MUCH,
    504: "No answer in time.",
}.items()}
MODEL = {404: _error(404, _NO_SUCH_MODEL), 503: _error(503, _TOO_MUCH)}
READINESS = {503: _error(503, "The service is about to end.")}


def describe(app: FastAPI, settings: ServeConfig, id_type: str, intents: int, dial, features: tuple = (),
             attributes: tuple = ()) -> dict:
    """The OpenAPI description, with bodies, limits and errors, for models of such ids, intents, `BundleDial`, features
    of users and requests, and `Attributes.kinds`."""
    kinds = instances.instances_of(features)
    description = get_openapi(title=app.title, version=app.version, routes=app.routes, openapi_version="3.1.0",
                              description=f"Retrieval by the model {settings.model_name}.")
    schemas = _schemas(settings, id_type, intents, dial, kinds)
    for kind in (instances.RetrieveUser, instances.SimilarTo):
        schemas[kind.__name__]["properties"]["filter"] = _filter(attributes)
    description["components"] = {"schemas": schemas}
    for path, methods in description["paths"].items():
        for operation in methods.values():
            operation["responses"].pop("422", None)  # FastAPI's own, which it never gives: parameters may be any text
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "name":
                    parameter["schema"] = {"type": "string", "enum": [settings.model_name]}
            if path.endswith(":predict"):
                operation["requestBody"] = _request_body(settings, schemas, kinds)
    return description


def _schemas(settings, id_type, intents, dial, kinds):
    """By name: users and items as `instances` has them, within the limits; an error, and a prediction."""
    _, schemas = msgspec.json.schema_components(tuple(kinds.values()), ref_template=_REF)
    _bound(schemas, settings, id_type, intents, dial)
    return schemas | {
        "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
        "Prediction": {"type": "object", "additionalProperties": True}}


def _filter(attributes):
    """An object with a condition for any of the attributes. As text it may come too, which is for gRPC."""
    def condition(number):
        value = {"type": "number" if number else "string"}
        forms = [value, {"type": "array", "items": value, "maxItems": MOST_VALUES}]
        bounds = {"type": "object", "additionalProperties": False, "minProperties": 1,
                  "properties": {bound: {"type": "number"} for bound in BOUNDS}}
        return {"anyOf": forms + ([bounds] if number else [])}
    return {"default": None, "anyOf": [{"type": "null"}, {
        "type": "object", "additionalProperties": False,
        "properties": {name: condition(number) for name, number in attributes}}]}


def _bound(schemas, settings, id_type, intents, dial):
    """Puts the limits of this service, the type of ids, the intents and the popularities into the entries."""
    item_id = {"type": "string"}
    if id_type == "int":
        item_id = {"anyOf": [{"type": "integer", "minimum": 1 - 2**63, "maximum": 2**63 - 1},
                             {"type": "string", "pattern": "^[0-9]{1,18}$"}]}
    listed = {"maxItems": settings.max_listed, "items": item_id}
    limits = {"k": {"maximum": settings.max_k}, "intents": {"maximum": intents},
              "popularity": {"minimum": dial.lowest, "maximum": dial.highest}} | dict.fromkeys(
        ("history", "exclude", "allow"), listed)
    for kind in (instances.Item, instances.SimilarTo):
        schemas[kind.__name__]["properties"]["ids"] = item_id
    for kind in (instances.User, instances.RetrieveUser, instances.SimilarTo):
        entries = schemas[kind.__name__]["properties"]
        for name in limits.keys() & entries.keys():
            for form in entries[name].get("anyOf", [entries[name]]):
                if form.get("type") != "null":
                    form.update(limits[name])


def _request_body(settings, schemas, kinds):
    """Any signature's body."""
    forms = [_body(signature, kind, settings, schemas) for signature, kind in kinds.items()]
    return {"required": True, "content": {"application/json": {"schema": {"anyOf": forms}}}}


def _columns(entries, leading, settings):
    """Entries of one user -> those of `inputs`: a list with one of each user, or one for all where it is no list."""
    columns = {}
    for name, entry in entries.items():
        forms = entry.get("anyOf", [entry])
        columns[name] = {"anyOf": [{"type": "array", "items": {key: value for key, value in entry.items()
                                                               if key != "default"}}]}
        if name == leading:
            columns[name] = columns[name]["anyOf"][0] | {"minItems": 1, "maxItems": settings.max_instances}
        else:
            columns[name]["anyOf"] += [form for form in forms if form.get("type") != "array"]
    return columns


def _body(signature, kind, settings, schemas):
    users = {"type": "array", "minItems": 1, "maxItems": settings.max_instances,
             "items": {"$ref": _REF.format(name=kind.__name__)}}
    name = {"const": signature} | ({"default": signature} if signature == instances.USERS else {})
    leading = "ids" if kind in (instances.Item, instances.SimilarTo) else "history"
    shared = {"type": "object", "additionalProperties": False}
    named = {"signature_name": name}
    required = [] if signature == instances.USERS else ["signature_name"]
    nothing = {"type": "null"}
    return {"oneOf": [
        shared | {"properties": named | {"instances": users, "inputs": nothing}, "required": required + ["instances"]},
        shared | {"properties": named | {"instances": nothing, "inputs": {
            "type": "object", "required": [leading], "additionalProperties": False, "properties": _columns(
                schemas[kind.__name__]["properties"], leading, settings),
            "description": f"one list per entry of {kind.__name__}, all of one length, with one element per user; a "
            "single value counts for all"}}, "required": required + ["inputs"]}]}
