"""What a model gives of one batch."""
import dataclasses
from typing import Any, Optional

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Encoded:
    """One step's vectors, normalized if the similarity is the cosine.

    Attributes:
      users: f(x) [B,D], or slots [B,K,D] of a `target_aware` model.
      positives: g(y) [B,D] of the targets.
      distinct: [U,D], g of every distinct item among the candidates given (the raw queue's, or sampled ones).
      distinct_ids: [U] int64, theirs.
      counts: [U] int32, how often each stands among them.
      queued: [N] int32, where each candidate's vector is in `distinct`.
      beside: what `auxiliary_losses` and the model's own objectives read: of Multi-CLRec its `BatchIntents`, of CLRec what
        the user encoder adds to the loss of each row [B], or None.
      after: f(y) [B,D] of what followed the histories, of a batch that brings it, see ``batches``.
    """
    users: tf.Tensor
    positives: tf.Tensor
    distinct: Optional[tf.Tensor] = None
    distinct_ids: Optional[tf.Tensor] = None
    counts: Optional[tf.Tensor] = None
    queued: Optional[tf.Tensor] = None
    beside: Any = None
    after: Optional[tf.Tensor] = None
