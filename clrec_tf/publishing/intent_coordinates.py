"""What items of a bundle have between their vector and their popularity, where the model has several intents: the
direction of the item's intent, and 1 (see `models.multi_clrec`). New items are given it here."""
import functools
from typing import Sequence

import numpy as np

from clrec_tf.retrieval.bundle import Bundle

_SLACK = 1e-4


class IntentCoordinates:
    """Those of a bundle; of a model of one vector per user they are empty.

    Args:
      bundle: loaded.
    """

    def __init__(self, bundle: Bundle):
        begin, width = bundle.manifest["dimension"], bundle.manifest["intent_coordinates"]
        self._bundle, self._width, self._columns = bundle, width, slice(begin, begin + width)

    def of_items(self, positions: Sequence[int]) -> np.ndarray:
        """Of items by position [N], deleted ones too: float64 [N,width]."""
        return self._bundle.item_vectors(np.asarray(positions))[:, self._columns].astype(np.float64)

    def commonest(self, positions: Sequence[int]) -> np.ndarray:
        """Those that most of some items have, of several the first's: float64 [width]."""
        rows = self.of_items(positions)
        return rows[int(np.argmax((rows[:, None] == rows[None]).all(axis=2).sum(axis=1)))]

    def of_nearest(self, vector: np.ndarray) -> np.ndarray:
        """Those of the item whose vector is the nearest to a vector [d]: float64 [width]."""
        if not self._width:
            return np.zeros(0)
        scores = self._bundle.item_vectors()[:, :self._columns.start] @ vector.astype(np.float32)
        return self.of_items([int(np.argmax(scores))])[0]

    def has(self, values: np.ndarray) -> bool:
        """Whether any item has these [width]."""
        return not self._width or bool(np.isclose(self._kinds, values, atol=_SLACK).all(axis=1).any())

    @functools.cached_property
    def _kinds(self):
        return np.unique(self._bundle.item_vectors()[:, self._columns], axis=0)
