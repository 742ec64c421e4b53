"""The dial of a trained model: of what its p̂ is counted, and the popularity that validation users choose."""
import dataclasses
from typing import Optional
from typing import Sequence

from absl import logging
import numpy as np

from clrec_tf.config import Config
from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.exposures import read_exposures
from clrec_tf.data.features import Feature
from clrec_tf.data.frequencies import counts_by_feature
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data.schema import Manifest
from clrec_tf.errors import DataError
from clrec_tf.evaluation import curve
from clrec_tf.models.dial import item_coordinate
from clrec_tf.models.encode import Encoder
from clrec_tf.models.trained import Trained


@dataclasses.dataclass(frozen=True)
class Counted:
    """Of what p̂ is made.

    Attributes:
      counts: int [V], by item.
      source: "clicks" or "impressions".
      coordinate: float32 [V], see `models.dial.item_coordinate`.
    """
    counts: np.ndarray
    source: str
    coordinate: np.ndarray


def counted(loss: dict, catalogue: Catalogue, manifest: Manifest, data_dir: str, temperature: float,
            described: Optional[Sequence[Feature]] = None) -> Counted:
    """Counts what a model's optimum is divided by: impressions where its queue, or the first stage of ipw, was fed
    with them, else training clicks. Cold items that a model describes count as is to be expected of their features.

    Args:
      loss: settings of the loss by name, as config.json has them.
      catalogue, manifest: of --data_dir.
      data_dir: the folder.
      temperature: ρ.
      described: features of the item rows, where the model was trained with --id_dropout.

    Raises:
      UserError: impressions that --data_dir does not hold.
    """
    counts, source = catalogue.counts, "clicks"
    if loss.get("negatives") == "impressions" or (
            loss.get("loss") == "ipw" and loss.get("propensity_data") == "impressions"):
        shown = np.array(read_exposures(data_dir, manifest, "a model trained with impressions")[:, 1])
        # Hash buckets, which come behind the items, are not retrieved.
        counts, source = np.bincount(shown, minlength=len(counts) + 1)[1:len(counts) + 1], "impressions"
    if described is not None and catalogue.cold is not None:
        expected = np.rint(counts_by_feature(counts, catalogue.item_rows, described)).astype(counts.dtype)
        counts = np.where(catalogue.cold & (counts == 0), expected, counts)
    return Counted(counts, source, item_coordinate(counts, temperature))


def counted_of(trained: Trained, catalogue: Catalogue, data_dir: str) -> Counted:
    """`counted` of a trained model."""
    return counted(trained.run_config.get("loss", {}), catalogue, trained.manifest, data_dir, trained.model.temperature,
                   trained.schema.features if trained.model.id_dropout else None)


def choose_popularity(config: Config, trained: Trained, encoder: Encoder, items: np.ndarray, catalogue: Catalogue,
                      clicks: Counted, intents: int = 0) -> Optional[curve.Choice]:
    """What validation users choose by --popularity_metric; None, with a warning, where the data set has none.

    Args:
      config, trained: of the command.
      encoder: of the model.
      items: [V,d], ready to be compared.
      catalogue: of the data.
      clicks: what p̂ is made of.
      intents: K, the heaviest of each user that are searched; 0: as when served.
    """
    data_dir, count = config.paths.data_dir, len(catalogue.counts)
    try:
        users = read_evaluation_set(data_dir, "valid", trained.schema, trained.manifest,
                                    curve.users_to_choose_on(count), config.paths.seed)
    except DataError as error:
        if trained.manifest.records("valid") and "no user to evaluate" not in str(error):
            raise
        logging.warning("%s has no validation users to choose --popularity on: it is 0, as trained, unless another is "
                        "given", data_dir)
        return None
    return curve.choose(encoder.searched(users, intents), items, clicks.coordinate, users, catalogue.counts,
                        config.evaluate, config.dial, config.paths.seed, trained.model.score_temperature)
