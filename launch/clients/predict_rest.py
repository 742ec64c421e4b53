"""Retrieves items for one user over HTTP, from TensorFlow Serving or from `python -m clrec_tf.serve`.

  python launch/clients/predict_rest.py --server=http://127.0.0.1:8501 --history=item-3,item-14

Through a proxy that asks for a user and a password, such as launch/proxy/nginx.conf, whose file is `user:password`:

  python launch/clients/predict_rest.py --server=https://HOST:8443 --user_file=FILE --ca_file=CA --history=item-3

Needs nothing but Python.
"""
import argparse
import base64
import http.client
import json
import re
import ssl
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
    parser.add_argument("--user_file", help="file with a line user:password, for a proxy that asks for them; sent "
                        "instead of --token_file's token, which such a proxy adds itself (default: none)")
    parser.add_argument("--ca_file",
                        help="certificate (PEM) that the server's TLS is checked by (default: those of the system)")
    parser.add_argument("--timeout", type=float, default=5, help="seconds (default: %(default)s)")
    arguments = parser.parse_args()
    ask = caller(arguments)
    model = f"{arguments.server}/v1/models/{arguments.model_name}"
    try:
        metadata = ask(f"{model}/metadata")["metadata"]
        body = {"signature_name": "retrieve", "instances": [instance(metadata, arguments)]}
        answer, = ask(f"{model}:predict", body)["predictions"]
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{error.url}: {error.code}: {explained(error, arguments)}") from error
    except (OSError, http.client.HTTPException) as error:
        unknown = isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError)
        remedy = ": give its authority's certificate by --ca_file" if unknown else ""
        raise SystemExit(f"{arguments.server}: {error}{remedy}") from error
    columns = ["ids", "scores"] + ["intents"] * ("intents" in answer)
    for facts in zip(*(answer[name] for name in columns)):
        print(*facts, sep="\t")


def caller(arguments):
    """A function (url, body) -> the JSON that a GET, or with a body a POST, is answered with."""
    if not re.match("https?://", arguments.server):
        raise SystemExit(f"--server={arguments.server}: give http://HOST:PORT or https://HOST:PORT")
    for flag in ("user_file", "ca_file"):
        if getattr(arguments, flag) and not arguments.server.startswith("https://"):
            raise SystemExit(f"--{flag} is for TLS: --server={arguments.server} must begin with https://")
    authorization, context = authorization_of(arguments), None
    if arguments.ca_file:
        try:
            context = ssl.create_default_context(cafile=arguments.ca_file)
        except OSError as error:
            raise SystemExit(f"--ca_file={arguments.ca_file} cannot be read: {error}") from error

    def ask(url, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        if authorization:  # not to where a redirection may lead
            request.add_unredirected_header("Authorization", authorization)
        with urllib.request.urlopen(request, timeout=arguments.timeout, context=context) as response:
            answer = response.read()
        try:
            return json.loads(answer)
        except ValueError as error:
            raise SystemExit(f"{url}: the answer is no JSON: is --server={arguments.server} the service?") from error

    return ask


def authorization_of(arguments) -> str:
    """The one header Authorization that a request may have: the user before the token, which the proxy adds itself."""
    token = first_line("token_file", arguments.token_file).strip()
    user = first_line("user_file", arguments.user_file)
    if user and ":" not in user:
        raise SystemExit(f"--user_file={arguments.user_file}: its first line is not user:password")
    return f"Basic {base64.b64encode(user.encode()).decode()}" if user else f"Bearer {token}" if token else ""


def first_line(flag, path) -> str:
    """The first line of a file that a flag names, "" without one; no error quotes it."""
    if not path:
        return ""
    try:
        with open(path, encoding="utf-8") as file:
            line = file.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "") or "it is not text"
        raise SystemExit(f"--{flag}={path} cannot be read: {why}") from None
    if not line.strip() or flag == "token_file" and not (line.isascii() and line.isprintable()):
        raise SystemExit(f"--{flag}={path}: its first line must be "
                         f"{'a token' if flag == 'token_file' else 'user:password'}")
    return line


def explained(error, arguments) -> str:
    """What an HTTP error says, without a proxy's HTML, and which flag helps."""
    body = error.read(65536).decode(errors="replace")
    try:
        text = str(json.loads(body)["error"])
    except (ValueError, TypeError, KeyError):  # of nginx, say: its title
        title = re.search(r"<title>(?:\d+ )?([^<]+)", body)
        text = title[1].strip() if title else error.reason
    if error.code != 401:
        return text
    if error.headers.get("WWW-Authenticate", "").lower().startswith("basic"):
        return (f"{text}: the user or the password of --user_file={arguments.user_file} is wrong" if arguments.user_file
                else f"{text}: give --user_file=FILE, a file with a line user:password")
    if arguments.user_file:
        return (f"{text}: --user_file was sent, which the service itself does not read: leave it out if no proxy is "
                "before the service; else the proxy must add the service's token")
    return text if arguments.token_file else f"{text}: give --token_file=FILE"


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
