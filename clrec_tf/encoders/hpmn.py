"""The query tower with a hierarchical periodic memory, `--user_encoder=hpmn` (Ren et al. 2019)."""
import dataclasses

import tensorflow as tf
import tf_keras

from clrec_tf.encoders.base import UserEncoder
from clrec_tf.encoders.recurrent import last_click
from clrec_tf.errors import UserError
from clrec_tf.losses.auxiliary import slot_covariance
from clrec_tf.losses.contrastive import l2_normalize
from clrec_tf.settings.registry import ENCODERS
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class HpmnSettings(Section):
    """--user_encoder=hpmn"""
    memory_layers: int = setting(5, "Layers K of the memory; layer k = 0, 1, … is updated at every 2^k-th click.",
                                 lower=1, upper=16)
    covariance_weight: float = setting(1e-3, "Weight of the loss by which a user's slots tell different things.",
                                       lower=0.0)

    def check(self, config):
        """`UserError` where no history is long enough for the last layer."""
        period = 2 ** (self.memory_layers - 1)
        if period > config.model.max_history:
            raise UserError(f"--memory_layers={self.memory_layers}: the last layer is updated at every {period}-th "
                            f"click, and --max_history={config.model.max_history} are read: raise that, or lower "
                            "--memory_layers")


@ENCODERS.register("hpmn")
class HpmnUserEncoder(UserEncoder):
    """Slots m_k = W_k·h^k + b_k, h^k the state of layer k = 0 … K−1 after its last update: a GRU whose steps are the
    clicks 2^k, 2·2^k, …, and which reads the state of the layer below at that click; layer 0 reads √d·X_t.

    A candidate reads the slots by `losses.contrastive.attended_logits`. The loss of `losses.auxiliary.slot_covariance`
    is added. A layer without an update is a slot of zeros.

    Deviations: the attention is by products of slot and candidate where the paper has an MLP over both, so each layer
    has a linear map to the width of the items; the paper's memory of an item's users is left out; the covariance is
    that of slots of length 1. Periods count from the earliest of the --max_history clicks.
    """

    Settings = HpmnSettings
    summary = "GRUs of growing periods, whose states each candidate reads by itself (HPMN); for AUC, not for retrieval."
    target_aware = True

    def __init__(self, settings, sizes):
        super().__init__(settings, sizes)
        dim, glorot = sizes.dim, lambda number: tf_keras.initializers.GlorotUniform(seed=sizes.seed + 10 + number)
        self.layers, self.output_maps = [], []
        for i in range(settings.memory_layers):
            self.layers.append(tf_keras.layers.GRU(dim, return_sequences=True, kernel_initializer=glorot(3 * i),
                                                   recurrent_initializer=glorot(3 * i + 1), name=f"layer_{i}"))
            self.layers[-1].build((None, None, dim))
            self.output_maps.append(
                tf_keras.layers.Dense(dim, kernel_initializer=glorot(3 * i + 2), name=f"output_map_{i}"))
            self.output_maps[-1].build((None, dim))

    def call(self, clicks, training=False):
        """-> slots [B,K,D]; zeros for an empty history."""
        del training
        # Padding stands after the clicks, so no state before it knows of it.
        states, mask, slots = clicks.vectors * self.sizes.dim ** 0.5, clicks.mask, []
        for number, (layer, output_map) in enumerate(zip(self.layers, self.output_maps)):
            if number:
                states, mask = states[:, 1::2], mask[:, 1::2]
            states = layer(states)
            slots.append(tf.where(mask[:, :1], output_map(last_click(states, mask)), 0.0))
        return tf.stack(slots, axis=1)

    def with_auxiliary(self, clicks, training=False):
        """See `UserEncoder.with_auxiliary`: the covariance, of slots of length 1, since the cosine forgets lengths."""
        slots = self(clicks, training)
        return slots, self.settings.covariance_weight * slot_covariance(l2_normalize(slots))
