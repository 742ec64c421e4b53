"""Items to insert and update, as a file said them."""
import dataclasses
from typing import Mapping
from typing import Optional

import numpy as np

from clrec_tf.retrieval.bundle import Bundle


@dataclasses.dataclass(frozen=True)
class Upserts:
    """F items to insert or update.

    Attributes:
      ids: [F] original ids, distinct, of the catalogue's type.
      vectors: float32 [F,D], as the index holds them: with the dial's coordinate, if the bundle has a dial.
      titles: of each, or None where none is given.
      normalized: how many vectors of the file had to be normalized.
      guessed: how many inserted items came without a count, so that p̂ takes them for clicked, or shown, by nobody.
      read: of items of the file, by their place in it from 0, what histories read of them from now on: float32 [W].
      attributes: of each, what the file says of them, see `given_attributes`.
    """
    ids: np.ndarray
    vectors: np.ndarray
    titles: list[Optional[str]]
    normalized: int = 0
    guessed: int = 0
    read: Mapping[int, np.ndarray] = dataclasses.field(default_factory=dict)
    attributes: tuple[dict, ...] = ()

    @classmethod
    def none(cls, bundle: Bundle) -> "Upserts":
        """No item."""
        return cls(bundle.item_ids[:0], np.empty((0, bundle.width), np.float32), [])
