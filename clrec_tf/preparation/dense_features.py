"""Dense vectors of items, by original item id."""
import numpy as np
import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.tabular_files import frames
from clrec_tf.tabular_files import values


def read_dense(path: str) -> tuple[list[str], np.ndarray]:
    """--dense_features -> original ids [N] and float32 vectors [N, width]."""
    try:
        with frames.readable(path):
            if path.endswith(".npz"):
                with np.load(path, allow_pickle=False) as arrays:
                    ids, vectors = pl.Series(arrays["ids"].tolist()), arrays["vectors"]
            else:
                frame = pl.read_parquet(path, columns=["item_id", "vector"], glob=False)
                ids, vectors = frame["item_id"], np.array(frame["vector"].to_list())
        vectors = np.asarray(vectors, np.float32)
        values.check_exact(ids.to_frame("ids").lazy(), "ids", path)
        ids = values.whole_numbers(values.texts(ids, ()), "item", path).to_list()
    except (KeyError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise DataError(f"--dense_features={path}: {error}; give .npz with `ids` and `vectors`, or Parquet with "
                        "`item_id` and `vector`, each vector as wide as the others") from error
    if vectors.ndim != 2 or len(vectors) != len(ids) or vectors.shape[1] == 0:
        raise DataError(f"--dense_features={path}: {len(ids)} ids but vectors of shape {vectors.shape}: give one row "
                        "per id")
    if not np.isfinite(vectors).all():
        raise DataError(f"--dense_features={path} has NaN or infinite values: remove them")
    if len(set(ids)) != len(ids):
        raise DataError(f"--dense_features={path} has an item id twice: keep one row per item")
    return ids, vectors
