"""Reads what users were shown, clicked or not."""
import os

import numpy as np

from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError


def read_exposures(data_dir: str, manifest: schema_lib.Manifest, flag: str) -> np.ndarray:
    """Impressions of training users, memory-mapped.

    Args:
      data_dir, manifest: the data folder.
      flag: what needs impressions, for the error.

    Returns:
      int32 [N,2] in order of time: item id of the user's last training click before (0: none), item id shown.

    Raises:
      UserError: the data was prepared without impressions.
      DataError: the file is not the one of the manifest.
    """
    if manifest.impressions is None:
        raise UserError(f"{flag} needs impressions, which --data_dir={data_dir} does not hold: prepare the data with "
                        "--impressions=FILE")
    path = os.path.join(data_dir, schema_lib.IMPRESSIONS_FILE)
    schema_lib.check_shard(data_dir, manifest.impressions, "sha256")
    exposures = np.load(path, mmap_mode="r", allow_pickle=False)
    if exposures.shape != (manifest.impressions.records, 2):
        raise DataError(f"{path} has shape {exposures.shape}, the manifest says {manifest.impressions.records} rows of "
                        "2: prepare the data again")
    return exposures
