"""The counts of which a trained model's dial is made: of what its queue held."""
import numpy as np

from clrec_tf.evaluation.examples import Catalogue
from clrec_tf.training.objectives import read_exposures
from clrec_tf.training.restore import Trained


def dial_counts(trained: Trained, catalogue: Catalogue, data_dir: str) -> tuple[np.ndarray, str]:
    """(int [V] by item, what was counted): impressions where the queue was fed with them, else training clicks.

    Raises:
      UserError: impressions that --data_dir does not hold.
    """
    if trained.run_config.get("loss", {}).get("negatives") != "impressions":
        return catalogue.counts, "clicks"
    shown = np.array(read_exposures(data_dir, trained.manifest, "a model of --negatives=impressions")[:, 1])
    # Hash buckets, which come behind the items, are not retrieved.
    return np.bincount(shown, minlength=len(catalogue.counts) + 1)[1:len(catalogue.counts) + 1], "impressions"
