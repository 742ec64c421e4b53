"""Settings of the queue of negatives, which the contrastive losses of both models share."""
import dataclasses

from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class QueueSettings(Section):
    """The queue of negatives."""
    queue: str = setting("auto",
        "in_batch: the batch's own positives. raw: queue of ids, re-encoded each step. cached: queue of item vectors. "
        "auto: cached; raw for multi_clrec, whose entries stay longer.", choices=("auto", "in_batch", "raw", "cached"))
    balanced_gradient: bool = setting(True,
        "Cached queue: in the gradient of the items, each of the batch's stands for the whole queue's share, as in a "
        "raw queue on average. Off: as the formula reads, by which items are pushed apart by a share B/Q only.")
    prefill_queue: bool = setting(False, "Fill the queue with shuffled training targets before the first step.")
