"""What the service says of itself: OpenAPI, and the metadata of the model."""
import msgspec

from clrec_tf.config import ServeConfig
from clrec_tf.service import bodies

_REF = "#/components/schemas/{name}"


def describe(app, settings: ServeConfig) -> dict:
    """The OpenAPI description, with bodies and errors; made once."""
    if app.openapi_schema:
        return app.openapi_schema
    from fastapi.openapi.utils import get_openapi  # pylint: disable=import-outside-toplevel
    found = get_openapi(title=app.title, version=app.version, routes=app.routes, openapi_version="3.1.0",
                        description=f"Retrieval by the model {settings.model_name}.")
    _, schemas = msgspec.json.schema_components(tuple(bodies.INSTANCES.values()), ref_template=_REF)
    components = found.setdefault("components", {}).setdefault("schemas", {})
    components.clear()  # FastAPI's own shapes of errors are not ours
    _bound(schemas, settings)
    components |= schemas | {
        "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
        "Prediction": {"type": "object", "additionalProperties": True}}
    for path, methods in found["paths"].items():
        for operation in methods.values():
            responses = operation["responses"]
            responses.pop("422", None)
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "name":
                    parameter["schema"] = {"type": "string", "enum": [settings.model_name]}
            error = {"content": {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}}}
            if path.endswith(":predict"):
                operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": {
                    "anyOf": [_body(signature, kind, settings) for signature, kind in bodies.INSTANCES.items()]}}}}
                responses["200"] = {"description": "predictions, one per instance; or outputs, for inputs", "content": {
                    "application/json": {"schema": {"type": "object", "properties": {
                        "predictions": {"type": "array", "items": {"$ref": _REF.format(name="Prediction")}},
                        "outputs": {"type": "object"}}}}}}
                for status, text in _STATUS.items():
                    responses[str(status)] = {"description": text} | error
            elif "{name}" in path:
                for status in (404, 503):
                    responses[str(status)] = {"description": _STATUS[status]} | error
            elif path == "/readyz":
                responses["503"] = {"description": "The service is about to end."} | error
            elif path == "/metrics":
                responses["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
            for status in {"429", "503"} & set(responses):
                responses[status]["headers"] = {"Retry-After": {"schema": {"type": "string"}, "description":
                                                                "seconds, where trying again may help"}}
    app.openapi_schema = found
    return found


_STATUS = {
    400: "Something in the body is wrong; the text says what, where, and what is expected.",
    404: "No such model or version.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    429: "This client has too many requests under way.",
    500: "The service failed.",
    503: "The service has too much to do; Retry-After says when to try again.",
    504: "No answer in time.",
}


def _bound(schemas, settings):
    """Puts the limits of this service into the entries of users."""
    limits = {"k": {"maximum": settings.max_k}} | {
        name: {"maxItems": settings.max_listed} for name in ("history", "exclude", "allow")}
    for kind in (bodies.User, bodies.RetrieveUser):
        entries = schemas[kind.__name__]["properties"]
        for name in limits.keys() & entries.keys():
            for one in entries[name].get("anyOf", [entries[name]]):
                if one["type"] in ("integer", "array"):
                    one.update(limits[name])


def _body(signature, kind, settings):
    users = {"type": "array", "minItems": 1, "maxItems": settings.max_instances,
             "items": {"$ref": _REF.format(name=kind.__name__)}}
    name = {"const": signature} | ({"default": signature} if signature == bodies.USERS else {})
    leading = "ids" if kind is bodies.Item else "history"
    shared = {"type": "object", "additionalProperties": False}
    named = {"signature_name": name}
    required = [] if signature == bodies.USERS else ["signature_name"]
    nothing = {"type": "null"}
    return {"oneOf": [
        shared | {"properties": named | {"instances": users, "inputs": nothing}, "required": required + ["instances"]},
        shared | {"properties": named | {"instances": nothing, "inputs": {
            "type": "object", "required": [leading], "description": f"one list per entry of {kind.__name__}, with one "
            "element per user; a single value counts for all"}}, "required": required + ["inputs"]}]}


def metadata(name: str, engine) -> dict:
    """Facts of the version served."""
    manifest = engine.bundle.manifest
    facts = {key: manifest[key] for key in ("checkpoint_hash", "step", "created", "id_type", "items", "dimension",
                                            "similarity", "max_history", "uses_time", "uses_dwell", "intents", "index",
                                            "measured", "versions") if key in manifest}
    signatures = {signature: list(kind.__struct_fields__) for signature, kind in bodies.INSTANCES.items()}
    return {"model_spec": {"name": name, "version": str(engine.version)},
            "metadata": {"bundle": facts, "signatures": signatures}}
