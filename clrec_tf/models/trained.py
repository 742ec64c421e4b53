"""A trained model and what it came from, as evaluation and export take it."""
import dataclasses
from typing import Optional

import numpy as np

from clrec_tf.config import Config
from clrec_tf.data import schema as schema_lib
from clrec_tf.models.encode import Encoder
from clrec_tf.models.two_tower import TwoTower


@dataclasses.dataclass(frozen=True)
class Trained:
    """A restored model and what it came from.

    Attributes:
      model: with the checkpoint's values.
      settings: those it was built with (of the run, not of the current flags), as a `Config`.
      schema, manifest: of --data_dir, checked against the run.
      step: of the checkpoint.
      checkpoint: its prefix.
      checkpoint_hash: sha256 over its files.
      run_config: the run's config.json.
    """
    model: TwoTower
    settings: Config
    schema: schema_lib.Schema
    manifest: schema_lib.Manifest
    step: int
    checkpoint: str
    checkpoint_hash: str
    run_config: dict
    _encoders: list[Encoder] = dataclasses.field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def max_history(self) -> int:
        """T that the model was trained with."""
        return self.settings.model.max_history

    def encoder(self, cold: Optional[np.ndarray]) -> Encoder:
        """The compiled towers, made once for all stages that ask, since each new `Encoder` is traced anew.

        Args:
          cold: bool [V], of the catalogue of --data_dir.
        """
        if not self._encoders:
            self._encoders.append(Encoder(self.model, self.max_history, cold))
        return self._encoders[0]
