"""Items similar to an item, by the vectors that users are compared with."""
import dataclasses
from typing import Optional
from typing import Sequence

import numpy as np

from clrec_tf.errors import DataError
from clrec_tf.retrieval.bundle import Bundle
from clrec_tf.retrieval.retriever import Retrieved
from clrec_tf.retrieval.retriever import Retriever
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.search_vectors import Intents
from clrec_tf.retrieval.user_requests import UserRequest


def item_queries(bundle: Bundle, positions: np.ndarray, popularity: np.ndarray) -> np.ndarray:
    """What is searched with for items: their own vectors, with α in the place of the dial's coordinate.

    Coordinates of intents are 0: an item is compared with all others, whatever intent they belong to.

    Args:
      bundle: that has the items.
      positions: int [N], deleted ones too.
      popularity: float [N], α; 0 compares the vectors alone.

    Returns:
      float32 [N,D], D = `bundle.width`.
    """
    queries = np.array(bundle.item_vectors(np.asarray(positions)), np.float32)
    begin = bundle.manifest["dimension"]
    queries[:, begin:] = 0
    if bundle.dial.there:
        queries[:, -1] = popularity
    return queries


def similar_items(retriever: Retriever, ids: Sequence, options: Optional[Sequence[SearchOptions]] = None
                  ) -> list[Retrieved]:
    """For each of N items the most similar others.

    The score is the inner product of the two vectors, the cosine of a model that compares by it, plus the dial's part
    at a popularity other than 0, which is the default here.

    Args:
      retriever: of the bundle.
      ids: original ids, deleted ones too.
      options: of each search; `exclude`, `allow`, `passing`, `k`, `titles` and `popularity` count.

    Raises:
      DataError: the bundle does not have an item.
    """
    bundle = retriever.bundle
    options = [SearchOptions(retriever.defaults.k)] * len(ids) if options is None else options
    positions = bundle.all_positions(bundle.id_array(list(ids)))
    if len(ids) and positions.min() < 0:
        raise DataError(f"item {ids[int(np.argmin(positions))]!r} is not known: give an id of this bundle")
    options = [dataclasses.replace(asked, exclude_seen=True, intents=1, merge="maximum", popularity=asked.popularity or
                                   bundle.dial.checked(0.0 if _offers_0(bundle) else None, "similar items"))
               for asked in options]
    plans = retriever.plans([UserRequest(None, [item]) for item in ids], options)
    queries = item_queries(bundle, positions, np.array([asked.popularity for asked in options]))
    ones = np.ones((len(ids), 1))
    searched = Intents(queries[:, None], ones.astype(np.float32), ones.astype(np.int32) - 1)
    return [Retrieved(None, *retriever.named(best, scores, asked.titles), [])
            for (best, scores, _), asked in zip(retriever.search(searched, plans), options)]


def _offers_0(bundle) -> bool:
    return not bundle.dial.there or bundle.dial.lowest <= 0 <= bundle.dial.highest
