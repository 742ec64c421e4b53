"""A version is tried before it is served: with the requests that export recorded, and for the recall that it promises.

A bundle whose files agree with its manifest may still be a bad model, for the manifest came from the same export. Every
export records requests of held-out users, and the vectors that are searched for them.
"""
import math
import os

from absl import logging
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.models.top_k import top_k
from clrec_tf.retrieval.bundle_files import INDEX_FOLDER
from clrec_tf.retrieval.bundle_files import QUERIES_FILE
from clrec_tf.retrieval.bundle_files import WARMUP_FILE
from clrec_tf.retrieval.recall import as_good_as
from clrec_tf.retrieval.recall import recall_at_k
from clrec_tf.retrieval.saved_index import load_queries
from clrec_tf.server import bodies
from clrec_tf.server.columns import plain
from clrec_tf.server.engine import Engine
from clrec_tf.server.instances import RETRIEVE

_MOST_SCORES = 5e7  # of the exact search, which takes half a second on one core
_LEAST_QUERIES = 20
_BLOCK = 65_536  # items
_SURE = 3  # standard errors by which a part of the queries may find less than all of them
_SAME = 0.01  # of recall, between two processors


def try_out(engine: Engine) -> None:
    """Tries a loaded version.

    Raises:
      DataError: held-out users get nothing of their own, scores or vectors that are not finite, or much fewer of the
        nearest items than the manifest says.
    """
    files = engine.bundle.manifest["files"]
    for name, check in ((WARMUP_FILE, _try_requests), (os.path.join(INDEX_FOLDER, QUERIES_FILE), _try_recall)):
        if name in files:
            with np.errstate(all="ignore"):  # what is not finite is found in the answers
                check(engine, os.path.join(engine.bundle.path, name))
        else:
            logging.warning("version %d has no %s, so it is served without that try", engine.version, name)


def _try_requests(engine, path):
    """Runs the recorded requests, one batch after the other."""
    for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        columns = {name: plain(tf.make_ndarray(tensor)) for name, tensor in request.inputs.items()}
        signature, size = request.model_spec.signature_name, len(engine.bundle.item_ids)
        limits = bodies.Limits(k=size, listed=2**31, users=2**31, intents=engine.intents, dial=engine.bundle.dial,
                               query=engine.bundle.query)
        jobs = bodies.by_columns(signature, columns, engine.id_type, engine.defaults, limits).jobs
        problems = [problem for problem in (_problem(signature, answer) for answer in engine(jobs)) if problem]
        if problems:  # without the requests: a log must not show users' histories
            raise DataError(f"version {engine.version} was tried on requests that export kept, and gives {problems[0]} "
                            f"in {len(problems)} of {len(jobs)} answers to {signature}: export a sound model again")


def _problem(signature, answer) -> str:
    """What is wrong with an answer to a user who has known clicks, or to an item of the catalogue; or ""."""
    if isinstance(answer, UserError):
        return f"an error ({answer})"
    for name in ("scores", "user_vectors", "weights", "vectors"):
        values = answer.get(name, ())
        values = list(values.values()) if isinstance(values, dict) else values
        if not np.isfinite(np.asarray(values, np.float64)).all():
            return f"{name} that are not finite"
    if signature == RETRIEVE and not answer["ids"]:
        return "no items"
    return "the most popular items, as if it knew none of their clicks" if answer.get("fallback") else ""


def _try_recall(engine, path):
    """Searches for held-out users: as many as an exact search can manage while the server answers requests."""
    bundle, measured = engine.bundle, engine.bundle.manifest["measured"]
    queries, items = load_queries(os.path.dirname(path)), np.flatnonzero(bundle.live)
    count = min(len(queries), max(_LEAST_QUERIES, int(_MOST_SCORES // len(items))))
    sample, k = queries[np.linspace(0, len(queries) - 1, count).astype(int)], min(measured["recall_k"], len(items))
    best = _best_scores(bundle, items, sample, k)
    recall = recall_at_k(bundle.index, _Rows(bundle), sample, k, bundle.live, best[:, -1])
    promised = measured["recall"]
    error = math.sqrt(max(0.0, promised * (1 - promised)) / count) if count < len(queries) else 0.0
    if not recall >= promised - _SAME - _SURE * error:  # NaN compares false
        raise DataError(f"version {engine.version} was tried with {count} vectors of held-out users and has recall@{k} "
                        f"= {recall:.4f}, its manifest says {promised:.4f}: export again, or copy the bundle again")
    if k > 1 and all(as_good_as(scores[-1], scores[0]) for scores in best):
        raise DataError(f"version {engine.version} gives equal scores to the {k} best items of each of {count} "
                        "held-out users, so it tells no item from another: export a sound model again")


class _Rows:
    """Rows of the bundle's vectors, made when asked for: a copy of all would double an updated index's memory."""

    def __init__(self, bundle):
        self._bundle = bundle

    def __getitem__(self, positions):
        return self._bundle.item_vectors(positions)


def _best_scores(bundle, items, queries, k):
    """[N,k] float32, the highest first, of live items; NaN counts as lowest."""
    best = np.full((len(queries), 0), -np.inf, np.float32)
    for start in range(0, len(items), _BLOCK):
        scores = queries @ bundle.item_vectors(items[start:start + _BLOCK]).T
        best = np.concatenate([best, np.nan_to_num(scores, nan=-np.inf)], axis=1)
        best = top_k(best, k)[1]
    return best
