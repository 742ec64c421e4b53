"""Item vectors with ids, titles and attributes as a file that vector databases take."""
import json

import numpy as np
import polars as pl

from clrec_tf.retrieval.bundle import Bundle
from clrec_tf.system.atomic import new_file

_BLOCK = 20_000  # items written at a time


def write_vectors(path: str, bundle: Bundle) -> int:
    """Writes the items that can be retrieved, the most popular first; returns how many.

    Each has `id`, `vector`, `title` if the catalogue has titles, and `attributes` if the bundle has any, without those
    that the item lacks. Vectors are those of the index, D numbers: their inner product with a user's vector of
    `serving_default` is the score.

    Args:
      path: .jsonl, one object a line, or .parquet, with a column for each entry.
      bundle: with the vectors.

    Raises:
      UserError: the file cannot be written.
    """
    positions = np.flatnonzero(bundle.live)
    with new_file(path, f"vectors={path}") as temporary:
        if path.endswith(".parquet"):
            _table(bundle, positions).write_parquet(temporary, compression="zstd")
        else:
            with open(temporary, "w", encoding="utf-8") as file:
                for start in range(0, len(positions), _BLOCK):
                    file.writelines(json.dumps(row, ensure_ascii=False) + "\n"
                                    for row in _rows(bundle, positions[start:start + _BLOCK]))
                file.flush()
    return len(positions)


def _table(bundle, positions) -> pl.DataFrame:
    vectors = bundle.item_vectors(positions)
    columns = {"id": bundle.item_ids[positions],
               "vector": pl.Series(vectors, dtype=pl.Array(pl.Float32, vectors.shape[1])).arr.to_list()}
    if bundle.titles is not None:
        columns["title"] = pl.Series(bundle.titles[positions].tolist(), dtype=pl.String)
    if bundle.attributes.names:
        columns["attributes"] = bundle.attributes.frame[positions].to_struct("attributes")
    return pl.DataFrame(columns)


def _rows(bundle, positions):
    attributes = bundle.attributes.values_of(positions)
    for row, (item, vector) in enumerate(zip(bundle.item_ids[positions].tolist(), bundle.item_vectors(positions))):
        # The shortest text that gives the same 32 bits back.
        entry = {"id": item, "vector": [float(str(number)) for number in vector]}
        if bundle.titles is not None:
            entry["title"] = bundle.titles[positions[row]]
        yield entry | ({"attributes": attributes[row]} if bundle.attributes.names else {})
