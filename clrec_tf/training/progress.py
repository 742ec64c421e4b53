"""Where a training stands, and how a checkpoint holds that."""
import dataclasses
import json
from typing import Optional

import tensorflow as tf


@dataclasses.dataclass
class Progress:
    """Where a training stands. Order and cut of the data are functions of the seed.

    Attributes:
      step: batches consumed.
      position: which, see `Assignments.position`; None: the first `step` in order.
      repeated_steps: steps that may have been trained twice, since a worker was lost.
      metric: name of the validation metric.
      judging: see `run_config.judging`; None in checkpoints of before it was kept.
      best_metric: its value at the best validation so far, None before the first.
      best_step: its step.
      validations_since_best: validations without a better metric.
      last_validation_step: step of the last validation.
      skipped_steps: steps without update so far.
      trailing_skipped: of those, the ones since the last good step.
      zero_gradients: steps in a row until now whose gradient was exactly 0.
      stopped_early: whether early stopping has ended the training.
    """
    step: int = 0
    position: Optional[dict] = None
    repeated_steps: int = 0
    metric: str = ""
    judging: Optional[dict] = None
    best_metric: Optional[float] = None
    best_step: int = 0
    validations_since_best: int = 0
    last_validation_step: int = 0
    skipped_steps: int = 0
    trailing_skipped: int = 0
    zero_gradients: int = 0
    stopped_early: bool = False

    def use_metric(self, name: str, judging: Optional[dict] = None) -> None:
        """Starts the search for the best anew where another metric decides from now on, or, in a run that has not
        stopped, the same one among others."""
        alike, self.judging = self.judging in (None, judging), judging
        if name != self.metric or not (alike or self.stopped_early):
            self.metric, self.best_metric, self.best_step, self.validations_since_best = name, None, 0, 0
            self.stopped_early = False


class ProgressState(tf.train.experimental.PythonState):
    """`Progress` inside a checkpoint."""

    def __init__(self, progress):
        self.progress = progress

    def serialize(self):
        """JSON."""
        return json.dumps(dataclasses.asdict(self.progress))

    def deserialize(self, string_value):
        """Sets the fields of the progress object."""
        for name, value in json.loads(string_value).items():
            setattr(self.progress, name, value)
