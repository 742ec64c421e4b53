"""`clrec.load`: an exported model, which recommends items, and gives vectors and similar items."""
import itertools
import os
import typing
from typing import Any, Optional, Sequence, Union
import warnings

import numpy as np
import polars as pl

from clrec_tf.api import flags
from clrec_tf.api import stores
from clrec_tf.api import tables
from clrec_tf.api.histories import plain
from clrec_tf.api.histories import user_requests
from clrec_tf.errors import UserError
from clrec_tf.retrieval.attributes import ItemFilter
from clrec_tf.retrieval.bundle import Bundle
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.export_folder import checked_export_dir
from clrec_tf.retrieval.retriever import Retrieved
from clrec_tf.retrieval.retriever import Retriever
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.search_vectors import concatenated
from clrec_tf.retrieval.similar_items import similar_items
from clrec_tf.retrieval.stored_versions import reads_bundle
from clrec_tf.retrieval.user_requests import checked_item
from clrec_tf.settings.serving import RetrieveConfig
from clrec_tf.system.local_path import local_path


class Model:
    """A bundle in memory.

    Histories may be given as `histories.user_requests` says: lists of item ids, a dict of them by user, or a frame.

    Args:
      bundle: loaded.
    """

    def __init__(self, bundle: Bundle):
        self.bundle = bundle

    @property
    def item_ids(self) -> np.ndarray:
        """[V] original ids, int64 or str; the most clicked first, inserted items at the end."""
        return self.bundle.item_ids

    @property
    def live(self) -> np.ndarray:
        """bool [V] in the order of `item_ids`: whether an item can be recommended. One that `update_index` deleted
        cannot, and is there all the same, since histories and similar items read it."""
        return self.bundle.live

    @property
    def item_vectors(self) -> np.ndarray:
        """float32 [V,W] in the order of `item_ids`: a user's scores are their products with `user_vectors`.

        Behind the d numbers of the model are those of intents, where it has several, and last the dial's.
        """
        return self.bundle.item_vectors()

    def user_vectors(self, histories: Any, popularity: Optional[float] = None, request_time: Optional[int] = None
                     ) -> np.ndarray:
        """float32 [N,W], of models with several intents [N,K,W], the heaviest first; zero where no item is known.

        Args:
          histories, popularity, request_time: as of `recommend`.
        """
        retriever = Retriever(self.bundle, _options(popularity=popularity))
        parts = [retriever.encode(batch) for batch in self._batches(histories, request_time)]
        vectors = concatenated(parts, retriever.intents, self.bundle.width).vectors
        return vectors if retriever.several else vectors[:, 0]

    def recommend(self, histories: Any, k: int = RetrieveConfig.k, popularity: Optional[float] = None,
                  exclude_seen: bool = RetrieveConfig.exclude_seen, intents: int = RetrieveConfig.intents,
                  merge: str = RetrieveConfig.merge, request_time: Optional[int] = None,
                  filter: Optional[dict] = None  # pylint: disable=redefined-builtin
                  ) -> Union[pl.DataFrame, Any]:
        """The k best items of each user, as ``python -m clrec_tf.retrieve`` finds them.

        Args:
          histories: of N users.
          k: items for each; fewer come where no more are left.
          popularity: α of the dial, 0 as trained; None: the bundle's default.
          exclude_seen: leave the history's items out.
          intents, merge: of models with several intents, see the flags.
          request_time: seconds, for models that read times; None: times of clicks only order them.
          filter: what items must have, as requests to the service say it, such as `{"price": {"max": 20}}`.

        Returns:
          A row per user and item, of pandas if `histories` is, else of polars: `user`, `item`, `score`, `rank` from 1,
          `intent` that brought it (null with a single one) and, where the bundle has them, `title`. A user without a
          known item is given the most popular ones at score 0, of which a warning tells.

        Raises:
          UserError: an argument out of bounds. DataError: a history that cannot be read.
        """
        retriever = Retriever(self.bundle, _options(
            k=k, exclude_seen=exclude_seen, intents=intents, merge=merge, popularity=popularity,
            passing=self._passing(filter)))
        results = [result for batch in self._batches(histories, request_time) for result in retriever(batch)[0]]
        unknown = [result.user_id for result in results if result.fallback]
        if unknown:
            warnings.warn(f"of {len(unknown)} of {len(results)} users, such as {unknown[0]!r}, no item of the history "
                          "is known: they are given the most popular items", stacklevel=2)
        return tables.of_kind(self._frame(results), tables.is_pandas(histories))

    def similar_items(self, item: Union[int, str], k: int = RetrieveConfig.k,
                      filter: Optional[dict] = None  # pylint: disable=redefined-builtin
                      ) -> pl.DataFrame:
        """The k items most similar to an item, as the service finds them: by the cosine of their vectors, or by the
        inner product of a model that compares by it; whatever their popularity.

        Args:
          item: its id.
          k, filter: as of `recommend`.

        Returns:
          A row per item: `item`, `score`, `rank` from 1 and, where the bundle has them, `title`.

        Raises:
          UserError: k is out of bounds. DataError: the item is not in the bundle.
        """
        options = _options(k=k, passing=self._passing(filter))
        asked = checked_item(plain(item), self.bundle.manifest["id_type"], "similar_items")
        found = similar_items(Retriever(self.bundle, options), [asked], [options])
        return self._frame(found).drop("user", "intent")

    def _passing(self, given):
        """A filter, checked."""
        return self.bundle.attributes.checked(given, "filter") or ()

    @property
    def _item_type(self):
        return pl.Int64 if self.bundle.manifest["id_type"] == "int" else pl.String

    def _batches(self, histories, request_time):
        """Lists of checked users."""
        users = user_requests(histories, self.bundle.manifest["id_type"], self.bundle.query, request_time)
        return [users[start:start + RetrieveConfig.retrieve_batch]
                for start in range(0, len(users), RetrieveConfig.retrieve_batch)]

    def _frame(self, results: Sequence[Retrieved]) -> pl.DataFrame:
        """A row per user and item."""
        joined = lambda lists: list(itertools.chain.from_iterable(lists))
        lengths = [len(result.ids) for result in results]
        rows = np.repeat(np.arange(len(results)), lengths)
        users = pl.Series("user", [result.user_id for result in results], None if results else pl.Int64)
        columns = [
            users.gather(rows),
            pl.Series("item", joined(result.ids for result in results), self._item_type),
            pl.Series("score", joined(result.scores for result in results), pl.Float64),
            pl.Series("rank", joined(range(1, length + 1) for length in lengths), pl.Int64),
            pl.Series("intent", joined(result.intents or [None] * len(result.ids) for result in results), pl.Int64)]
        if self.bundle.titles is not None:
            columns.append(pl.Series("title", joined(result.titles for result in results), pl.String))
        return pl.DataFrame(columns)


def _options(popularity: Optional[float] = None, passing: ItemFilter = (), **settings) -> SearchOptions:
    """Options of a search; `UserError` where a value is of another type or out of bounds."""
    hints = typing.get_type_hints(RetrieveConfig)
    settings = {name: flags.checked(name, value, hints[name]) for name, value in settings.items()}
    RetrieveConfig(**settings)  # refuses what is out of bounds
    return SearchOptions(**settings, passing=passing, popularity=None if popularity is None else flags.checked(
        "popularity", popularity, float))


def load(export_dir: Union[str, os.PathLike]) -> Model:
    """Loads what `Run.export` or ``python -m clrec_tf.export`` has published.

    A bundle is code, which TensorFlow runs: load only bundles of those whom you would let run programs.

    Args:
      export_dir: a version's folder, or the folder of versions, of which the newest complete one is taken; on this
        machine or in a store, such as "s3://shop/export".

    Raises:
      UserError: no path, or a store that fails. DataError: no bundle there, or a damaged one.
    """
    if not isinstance(export_dir, (str, os.PathLike)):
        raise UserError(f"export_dir is of type {type(export_dir).__name__}: give the folder that Run.export returned, "
                        "or one that python -m clrec_tf.export has published in")
    with stores.opened(dict(export_dir=os.fspath(export_dir)), dict(export_dir=reads_bundle)) as local:
        folder = local_path(local["export_dir"], "export_dir")
        return Model(load_bundle(checked_export_dir(folder, may_be_version=True)))
