"""--loss=ipw: inverse propensity weighting, the second stage of two; the first is in ``propensity_fit``."""
import dataclasses

import numpy as np

from clrec_tf.losses import closed_forms
from clrec_tf.losses import ipw
from clrec_tf.objectives.base import MAX_FULL_SOFTMAX
from clrec_tf.objectives.base import RowObjective
from clrec_tf.objectives.full_softmax import FullSoftmax
from clrec_tf.objectives import propensity_fit
from clrec_tf.objectives.resources import Constants
from clrec_tf.objectives.resources import in_memory
from clrec_tf.objectives.sampled_softmax import make_sampled_softmax
from clrec_tf.objectives.sampling_settings import SamplingSettings
from clrec_tf.settings.registry import LOSSES
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class PropensitySettings(SamplingSettings):
    """--loss=ipw"""
    propensity: str = setting("popularity",
        "First stage of ipw, q̂ of an item being shown. popularity: its share. category: its share after a click on "
        "the same --propensity_feature. softmax: a small model of the item given the last click.",
        choices=("popularity", "category", "softmax"))
    propensity_data: str = setting("impressions",
        "What q̂ is fitted on: impressions (prepare --impressions), or clicks, which only a coarse model should be "
        "fitted on: one that predicts clicks well cancels the signal, and is warned of.",
        choices=("impressions", "clicks"))
    propensity_feature: str = setting("", "Item feature of --propensity=category (default: the first).")
    ipw_cap: float = setting(10.0,
        "Largest weight of ipw, where 1 is that of an item shown as often as the average (0: no cap).", lower=0.0)

    def cap(self, num_items: int) -> float:
        """The largest 1/q̂: --ipw_cap times that of an item shown as often as the average; infinite where it is 0."""
        return self.ipw_cap * num_items if self.ipw_cap else np.inf


@LOSSES.register("ipw")
class PropensityWeighted(RowObjective):
    """The second stage of inverse propensity weighting: w·(−log p(y|x)), w = min(1/q̂, cap), of mean 1 in a batch.

    Args:
      softmax: a `FullSoftmax` or `SampledSoftmax`.
      propensity: batch, constants -> q̂(y|x) [B], from the first stage.
      cap: of 1/q̂.
      constants: name -> array that `propensity` reads.
      local_constant: see `resources.Constants`.
    """

    Settings = PropensitySettings
    summary = "full or sampled softmax weighted by inverse propensity."

    def __init__(self, softmax, propensity, cap, constants=None, local_constant=in_memory):
        super().__init__(softmax.model, softmax=softmax, constants=Constants(local_constant, **(constants or {})))
        self._propensity, self._cap = propensity, cap

    @classmethod
    def make(cls, inputs):
        """Fits the first stage."""
        settings = inputs.config.settings_of(cls)
        if inputs.num_items <= MAX_FULL_SOFTMAX:
            softmax = FullSoftmax(inputs.model, inputs.items.rows, local_constant=inputs.local_constant)
        else:
            softmax = make_sampled_softmax(inputs, settings)
        cap = settings.cap(inputs.schema.num_items)
        of_batch, constants = propensity_fit.fit(inputs, settings, cap)
        return cls(softmax, of_batch, cap, constants, inputs.local_constant)

    @classmethod
    def closed_form(cls, world, settings):
        """p·min(1/q̂, cap); q̂ of popularity is the mean exposure, that of a model of the context the exposure itself.
        A category is between them, and not known."""
        if settings.propensity == "category" or settings.propensity_data == "clicks":
            return None
        exposure = world.exposure if settings.propensity == "softmax" else np.broadcast_to(
            world.mean_exposure, world.exposure.shape)
        return closed_forms.clipped_inverse_propensity(world.clicks, 1 / exposure, settings.cap(exposure.shape[1]))

    def rows(self, batch, training=True):
        """Batch -> [B]."""
        weights = ipw.inverse_propensity_weights(self._propensity(batch, self.constants), self._cap)
        encoded, losses = self.softmax.compare(batch, training)
        return ipw.self_normalized(weights, batch["weight"]) * losses + self.added_losses(encoded, batch)

    def metrics(self):
        """The softmax's."""
        return self.softmax.metrics()
