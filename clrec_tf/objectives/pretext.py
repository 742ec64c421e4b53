"""Tasks that the query tower learns beside the loss, for --pretext; one file each."""
import tensorflow as tf

from clrec_tf.encoders.base import NoSettings
from clrec_tf.objectives.base import Objective
from clrec_tf.settings.registry import PRETEXTS


class Pretext(Objective):
    """A task whose rows' losses are added to those of --loss; registered by `PRETEXTS.register(name)`."""

    clicks_after = 0  # of each example, from the target on, that its batches bring

    @classmethod
    def clicks_read(cls, max_history: int) -> int:
        """`clicks_after`, no more than the query tower reads of a history."""
        return min(cls.clicks_after, max_history)

    def rows(self, encoded, batch: dict) -> tf.Tensor:
        """What it adds to the loss of each row of an encoded batch, [B]; enqueues. Of an opened one."""
        raise NotImplementedError


@PRETEXTS.register("none")
class NoPretext(Pretext):
    """The loss alone."""

    Settings = NoSettings
    summary = "nothing."

    @classmethod
    def make(cls, inputs):
        """None."""
