"""Retrieves items for one user over gRPC, from TensorFlow Serving or from `python -m clrec_tf.serve --grpc_port=8500`.

  python launch/clients/predict_grpc.py --server=127.0.0.1:8500 --history=item-3,item-14

Through a proxy that asks for a client's certificate, such as launch/proxy/nginx.conf:

  python launch/clients/predict_grpc.py --server=HOST:8444 --ca_file=CA --cert_file=CERT --key_file=KEY --history=item-3

Needs the packages tensorflow and tensorflow-serving-api. With --ca_file the connection is encrypted.
"""
import argparse
import ssl

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2, prediction_service_pb2_grpc

# What is sent where nothing is known. Rows are filled up to one width, whatever a history's length: requests that the
# server joins into a batch must be equally wide, and the model ignores these entries.
PADDING = {"history": ("", -1), "exclude": ("", -1), "timestamps": 0, "request_time": 0, "dwell": -1,
           "events": ("", "")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="127.0.0.1:8500", help="host:port of gRPC (default: %(default)s)")
    parser.add_argument("--model_name", default="clrec", help="default: %(default)s")
    parser.add_argument("--history", default="", help="comma-separated item ids, oldest first (default: none)")
    parser.add_argument("--k", type=int, default=10, help="items wanted (default: %(default)s)")
    parser.add_argument("--intents", type=int, default=1,
                        help="intents searched, for a model with several (default: %(default)s)")
    parser.add_argument("--popularity", type=float, default=0.0, help="how much popularity is put back, 0: as trained, "
                        "1: what users click (default: %(default)s)")
    parser.add_argument("--tell", action="append", default=[], metavar="NAME=VALUE", help="what is known of user or "
                        "request, such as context_country=DE; several values are separated by commas; may be repeated")
    parser.add_argument("--exclude_seen", action="store_true", help="leave the history's items out")
    parser.add_argument("--width", type=int, default=50,
                        help="width that histories are filled up or cut to (default: %(default)s)")
    parser.add_argument("--token_file", help="file with the token of a service that asks for one (default: none)")
    parser.add_argument("--ca_file", help="certificate (PEM) that the server's TLS is checked by (default: no TLS)")
    parser.add_argument("--cert_file", help="certificate (PEM) of this client, for a proxy that asks for one; needs "
                        "--key_file and --ca_file (default: none)")
    parser.add_argument("--key_file", help="private key (PEM, not encrypted) of --cert_file (default: none)")
    parser.add_argument("--timeout", type=float, default=5, help="seconds (default: %(default)s)")
    arguments = parser.parse_args()
    with channel_of(arguments) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        try:
            outputs = retrieve(stub, arguments)
        except grpc.RpcError as error:
            why = f"{error.code().name}: {error.details()}{remedy(error, arguments)}"
            raise SystemExit(f"{arguments.server}: {why}") from error
    columns = ["scores"] + ["intents"] * ("intents" in outputs)
    for item, *facts in zip(outputs["ids"][0], *(outputs[name][0] for name in columns)):
        print(item.decode() if isinstance(item, bytes) else item, *facts, sep="\t")


def channel_of(arguments) -> grpc.Channel:
    """The connection: plain, encrypted, or encrypted and with a certificate of this client."""
    files = {flag: getattr(arguments, flag) for flag in ("ca_file", "key_file", "cert_file")}
    if bool(arguments.cert_file) != bool(arguments.key_file):
        raise SystemExit("--cert_file and --key_file belong together: give both")
    if not arguments.ca_file:
        if arguments.cert_file:
            raise SystemExit("--cert_file is for TLS: give --ca_file, the certificate that the server's is checked by")
        return grpc.insecure_channel(arguments.server)
    content = {flag: path and read(flag, path) for flag, path in files.items()}
    try:  # gRPC itself would only say that it cannot connect
        context = ssl.create_default_context(cafile=arguments.ca_file)
    except OSError as error:
        raise SystemExit(f"--ca_file={arguments.ca_file} holds no certificate: {error}") from error
    try:
        if arguments.cert_file:
            context.load_cert_chain(arguments.cert_file, arguments.key_file, password="")  # "": do not ask
    except OSError as error:
        raise SystemExit(f"--cert_file={arguments.cert_file} and --key_file={arguments.key_file} are no certificate "
                         f"and its unencrypted key: {error}") from error
    return grpc.secure_channel(arguments.server, grpc.ssl_channel_credentials(*content.values()))


def read(flag, path) -> bytes:
    """The file that a flag names."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise SystemExit(f"--{flag}={path} cannot be read: {error.strerror}") from error


def remedy(error, arguments) -> str:
    """Which flags may help; nginx answers who shows no certificate of its authority with HTTP's 400."""
    if error.code() == grpc.StatusCode.UNAUTHENTICATED:
        if arguments.cert_file:
            return ": a proxy before the service must add the service's token; without a proxy give --token_file=FILE"
        return "" if arguments.token_file else ": give --token_file=FILE"
    if not arguments.ca_file or "400" not in error.details():
        return ""
    if arguments.cert_file:
        return f": the proxy may not accept --cert_file={arguments.cert_file}: its authority must have signed it"
    return ": a proxy that asks for a client's certificate needs --cert_file and --key_file"


def retrieve(stub, arguments) -> dict:
    """Arrays by output, with one row for the one user."""
    metadata = []
    if arguments.token_file:
        lines = read("token_file", arguments.token_file).decode(errors="replace").splitlines()
        token = lines[0].strip() if lines else ""
        if not (token and token.isascii() and token.isprintable()):
            raise SystemExit(f"--token_file={arguments.token_file}: its first line must be a token")
        metadata = [("authorization", f"Bearer {token}")]
    asked = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    asked.model_spec.name = arguments.model_name
    answer = stub.GetModelMetadata(asked, timeout=arguments.timeout, metadata=metadata).metadata["signature_def"]
    signatures = get_model_metadata_pb2.SignatureDefMap()
    answer.Unpack(signatures)
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = arguments.model_name, "retrieve"
    inputs, told = signatures.signature_def["retrieve"].inputs, told_of(arguments)
    beside = sorted(name for name in inputs if name.startswith(("user_", "context_")))
    if unknown := sorted(set(told) - set(beside)):
        raise SystemExit(f"--tell: this model has no {', '.join(unknown)}; "
                         f"it reads {', '.join(beside) or 'the history alone'}")
    for name, info in inputs.items():
        dtype = tf.as_dtype(info.dtype)
        if name in beside:
            values = typed(name, told.get(name, ""), dtype, len(info.tensor_shape.dim))
        else:
            values = value(name, dtype, arguments)
        request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
    response = stub.Predict(request, timeout=arguments.timeout, metadata=metadata)
    return {name: tf.make_ndarray(tensor) for name, tensor in response.outputs.items()}


def told_of(arguments):
    """Name -> text, of --tell."""
    for text in arguments.tell:
        if "=" not in text:
            raise SystemExit(f"--tell={text}: give NAME=VALUE, such as context_country=DE")
    return dict(text.split("=", 1) for text in arguments.tell)


def typed(name, text, dtype, dimensions):
    """A value of --tell for one user; what is not told is unknown: "" or NaN."""
    if dtype == tf.float32:
        try:
            return np.array([float(text or "nan")], np.float32)
        except ValueError as error:
            raise SystemExit(f"--tell={name}={text}: {name} is a number ({error})") from error
    return np.array([text.split(",") if dimensions > 1 else text], object)


def value(name, dtype, arguments):
    """The input `name` of the signature, for one user."""
    if name in ("k", "intents"):
        return np.array([getattr(arguments, name)], np.int32)
    if name == "popularity":
        return np.array([arguments.popularity], np.float32)
    padding = PADDING[name]
    if isinstance(padding, tuple):
        padding = padding[dtype != tf.string]
    width = () if name == "request_time" else (arguments.width,)
    values = np.full((1, *width), padding, object if dtype == tf.string else dtype.as_numpy_dtype)
    if name == "history" or name == "exclude" and arguments.exclude_seen:
        items = [item for item in arguments.history.split(",") if item][-arguments.width:]
        values[0, :len(items)] = items if dtype == tf.string else integers(items)
    return values


def integers(history):
    """The ids of --history for a model whose ids are integers."""
    try:
        return np.array([int(item) for item in history], np.int64)
    except (ValueError, OverflowError) as error:
        raise SystemExit(f"--history={','.join(history)}: the item ids of this model are integers ({error})") from error


if __name__ == "__main__":
    main()
