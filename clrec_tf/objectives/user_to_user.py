"""--pretext=u2u: a user's clicks foretell what the same user clicks next, as a whole (paper, "u2u")."""
import dataclasses

import tensorflow as tf

from clrec_tf.errors import UserError
from clrec_tf.losses import contrastive
from clrec_tf.models.encoded import Encoded
from clrec_tf.objectives.cached_queue_negatives import CachedQueueNegatives
from clrec_tf.objectives.fifo_queue import FifoQueue
from clrec_tf.objectives.pretext import Pretext
from clrec_tf.objectives.queue_negatives import Fed
from clrec_tf.objectives.resources import read
from clrec_tf.objectives.resources import zeros
from clrec_tf.settings.registry import PRETEXTS
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class UserToUserSettings(Section):
    """--pretext=u2u"""
    u2u_queue_size: int = setting(2560, "Sequences that a user is compared with: entries of the queue of f(y), at "
                                        "least --batch_size.", lower=1)
    u2u_weight: float = setting(1.0, "Weight λ of the task beside the loss, L = L_u2i + λ·L_u2u.", lower=1e-6)

    def check(self, config):
        """`UserError` where a user has several vectors, or a batch does not enter the queue whole."""
        encoder = config.encoder_class
        if config.model.model != "clrec" or encoder.target_aware or encoder.vectors_of(config.encoder) > 1:
            given = (f"--model={config.model.model}" if config.model.model != "clrec" else
                     f"--user_encoder={encoder.registered_name}")
            raise UserError(f"--pretext=u2u compares one vector of a user with another, and {given} gives several: use "
                            "--model=clrec with an encoder of one, or leave --pretext out")
        if config.model.history_dropout:
            raise UserError(f"--pretext=u2u and --history_dropout={config.model.history_dropout}: of a hidden history "
                            "nothing is left to foretell clicks by; leave one of them out")
        if config.train.batch_size > self.u2u_queue_size:
            raise UserError(f"--u2u_queue_size={self.u2u_queue_size} is smaller than --batch_size="
                            f"{config.train.batch_size}: a batch enters the queue whole, so raise --u2u_queue_size or "
                            "lower --batch_size")


def sequence_queue(capacity, dim, local_variable) -> FifoQueue:
    """The queue of `SequenceNegatives`: vectors of sequences, and whose they are."""
    return FifoQueue(capacity, {"owner": tf.TensorSpec([], tf.int64), "vector": tf.TensorSpec([dim], tf.float32)},
                     local_variable)


class SequenceNegatives(CachedQueueNegatives):
    """The cached queue with sequences for items: f(y) for g(y)."""

    def logits(self, batch, users, after):  # pylint: disable=arguments-differ,arguments-renamed
        """f(x) and f(y) [B,D], normalized -> as of `CachedQueueNegatives.compare`; enqueues f(y)."""
        fed = Fed(batch["target"], batch["weight"] > 0, batch["user_id"])
        return self.beside_queue(batch, fed, Encoded(users, after), after)

    def _fields(self, fed):
        return {"owner": fed.owners}


class LastLoss(tf.Module):
    """A loss that is told outside of the steps."""

    def __init__(self, local_variable):
        super().__init__(name="last_loss")
        self.local_variables = {"value": local_variable(zeros((), tf.float32), (), tf.float32)}

    def open(self):
        """The handle of its variable."""
        return self.local_variables["value"].handle


@PRETEXTS.register("u2u")
class UserToUser(Pretext):
    """ℓ = −cos(f(x),f(y))/ρ + log Σ_{y'∈C} e^{cos(f(x),f(y'))/ρ}, x a user's clicks before a moment, y those after it.

    y are the target of the example and the clicks behind it, 9 at most (|y| < 10); f is the user encoder for both. It
    reads times inside y as those before the last click of y. With --target_mode=sliding every click after the first is
    a target once an epoch, so the moment is uniform over a user's sequence, with a click or more on each side.

    C is a cached queue of its own: f(y) of this batch with gradient, balanced as that of items, and older ones without.
    A user's other sequences are left out by --mask_same_user, the same setting as for items.

    y is read by its clicks alone: features of users and requests, which both sides share, would tell whose it is.

    Args:
      model: a `TwoTower` of one vector per user.
      capacity: of the queue.
      weight: λ.
      mask_same_user, balanced: see `CachedQueueNegatives`.
      local_variable: see `FifoQueue`.
      keys: encodes y, without gradient; None: the model does.
    """

    Settings = UserToUserSettings
    summary = "clicks before a moment foretell those after it, as a user vector (paper)."
    metric_names = ("u2u_loss", "u2u_fill")
    clicks_after = 9

    def __init__(self, model, capacity, weight, mask_same_user, local_variable, balanced=True, keys=None):
        queue = sequence_queue(capacity, model.item_encoder.dim, local_variable)
        super().__init__(model, negatives=SequenceNegatives(model, queue, mask_same_user, balanced=balanced),
                         last=LastLoss(local_variable))
        self._weight, self._keys = weight, keys

    @classmethod
    def make(cls, inputs):
        """`UserError` where targets do not stand uniformly over a sequence."""
        settings, mode = inputs.config.settings_of(cls), inputs.config.train.target_mode
        if mode != "sliding":
            why = ("the last click is the only target, behind which there is nothing" if mode == "last" else
                   "a window is encoded once for all of its targets, and not what follows each")
            raise UserError(f"--pretext=u2u and --target_mode={mode}: {why}; use --target_mode=sliding, or leave "
                            "--pretext out")
        objective = inputs.config.objective
        return cls(inputs.model, settings.u2u_queue_size, settings.u2u_weight,
                   getattr(objective, "mask_same_user", False), inputs.local_variable,
                   getattr(objective, "balanced_gradient", True), inputs.keys)

    @property
    def states(self):
        """The queue."""
        return {"u2u_queue": self.negatives.queue}

    def rows(self, encoded, batch):
        """Encoded batch -> λ·ℓ [B]; enqueues."""
        after = encoded.after if self._keys is None else self._keys.clicks_after(batch)
        logits = self.negatives.logits(batch, *map(contrastive.l2_normalize, (encoded.users, after)))
        losses = contrastive.contrastive_loss(*logits, bound=1.0 / self.model.temperature)
        tf.raw_ops.AssignVariableOp(resource=self.last, value=contrastive.weighted_mean(losses, batch["weight"]))
        return self._weight * losses

    def chance_loss(self, batch):
        """λ times that of as many sequences."""
        return self._weight * self.negatives.chance_loss(batch)

    def metrics(self):
        """`u2u_loss` of the last step, nats, without λ, and `u2u_fill`, entries of the queue; scalars."""
        return {"u2u_loss": read(self.last, (), tf.float32),
                "u2u_fill": tf.cast(self.negatives.queue.fill(), tf.float32)}
