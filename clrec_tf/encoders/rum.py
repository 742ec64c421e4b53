"""The query tower with a memory of items, `--user_encoder=rum` (Chen et al. 2018, item-level RUM)."""
import dataclasses

import tensorflow as tf

from clrec_tf.encoders.base import UserEncoder
from clrec_tf.encoders.caser import last_clicks
from clrec_tf.encoders.mean import masked_mean
from clrec_tf.settings.registry import ENCODERS
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class RumSettings(Section):
    """--user_encoder=rum"""
    memory_clicks: int = setting(5, "Last clicks K that are a user's memory, of which each candidate reads.", lower=1)
    memory_weight: float = setting(0.2, "Weight α of the memory beside the user's own part, in the sum.", lower=0.0)


@ENCODERS.register("rum")
class RumUserEncoder(UserEncoder):
    """Slots m_k = p + α·X_{n−K+k} of the last K clicks, and p = mean_t X_t, the user's own part.

    A candidate y reads them by `losses.contrastive.attended_logits`. With --similarity=dot that is the paper's merge
    exactly: Σ_k a_k·⟨m_k, y⟩ = ⟨p + α·Σ_k a_k·X_k, y⟩ with a = softmax_k(α·⟨X_k, y⟩/ρ), of strength α/ρ. A place of the
    memory that is still empty is p alone.

    Deviations: p is the mean of the clicks, where the paper has a table of users, so new users have one; each slot is
    normalized by itself with --similarity=cosine; the strength follows from α and ρ, and is no setting.
    """

    Settings = RumSettings
    summary = "a memory of the last clicks that each candidate reads by itself (RUM); for AUC, not for retrieval."
    target_aware = True

    def call(self, clicks, training=False):
        """-> slots [B,K,D], the latest click's last; zeros for an empty history."""
        del training
        vectors, mask = clicks.vectors, clicks.mask
        last = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1, keepdims=True) - 1
        memory = tf.squeeze(last_clicks(vectors, last, self.settings.memory_clicks), axis=1)
        return masked_mean(vectors, mask)[:, None] + self.settings.memory_weight * memory
