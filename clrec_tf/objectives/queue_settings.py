"""What the contrastive losses of both models share: settings of the queue, by which the class of the loss is chosen."""
import dataclasses
import typing

from clrec_tf.objectives.base import Objective
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class QueueSettings(Section):
    """The queue of negatives."""
    AUTO: typing.ClassVar[str] = "cached"  # what --queue=auto stands for
    queue: str = setting("auto",
        "in_batch: the batch's own positives. raw: queue of ids, re-encoded each step. cached: queue of item vectors. "
        "all_clicks: all training clicks at once, by item and count (clrec, at most 20,000 items). "
        "auto: cached; raw for multi_clrec, whose entries stay longer.",
        choices=("auto", "in_batch", "raw", "cached", "all_clicks"))
    balanced_gradient: bool = setting(True,
        "Cached queue: in the gradient of the items, each of the batch's stands for the whole queue's share, as in a "
        "raw queue on average. Off: as the formula reads, by which items are pushed apart by a share B/Q only.")
    prefill_queue: bool = setting(False, "Fill the queue with shuffled training targets before the first step.")

    @property
    def queue_kind(self) -> str:
        """--queue, chosen where it is auto."""
        return self.AUTO if self.queue == "auto" else self.queue

    @property
    def follows_the_loss(self) -> bool:
        """Whether the items' gradient is, on average, that of the loss, so that its optimum is what is learned."""
        return self.queue_kind != "cached" or self.balanced_gradient


class ChosenByQueue(Objective):
    """A loss whose class depends on --queue: what it does stands in these classes, here is only the choice."""

    @classmethod
    def make(cls, inputs):
        """The variant of --queue; `TypeError` for a subclass, whose other methods nobody would call."""
        if ChosenByQueue not in cls.__bases__:
            raise TypeError(f"{cls} would lose what it overrides: derive from a class that {cls.__base__} chooses")
        settings = inputs.config.settings_of(cls)
        variant = cls.variant(inputs, settings)
        variant.prefills = settings.prefill_queue and variant.queue is not None
        return variant

    @classmethod
    def variant(cls, inputs, settings) -> Objective:
        """The objective of --queue over a new queue."""
        raise NotImplementedError
