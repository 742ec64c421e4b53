"""Retrieves items for one user over HTTP, from TensorFlow Serving or from `python -m clrec_tf.serve`.

  python launch/clients/predict_rest.py --server=http://127.0.0.1:8501 --history=item-3,item-14

Needs nothing but Python.
"""
import argparse
import json
import urllib.error
import urllib.request


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="http://127.0.0.1:8501", help="default: %(default)s")
    parser.add_argument("--model_name", default="clrec", help="default: %(default)s")
    parser.add_argument("--history", default="", help="comma-separated item ids, oldest first (default: none)")
    parser.add_argument("--k", type=int, default=10, help="items wanted (default: %(default)s)")
    parser.add_argument("--intents", type=int, default=1,
                        help="intents searched, for a model with several (default: %(default)s)")
    parser.add_argument("--popularity", type=float, help="how much popularity is put back, 0: as trained, 1: what users "
                        "click (default: the server's; 0 of TensorFlow Serving, which has none)")
    parser.add_argument("--tell", action="append", default=[], metavar="NAME=VALUE", help="what is known of user or "
                        "request, such as context_country=DE; several values are separated by commas; may be repeated")
    parser.add_argument("--exclude_seen", action="store_true", help="leave the history's items out")
    parser.add_argument("--width", type=int, default=50,
                        help="width that histories are filled up or cut to (default: %(default)s)")
    parser.add_argument("--token_file", help="file with the token of a service that asks for one (default: none)")
    parser.add_argument("--timeout", type=float, default=5, help="seconds (default: %(default)s)")
    arguments = parser.parse_args()
    token = open(arguments.token_file, encoding="utf-8").readline().strip() if arguments.token_file else ""
    model = f"{arguments.server}/v1/models/{arguments.model_name}"
    try:
        metadata = call(f"{model}/metadata", None, arguments.timeout, token)["metadata"]
        body = {"signature_name": "retrieve", "instances": [instance(metadata, arguments)]}
        answer, = call(f"{model}:predict", body, arguments.timeout, token)["predictions"]
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{error.url}: {error.code}: {error.read().decode(errors='replace')}") from error
    except OSError as error:
        raise SystemExit(f"{arguments.server}: {error}") from error
    columns = ["ids", "scores"] + ["intents"] * ("intents" in answer)
    for facts in zip(*(answer[name] for name in columns)):
        print(*facts, sep="\t")


def call(url, body, timeout, token=""):
    """The JSON that a GET, or with a body a POST, is answered with."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=timeout) as response:
        return json.load(response)


def instance(metadata, arguments):
    """One user as the server wants it. TensorFlow Serving demands every input; what is unknown is said to be."""
    history = [item for item in arguments.history.split(",") if item][-arguments.width:]
    if "signature_def" not in metadata:  # clrec_tf.serve, which needs no padding and only what is known
        several = {"intents": arguments.intents} if metadata["bundle"]["intents"] > 1 else {}
        ids = integers(history) if metadata["bundle"]["id_type"] == "int" else history
        popularity = {} if arguments.popularity is None else {"popularity": arguments.popularity}
        kinds = {feature["name"]: feature["kind"] for feature in metadata["bundle"].get("query", ())}
        told = {name: typed(name, text, kinds.get(name)) for name, text in told_of(arguments).items()}
        told = {name: value for name, value in told.items() if value == value}  # NaN: unknown, as what is left out
        return {"history": ids, "k": arguments.k, "exclude_seen": arguments.exclude_seen} | several | popularity | told
    inputs = metadata["signature_def"]["signature_def"]["retrieve"]["inputs"]
    text = inputs["history"]["dtype"] == "DT_STRING"
    # One width whatever a history's length: what the server joins into a batch must be equally wide.
    filled = lambda values, padding: values + [padding] * (arguments.width - len(values))
    ids, padding = (history, "") if text else (integers(history), -1)
    values = {"history": filled(ids, padding), "exclude": filled(ids if arguments.exclude_seen else [], padding),
              "timestamps": filled([], 0), "request_time": 0, "dwell": filled([], -1), "k": arguments.k,
              "intents": arguments.intents, "popularity": arguments.popularity or 0.0}
    told, values["events"] = told_of(arguments), filled([], "")
    for name in set(inputs) - set(values):  # of user or request
        width = len(inputs[name]["tensor_shape"].get("dim", ()))
        kind = "number" if inputs[name]["dtype"] == "DT_FLOAT" else "list" if width > 1 else "category"
        value = typed(name, told.pop(name, ""), kind)
        values[name] = value if kind != "list" else value or [""]
    if set(told) - set(values):
        raise SystemExit(f"--tell: this model has no {', '.join(sorted(set(told) - set(values)))}")
    return {name: values[name] for name in inputs}


def told_of(arguments):
    """Name -> text, of --tell."""
    for text in arguments.tell:
        if "=" not in text:
            raise SystemExit(f"--tell={text}: give NAME=VALUE, such as context_country=DE")
    return dict(text.split("=", 1) for text in arguments.tell)


def typed(name, text, kind):
    """A value of --tell as JSON has it; JSON has no NaN, so an unknown number of TensorFlow Serving is "NaN" there."""
    if kind == "number":
        try:
            return float(text or "nan")
        except ValueError as error:
            raise SystemExit(f"--tell={name}={text}: {name} is a number ({error})") from error
    return [part for part in text.split(",") if part] if kind == "list" else text


def integers(history):
    """The ids of --history for a model whose ids are integers."""
    try:
        return [int(item) for item in history]
    except ValueError as error:
        raise SystemExit(f"--history={','.join(history)}: the item ids of this model are integers ({error})") from error


if __name__ == "__main__":
    main()
