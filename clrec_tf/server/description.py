"""What the service says of itself: OpenAPI, and the metadata of the model."""
import msgspec

from clrec_tf.config import ServeConfig
from clrec_tf.server import bodies

_REF = "#/components/schemas/{name}"


def describe(app, settings: ServeConfig, id_type: str, intents: int, dial) -> dict:
    """The OpenAPI description, with bodies, limits and errors, for models of such ids, intents and `BundleDial`."""
    from fastapi.openapi.utils import get_openapi  # pylint: disable=import-outside-toplevel
    found = get_openapi(title=app.title, version=app.version, routes=app.routes, openapi_version="3.1.0",
                        description=f"Retrieval by the model {settings.model_name}.")
    _, schemas = msgspec.json.schema_components(tuple(bodies.INSTANCES.values()), ref_template=_REF)
    components = found.setdefault("components", {}).setdefault("schemas", {})
    components.clear()  # FastAPI's own shapes of errors are not ours
    _bound(schemas, settings, id_type, intents, dial)
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
                forms = [_body(signature, kind, settings, schemas) for signature, kind in bodies.INSTANCES.items()]
                operation["requestBody"] = {"required": True, "content": {"application/json": {
                    "schema": {"anyOf": forms}}}}
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


def _bound(schemas, settings, id_type, intents, dial):
    """Puts the limits of this service, the type of ids, the intents and the popularities into the entries."""
    one = {"type": "string"}
    if id_type == "int":
        one = {"anyOf": [{"type": "integer", "minimum": 1 - 2**63, "maximum": 2**63 - 1},
                         {"type": "string", "pattern": "^[0-9]{1,18}$"}]}
    listed = {"maxItems": settings.max_listed, "items": one}
    limits = {"k": {"maximum": settings.max_k}, "intents": {"maximum": intents},
              "popularity": {"minimum": dial.lowest, "maximum": dial.highest}} | dict.fromkeys(
        ("history", "exclude", "allow"), listed)
    schemas[bodies.Item.__name__]["properties"]["ids"] = one
    for kind in (bodies.User, bodies.RetrieveUser):
        entries = schemas[kind.__name__]["properties"]
        for name in limits.keys() & entries.keys():
            for form in entries[name].get("anyOf", [entries[name]]):
                if form.get("type") != "null":
                    form.update(limits[name])


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
    name = {"const": signature} | ({"default": signature} if signature == bodies.USERS else {})
    leading = "ids" if kind is bodies.Item else "history"
    shared = {"type": "object", "additionalProperties": False}
    named = {"signature_name": name}
    required = [] if signature == bodies.USERS else ["signature_name"]
    nothing = {"type": "null"}
    return {"oneOf": [
        shared | {"properties": named | {"instances": users, "inputs": nothing}, "required": required + ["instances"]},
        shared | {"properties": named | {"instances": nothing, "inputs": {
            "type": "object", "required": [leading], "additionalProperties": False, "properties": _columns(
                schemas[kind.__name__]["properties"], leading, settings),
            "description": f"one list per entry of {kind.__name__}, all of one length, with one element per user; a "
            "single value counts for all"}}, "required": required + ["inputs"]}]}


def metadata(name: str, engine) -> dict:
    """Facts of the version served."""
    manifest = engine.bundle.manifest
    facts = {key: manifest[key] for key in ("checkpoint_hash", "step", "created", "id_type", "items", "dimension",
                                            "similarity", "max_history", "uses_time", "uses_dwell", "intents", "index",
                                            "popularity", "dial", "measured", "versions") if key in manifest} | engine.bundle.counts
    signatures = {signature: list(kind.__struct_fields__) for signature, kind in bodies.INSTANCES.items()}
    return {"model_spec": {"name": name, "version": str(engine.version)},
            "metadata": {"bundle": facts, "signatures": signatures}}
