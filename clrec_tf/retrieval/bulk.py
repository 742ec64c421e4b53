"""Bulk results, written batch by batch and shown whole or not at all."""
import contextlib
import json
import os
import tempfile
from typing import Iterable
from typing import Iterator
from typing import Sequence

import numpy as np
import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.retrieval.bundle import Bundle
from clrec_tf.retrieval.retriever import Retrieved
from clrec_tf.retrieval.search_vectors import Intents
from clrec_tf.retrieval.user_requests import UserRequest
from clrec_tf.system.atomic import new_file


def batches(requests: Iterable[UserRequest], size: int) -> Iterator[list[UserRequest]]:
    """Lists of `size` users; user ids are there and of one type, or `DataError` says which user differs."""
    batch, first = [], None
    for number, request in enumerate(requests, 1):
        first = request if first is None else first
        if request.user_id is None:
            raise DataError(f"user {number} of --users has no user_id: bulk results need one each")
        if type(request.user_id) is not type(first.user_id):
            raise DataError(f"user {number} of --users has the user_id {request.user_id!r}, the first has "
                            f"{first.user_id!r}: user ids must be all integers or all strings")
        batch.append(request)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
    if first is None:
        raise DataError("--users holds no user")


@contextlib.contextmanager
def results_writer(path: str, id_type: str, titles: bool, intents: bool = False):
    """Yields a function that takes lists of `Retrieved`; the file appears when the block ends well.

    Args:
      path: .jsonl, one object per user, or .parquet with the columns user_id, ids, titles, scores, intents, weights,
        unknown, fallback; a user's weights are a list of (intent, weight).
      id_type: "int" or "string", of item ids.
      titles: whether the catalogue has titles.
      intents: whether the model has several intents.
    """
    with new_file(path, f"output={path}") as temporary:
        if path.endswith(".jsonl"):
            with open(temporary, "w", encoding="utf-8") as file:
                yield lambda results: file.writelines(
                    json.dumps(result.entries(), ensure_ascii=False) + "\n" for result in results)
                file.flush()
            return
        schema = _columns(id_type, titles, intents)
        with tempfile.TemporaryDirectory(dir=os.path.dirname(temporary), prefix=os.path.basename(temporary)) as parts:
            written = []

            def write(results: Sequence[Retrieved]):
                columns = {name: pl.Series(name, [_cell(result, name) for result in results], dtype)
                           for name, dtype in schema.items()}
                frame = pl.DataFrame({"user_id": [result.user_id for result in results]} | columns)
                written.append(os.path.join(parts, f"{len(written):08d}.parquet"))
                frame.write_parquet(written[-1])
            yield write
            pl.scan_parquet(written, glob=False).sink_parquet(temporary)


def _columns(id_type, titles, intents):
    """Types of the columns beside user_id, in order."""
    items = pl.List(pl.Int64 if id_type == "int" else pl.String)
    weights = pl.List(pl.Struct({"intent": pl.Int32, "weight": pl.Float32}))
    return ({"ids": items} | ({"titles": pl.List(pl.String)} if titles else {}) | {"scores": pl.List(pl.Float32)}
            | ({"intents": pl.List(pl.Int32), "weights": weights} if intents else {})
            | {"unknown": items, "fallback": pl.Boolean})


def _cell(result, name):
    if name == "weights" and result.weights is not None:
        return [{"intent": intent, "weight": weight} for intent, weight in result.weights.items()]
    return getattr(result, name)


def write_embeddings(path: str, user_ids: Sequence, users: Intents, bundle: Bundle, several: bool = False) -> None:
    """Writes an .npz of arrays; no pickle.

    user_ids [U], user_vectors [U,d], item_ids [V], item_live [V], false of deleted items, and item_vectors [V,d]. With
    `several` intents user_vectors is [U,K,d], and there are user_weights and user_intents [U,K], the numbers.
    """
    arrays = dict(user_vectors=users.vectors, user_weights=users.weights, user_intents=users.numbers) if several else (
        dict(user_vectors=users.vectors[:, 0]))
    with new_file(path, f"embeddings={path}") as temporary, open(temporary, "wb") as file:
        np.savez(file, user_ids=np.array(user_ids, None if len(user_ids) else np.int64), item_ids=bundle.item_ids,
                 item_live=bundle.live, item_vectors=bundle.item_vectors(), **arrays)
        file.flush()
