"""Whether the parts of a version folder belong together."""
from typing import Optional

import numpy as np

from clrec_tf.errors import DataError


def check_together(folder: str, hashes: dict[str, str], sizes: dict[str, int], towers: dict[str, int],
                   titles: Optional[np.ndarray]) -> None:
    """`DataError` where parts are of different checkpoints or catalogues.

    Args:
      folder: for messages.
      hashes: part -> hash of its checkpoint.
      sizes: part -> items that it has; with an `index`, and `ids`.
      towers: part -> items of the tower; those that were inserted later are not among them.
      titles: of the items, or None.
    """
    if len(set(hashes.values())) > 1:
        raise DataError(f"{folder} mixes parts of different checkpoints ("
                        + ", ".join(f"{part} {value[:12]}" for part, value in hashes.items()) + "): export again")
    if len(set(sizes.values())) > 1 or len(set(towers.values())) > 1 or towers["tower"] > sizes["index"] or (
            titles is not None and len(titles) != sizes["ids"]):
        raise DataError(f"{folder} mixes parts of different catalogues (items: {sizes | towers}): export again")
