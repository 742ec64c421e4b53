"""What the service says of its versions: their states, and the facts of the one that is served."""
from clrec_tf.server.versions import Versions
from clrec_tf.server.without_paths import without_paths

_FACTS = ("checkpoint_hash", "step", "created", "id_type", "items", "dimension", "similarity", "max_history",
          "uses_time", "uses_dwell", "knows_strangers", "intents", "index", "popularity", "dial", "measured",
          "versions")
_MOST_VALUES = 200  # of each feature and attribute, that are shown


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


def metadata(name: str, engine) -> dict:
    """Facts of the version served."""
    manifest = engine.bundle.manifest
    facts = {key: manifest[key] for key in _FACTS if key in manifest} | engine.bundle.counts
    query = engine.bundle.query
    shown = lambda feature: query.values.get(feature.key, [])[:_MOST_VALUES]
    facts["query"] = [dict(name=feature.input, kind=feature.kind, values=shown(feature))
                      for feature in query.features]
    facts["events"] = list(query.events)
    facts["attributes"] = [dict(name=attribute, kind="number" if number else "values",
                                values=engine.bundle.attributes.commonest(attribute, _MOST_VALUES))
                           for attribute, number in engine.bundle.attributes.kinds]
    signatures = {signature: list(kind.__struct_fields__) for signature, kind in engine.instances.items()}
    return {"model_spec": {"name": name, "version": str(engine.version)},
            "metadata": {"bundle": facts, "signatures": signatures}}
