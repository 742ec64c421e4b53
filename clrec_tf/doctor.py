"""python -m clrec_tf.doctor: runs one operation of each package that clrec_tf stands on, and names the remedy.

  python -m clrec_tf.doctor
  python -m clrec_tf.doctor --flagfile=FLAGS --json=findings.json

pip does not notice versions that do not fit: broken sets install cleanly and fail later, in the middle of a job. With
the flags of other commands their deployment is checked too: TF_CONFIG and its addresses, storage, the data set, the
run, the bundle, GPUs and memory. Nothing is changed. Exit codes: 0 nothing is wrong, 1 something is, 2 bad flags."""
import functools
import importlib
from importlib import metadata
import os
import sys
import time
from typing import Optional

# Nothing of clrec_tf is imported here: its settings, and so every flag, need packages whose absence is to be reported.
SETS = {"2.17": ("constraints.txt", "io"), "2.20": ("constraints-tf220.txt", "")}  # tested, by TensorFlow
# What need not be there, and what cannot be done without it.
OPTIONAL = {"tensorflow-io": "formats and file systems of your own code; clrec_tf does without it",
            "obstore": "paths in object stores, s3:// and gs://: pip install 'clrec_tf[stores]'",
            "scann": "--index=scann; --index=faiss and exact do without it"}
SERVICE = ("fastapi", "uvicorn", "msgspec", "prometheus-client")
_MARKS = {True: "ok  ", False: "FAIL", None: "none"}


def _tensorflow():
    import tensorflow as tf
    keras = tf.keras.layers.Layer.__module__
    assert "tf_keras" in keras, f"tf.keras is {keras}, not Keras 2"
    assert float(tf.reduce_sum(tf.matmul(tf.ones((2, 3)), tf.ones((3, 2))))) == 12.0
    return f"{len(tf.config.list_physical_devices('GPU'))} GPU(s)"


def _keras():
    import tensorflow as tf
    import tf_keras
    assert tf.keras.layers.Layer is tf_keras.layers.Layer, "tf.keras is not tf-keras"
    return f"layer output {tf_keras.layers.Dense(3)(tf.ones((1, 2))).shape}"


def _recommenders():
    import tensorflow as tf
    import tensorflow_recommenders as tfrs
    index = tfrs.layers.factorized_top_k.BruteForce(k=1).index(tf.eye(3), tf.constant(["a", "b", "c"]))
    assert index(tf.constant([[0.0, 1.0, 0.0]]))[1].numpy()[0, 0] == b"b"
    return "brute force"


def _io():
    import tensorflow as tf
    import tensorflow_io as tfio
    # Where its library does not fit TensorFlow, importing it only warns: an op shows it.
    decoded = tfio.experimental.serialization.decode_json('{"a": 3}', {"a": tf.TensorSpec([], tf.int64)})
    assert int(decoded["a"]) == 3
    return "decode_json"


def _obstore():
    import obstore
    from obstore.store import MemoryStore
    store = MemoryStore()
    obstore.put(store, "a", b"3", mode="create")
    assert bytes(obstore.get(store, "a").bytes()) == b"3"
    return "put and get"


def _scann():
    import numpy as np
    from scann.scann_ops.py import scann_ops_pybind
    vectors = np.eye(32, dtype=np.float32)
    searcher = scann_ops_pybind.builder(vectors, 1, "dot_product").score_brute_force().build()
    assert searcher.search(vectors[7])[0][0] == 7
    return "search"


def _serving_api():
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2
    request = predict_pb2.PredictRequest()
    request.inputs["history"].CopyFrom(tf.make_tensor_proto([[3]], tf.int64))
    assert tf.make_ndarray(predict_pb2.PredictRequest.FromString(request.SerializeToString()).inputs["history"]) == 3
    return "PredictRequest"


def _polars():
    import polars as pl
    assert pl.DataFrame({"a": [1, 1, 2]}).group_by("a").len()["len"].sum() == 3
    return "group_by"


def _matplotlib():
    import io
    from matplotlib.figure import Figure
    Figure().savefig(io.BytesIO(), format="png")
    return "png"


def _service():
    from fastapi import FastAPI
    import msgspec
    import prometheus_client
    import uvicorn
    prometheus_client.Counter("runs", "Of this.", registry=prometheus_client.CollectorRegistry()).inc()
    uvicorn.Config(FastAPI(), log_config=None).load()
    assert msgspec.json.decode(b'{"k": 3}', type=dict[str, int])["k"] == 3
    return " ".join(SERVICE)


CHECKS = {"tensorflow": _tensorflow, "tf-keras": _keras, "tensorflow-recommenders": _recommenders,
          "tensorflow-io": _io, "obstore": _obstore, "scann": _scann, "tensorflow-serving-api": _serving_api,
          "polars": _polars, "matplotlib": _matplotlib}

IMPORTED = {"absl-py": "absl", "numpy": "numpy", "protobuf": "google.protobuf"}  # shown only where they are at fault


def diagnose() -> dict[str, tuple[str, str, Optional[bool]]]:
    """Runs every check: package -> (version, what ran or what failed, whether it works; None: it need not be there)."""
    results = {package: _diagnosed(package, lambda module=module: importlib.import_module(module).__name__)
             for package, module in IMPORTED.items()}
    results = {package: result for package, result in results.items() if not result[2]}
    results |= {package: _diagnosed(package, check) for package, check in CHECKS.items()}
    absent = [package for package in SERVICE if _version(package) is None]
    if absent:
        results["the service"] = ("absent", f"for clrec_tf.serve alone; not installed: {', '.join(absent)}; "
                                  f"{remedy('serve')}", None)
    else:
        results["the service"] = _diagnosed(SERVICE[0], _service)
    return results


def _diagnosed(package, check):
    version = _version(package)
    if version is None:
        return "absent", *((f"for {OPTIONAL[package]}", None) if package in OPTIONAL else ("not installed", False))
    try:
        return version, check(), True
    except Exception as error:  # pylint: disable=broad-except  (whatever a broken binary raises)
        return version, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:150]}", False


def _version(package) -> Optional[str]:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def main(config, given: frozenset = frozenset(), stored=None) -> int:
    """Runs the command.

    Args:
      config: all settings; None where a package is at fault that they are made of.
      given: names of those that were given; without any, and without TF_CONFIG, packages alone are looked at.
      stored: the `StoredPlaces` that flags give, None where none do.

    Returns:
      The exit code: 1 if anything does not work.
    """
    begun, results = time.monotonic(), diagnose()
    for package, (version, what, works) in results.items():
        print(f"{_MARKS[works]}  {package:<24} {version:<10} {what}")
    broken = any(works is False for _, _, works in results.values())
    if broken:
        wanted = "serve" if results["the service"][2] is False else ""  # which installs all the others too
        print(f"remedy: install the tested set: {remedy(wanted)}", file=sys.stderr)
    if config is None or not (given or os.environ.get("TF_CONFIG")):
        return int(broken)
    from clrec_tf.diagnosis import deployment  # pylint: disable=import-outside-toplevel
    return deployment.diagnose(config, given, begun, results, stored) or int(broken)


def remedy(extra: str = "") -> str:
    """The command that installs the set of versions for the TensorFlow that is installed, with an extra of setup.py."""
    series = (_version("tensorflow") or "").rsplit(".", 1)[0]
    constraints, beside = SETS.get(series, SETS["2.17"])
    extras = ",".join(name for name in (extra, beside) if name)
    return f"pip install -c {constraints} -e " + (f"'.[{extras}]'" if extras else ".")


def run() -> None:
    """The command with its flags, or without any where a package is at fault that the flags are made of."""
    try:
        from clrec_tf import command_line
        from clrec_tf.diagnosis.store_checks import ADDRESSED
        from clrec_tf.diagnosis.stored_places import StoredPlaces
    except Exception:  # pylint: disable=broad-except  (whatever a broken binary raises)
        if code := main(None):
            sys.exit(code)
        raise  # every package works: the fault is ours
    stored = StoredPlaces()
    command_line.run(functools.partial(main, stored=stored), usage=__doc__, takes_given=True, uses=(
        "doctor", "benchmark.json", "paths", "prepare", "model", "loss", "train", "cluster", "serve", "days", "report",
        "export", "retrieve", "update", "stores"), stores=stored.openers(ADDRESSED))


if __name__ == "__main__":
    run()
