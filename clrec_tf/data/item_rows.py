"""The catalogue by item id, with the rows of padding and of hash buckets: what objectives look candidates up in."""
import dataclasses

import numpy as np

from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data import schema as schema_lib


@dataclasses.dataclass(frozen=True)
class Items:
    """What is known of every item row.

    Attributes:
      rows: int64 [item_rows,C], by id; 0 and hash buckets have no features.
      counts: int64 [item_rows], training clicks; of hash buckets 0.
    """
    rows: np.ndarray
    counts: np.ndarray


def read_items(data_dir: str, schema: schema_lib.Schema, manifest: schema_lib.Manifest, width: int) -> Items:
    """Reads the catalogue; `width`: columns C that the model reads."""
    catalogue = read_catalogue(data_dir, schema, manifest)
    rows = np.zeros((schema.item_rows, width), np.int64)
    rows[:, 0] = np.arange(schema.item_rows)
    rows[1:schema.num_items + 1] = catalogue.item_rows[:, :width]
    counts = np.zeros(schema.item_rows, np.int64)
    counts[1:schema.num_items + 1] = catalogue.counts
    return Items(rows, counts)
