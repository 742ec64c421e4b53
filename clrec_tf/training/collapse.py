"""Notices a training that has collapsed: one in which nothing is learned any more, though every number is finite.

The cosine hides it: after a step that throws all vectors far away, or with features whose squares overflow, every
item has the same score for everybody. Then the loss is the log of the number of candidates and the gradient exactly 0,
which no later step changes.
"""
from absl import logging
import tensorflow as tf
import tf_keras

from clrec_tf.errors import UserError

AT_END = 5  # steps in a row without a gradient that are enough where training ends with them
SAME = 1e-3  # nats: a loss that is this near to chance says that all scores are equal
REMEDY = "lower --learning_rate, raise --warmup_steps, or look for extreme values in features and dense vectors"


class CollapseWatch:
    """Looks at each call's result, at the loss of each epoch's second half, and at the variables before they are saved.

    Args:
      settings: of the training.
      num_items: of the catalogue; one item alone leaves nothing to learn.
      first_step: steps already done.
      epoch_ends: step after which each epoch ends, ascending.
    """

    def __init__(self, settings, num_items: int, first_step: int, epoch_ends: list[int]):
        self._settings, self._num_items, self._total = settings, num_items, max(epoch_ends, default=0)
        starts = [0, *epoch_ends]
        marks = {(start + end) // 2: False for start, end in zip(starts, epoch_ends)} | dict.fromkeys(epoch_ends, True)
        self._marks = [(step, is_end) for step, is_end in sorted(marks.items()) if step > first_step]
        self._sums, self._said = dict.fromkeys(("trained", "loss", "chance_loss"), 0.0), False

    def add(self, progress, result: dict) -> None:
        """Takes the result of one call that ended at `progress.step`, see ``step``.

        Raises:
          UserError: the gradient was exactly 0 for --max_zero_gradient_steps, or for the last steps of all.
        """
        self._count_zero_gradients(progress, result)
        for name in self._sums:
            self._sums[name] += float(result[name])
        passed = [is_end for step, is_end in self._marks if step <= progress.step]
        if not passed:
            return
        self._marks = self._marks[len(passed):]
        if any(passed):
            self._compare_with_chance(progress)
        self._sums = dict.fromkeys(self._sums, 0.0)

    def _count_zero_gradients(self, progress, result):
        judged, trailing = int(result["judged"]), int(result["trailing_zero_gradients"])
        progress.zero_gradients = progress.zero_gradients + trailing if trailing == judged else trailing
        limit = self._settings.max_zero_gradient_steps
        if not limit or self._num_items < 2:
            return
        at_end = progress.step >= self._total and progress.zero_gradients >= AT_END
        if progress.zero_gradients > limit or at_end:
            raise UserError(
                f"training has collapsed: the gradient was exactly 0 in the last {progress.zero_gradients} steps "
                f"before step {progress.step} (--max_zero_gradient_steps={limit}), so that nothing is learned any "
                f"more; the last checkpoint may be from before. For a new --workdir, {REMEDY}; --queue=in_batch needs "
                "batches of several rows")

    def _compare_with_chance(self, progress):
        """Says where the loss since the middle of the epoch is not below that of equal scores, once it should be."""
        trained = self._sums["trained"]
        if not trained or progress.step <= self._settings.warmup_steps or self._num_items < 2:
            return
        loss, chance = (self._sums[name] / trained for name in ("loss", "chance_loss"))
        ends = progress.step >= self._total
        if abs(loss - chance) < SAME and (ends or not self._said):  # NaN, where chance is not known, compares false
            self._said = True
            logging.warning(
                "at step %d the loss, %.4f, is that of equal scores for all candidates (the log of their number; of "
                "all clicks the mean of −log p̂): the model tells no items apart. If that stays so, %s", progress.step,
                loss, REMEDY)
        elif ends and loss >= chance:
            logging.warning(
                "the loss ends at %.4f, above the %.4f of equal scores for all candidates (the log of their number; of "
                "all clicks the mean of −log p̂): too little was learned, or nothing. Train longer (--epochs), or %s", loss,
                chance, REMEDY)


def check_variables(model: tf_keras.Model) -> None:
    """`UserError`, naming a variable, where a value of the model is NaN or infinite, so that it is not saved."""
    for variable in model.trainable_variables:
        for part in getattr(variable, "variables", [variable]):  # on parameter servers a table has several
            with tf.device(part.device):  # where it lies: one number is sent, not the table
                bad = tf.math.count_nonzero(~tf.math.is_finite(part))
            if int(bad):
                raise UserError(
                    f"training has collapsed: {int(bad)} values of {variable.name} are NaN or infinite; the last "
                    f"checkpoint is from before. For a new --workdir, {REMEDY}")

