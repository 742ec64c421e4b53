"""What export publishes and serving loads: the query tower, the index and the ids, from one checkpoint.

A version folder holds::

    saved_model.pb, variables/, assets/    the tower (see `publishing.saved_model`), loadable by any TensorFlow server
    index/                                 the index over item vectors (see `saved_index`)
    item_ids.npy                           original ids [V], int64 or fixed-width text, by position
    titles.json                            titles [V] by position, if the catalogue has any
    attributes.parquet                     of items by position, by which requests are filtered, if there are any
    query_values.json                      values of features of users and requests, if the tower reads any
    item_encoder/                          items from features (see `publishing.item_encoder`), where the model can
    history_rows.npz                       of updates: what histories read of items (see `history_rows`)
    manifest.json                          facts, and size and sha256 of every file above; written last

A version made by an update (see `updated_index`) has the tower of its export, whose own `retrieve` and `encode_items`
know the exported catalogue only. Inserted items have the last positions; deleted items keep theirs.
"""
import dataclasses
import functools
import json
import os
from typing import Any, Optional, Sequence

import numpy as np
import tensorflow as tf

from clrec_tf.errors import DataError
from clrec_tf.retrieval.attributes import Attributes
from clrec_tf.retrieval.attributes import load_attributes
from clrec_tf.retrieval.bundle_dial import BundleDial
from clrec_tf.retrieval.bundle_files import IDS_FILE
from clrec_tf.retrieval.bundle_files import INDEX_FOLDER
from clrec_tf.retrieval.bundle_files import MANIFEST_FILE
from clrec_tf.retrieval.bundle_files import TITLES_FILE
from clrec_tf.retrieval.bundle_parts import check_together
from clrec_tf.retrieval.export_folder import complete_versions
from clrec_tf.retrieval.history_rows import HistoryRows
from clrec_tf.retrieval.history_rows import load_history_rows
from clrec_tf.retrieval.index import Index
from clrec_tf.retrieval.manifest import check_files
from clrec_tf.retrieval.manifest import read_manifest
from clrec_tf.retrieval.query_values import QueryValues
from clrec_tf.retrieval.saved_index import load_index
from clrec_tf.retrieval.search_vectors import Intents
from clrec_tf.retrieval.search_vectors import served
from clrec_tf.system.pattern_names import readable_name


@dataclasses.dataclass(frozen=True)
class Bundle:
    """A loaded version.

    Attributes:
      path: its folder.
      manifest: the facts of manifest.json.
      tower: the loaded SavedModel.
      index: over the items' vectors.
      item_ids: [V] original ids by position, int64 or str; the most popular first, inserted items at the end.
      titles: [V] str by position, or None.
      query: what the tower reads beside clicked items and times.
      history_rows: what histories read of inserted and updated items.
      attributes: of the items, by which requests are filtered.
    """
    path: str
    manifest: dict
    tower: Any
    index: Index
    item_ids: np.ndarray
    titles: Optional[np.ndarray]
    history_rows: HistoryRows
    query: QueryValues = QueryValues()
    attributes: Attributes = Attributes()

    @functools.cached_property
    def dial(self) -> BundleDial:
        """What popularities are offered."""
        return BundleDial.from_manifest(self.manifest)

    @property
    def width(self) -> int:
        """Numbers of a vector of the index: d, and the coordinates of intents and of the dial where they are there."""
        return self.manifest["dimension"] + self.manifest["intent_coordinates"] + self.dial.there

    def user_intents(self, history, timestamps=None, request_time=None, dwell=None, count: int = 0,
                     popularity: float = 0.0, **beside) -> Intents:
        """`serving_default`.

        Args:
          history: [B,L] original ids.
          timestamps, request_time: [B,L] and [B] seconds, ≤ 0 unknown; needed if the model uses time.
          dwell: [B,L] seconds, < 0 unknown; needed if the model uses dwell times.
          count: K, the heaviest intents given (0: as many as the manifest says).
          popularity: α of all users.
          **beside: `events` and features of users and requests by name, as arrays; needed if the model reads them.
        """
        inputs = {"history": np.asarray(history)}
        if self.dial.there:
            inputs["popularity"] = np.full(len(inputs["history"]), popularity, np.float32)
        if self.manifest["uses_time"]:
            inputs |= dict(timestamps=np.asarray(timestamps, np.int64), request_time=np.asarray(request_time, np.int64))
        if self.manifest["uses_dwell"]:
            inputs["dwell"] = np.asarray(dwell, np.int64)
        inputs |= {name: np.asarray(value) for name, value in beside.items()}
        intents = self.manifest["intents"]
        return served(self.tower.signatures["serving_default"], inputs, intents,
                      count or self.manifest["served_intents"])

    def recent_intents(self, positions, timestamps=None, request_time=None, dwell=None, count: int = 0,
                       popularity=0.0, events=None, query=None) -> Intents:
        """The same of histories looked up before: the latest known clicks alone, for which the tower does far less.

        Args:
          positions: int64 [B,T], see `both_positions`; −1 for padding, at the end.
          timestamps, request_time, dwell, count: as of `user_intents`, [B,T] and [B].
          popularity: α, one for all or [B].
          events, query: int64 [B,T] and [B,W], numbers as `query` has them; needed if the model reads them.
        """
        inputs = [tf.constant(positions, tf.int64)]
        if self.dial.there:
            inputs.append(tf.constant(np.broadcast_to(np.asarray(popularity, np.float32), len(positions))))
        if self.manifest["uses_time"]:
            inputs.append(tf.constant(timestamps, tf.int64))
        if self.manifest["uses_dwell"]:
            inputs.append(tf.constant(dwell, tf.int64))
        if self.manifest["uses_time"]:
            inputs.append(tf.constant(request_time, tf.int64))
        if self.manifest["uses_events"]:
            inputs.append(tf.constant(events, tf.int64))
        if self.query.features:
            inputs.append(tf.constant(query, tf.int64))
        outputs = self._recent_inserted(*inputs) if self.history_rows.beyond(positions) else self._recent(*inputs)
        count = count or self.manifest["served_intents"]
        return Intents(*(part.numpy()[:, :count] for part in outputs))

    @functools.cached_property
    def _recent(self):
        return self.tower.recent.concrete_functions[0]

    @functools.cached_property
    def _recent_inserted(self):
        function = self.tower.recent_inserted.concrete_functions[0]
        return functools.partial(function, tf.constant(self.history_rows.vectors))

    @property
    def reads_inserted(self) -> bool:
        """Whether histories can read rows beside the tower's own; bundles exported before that was possible cannot."""
        return hasattr(self.tower, "recent_inserted")

    def item_vectors(self, positions: Optional[np.ndarray] = None) -> np.ndarray:
        """float32 [V,d+1] by position, as scores compare them, not to be written to; or [N,d+1] of some positions [N].

        All are the memory of the index itself, or where it was updated one copy; some never need a copy of all.
        """
        if positions is None:
            return self._item_vectors
        return self.index.vectors_at(positions)

    @functools.cached_property
    def _item_vectors(self):
        return self.index.vectors

    @functools.cached_property
    def live(self) -> np.ndarray:
        """bool [V], whether the item of each position can be retrieved; deleted ones cannot."""
        return self.index.live

    @functools.cached_property
    def counts(self) -> dict[str, int]:
        """`items` that can be retrieved; `fresh`, those of them that were inserted; and `withdrawn`, the deleted ones.

        The names are those of the server's answers and of index.json.
        """
        items = int(np.count_nonzero(self.live))
        inserted = int(np.count_nonzero(self.live[self.manifest["tower_items"]:]))
        return dict(items=items, fresh=inserted, withdrawn=len(self.live) - items)

    @functools.cached_property
    def _sorted_ids(self):
        order = np.argsort(self.item_ids, kind="stable")
        return order, self.item_ids[order]

    def id_array(self, ids: Sequence) -> np.ndarray:
        """Ids as sent -> array [N] for `positions`; "" in place of text that cannot be an id of this bundle.

        One long text would widen all rows to its length, and NumPy drops zero bytes at the end of text.
        """
        if self.manifest["id_type"] == "int":
            return np.array(ids, np.int64)
        longest = self.item_ids.dtype.itemsize // 4  # characters
        return np.array([item if len(item) <= longest and not item.endswith("\0") else "" for item in ids], str)

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Original ids [N] -> int64 [N] positions of items that can be retrieved; −1 where unknown or deleted."""
        return self.both_positions(ids)[0]

    def both_positions(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`positions` of ids [N], and the number of what histories read of each, see `HistoryRows`: −1 for nothing.

        Deleted items count in histories, since what a user clicked says who the user is. Inserted ones do unless they
        were inserted by a bare vector, of which the query tower can read nothing.
        """
        places = self.all_positions(ids)
        live = (places >= 0) & self.live[places]
        return np.where(live, places, -1), self.history_rows.numbers(places)

    def all_positions(self, ids: np.ndarray) -> np.ndarray:
        """Original ids [N] -> int64 [N] positions, deleted or not; −1 where unknown."""
        order, ascending = self._sorted_ids
        places = np.minimum(np.searchsorted(ascending, ids), len(ascending) - 1)
        return np.where(ascending[places] == ids, order[places], -1)


def load_bundle(path: str) -> Bundle:
    """Loads and checks a bundle.

    Args:
      path: a version folder, or a folder of versions, of which the newest complete one is taken.

    Raises:
      DataError: no bundle there, a file that is missing or differs from the manifest, or parts that do not belong
        together. A damaged newest version is an error; an older one is never served in its place unasked.
    """
    folder = path
    if not os.path.isfile(os.path.join(path, MANIFEST_FILE)):
        versions = complete_versions(path)
        if not versions:
            raise DataError(f"--export_dir={path} holds no complete bundle: run python -m clrec_tf.export first")
        folder = os.path.join(path, str(versions[-1]))
    manifest = read_manifest(folder)
    check_files(folder, manifest["files"])
    try:
        item_ids = np.load(os.path.join(folder, IDS_FILE), allow_pickle=False)
        titles = None
        if manifest["titles"]:
            with open(os.path.join(folder, TITLES_FILE), encoding="utf-8") as file:
                titles = np.array(json.load(file), object)
        with readable_name(folder) as readable:
            tower = tf.saved_model.load(readable)
        tower_hash = tower.checkpoint_hash.numpy().decode()
    except (OSError, ValueError, KeyError, AttributeError, RecursionError, tf.errors.OpError) as error:
        raise DataError(f"{folder} cannot be loaded ({error}): export again") from error
    index, index_hash = load_index(os.path.join(folder, INDEX_FOLDER))
    check_together(folder, dict(manifest=manifest["checkpoint_hash"], tower=tower_hash, index=index_hash),
                   dict(manifest=manifest["items"], ids=len(item_ids), index=index.size),
                   dict(tower=tower.items.shape[0], manifest_tower=manifest["tower_items"]), titles)
    history_rows = load_history_rows(folder, manifest, index.size, tower.items.shape[1])
    bundle = Bundle(folder, manifest, tower, index, item_ids, titles, history_rows, QueryValues.load(folder),
                    load_attributes(folder, manifest, index.size))
    bundle.dial  # pylint: disable=pointless-statement  (refuses a damaged one)
    return bundle
