"""CLRec's loss, --loss=contrastive: negatives from a queue of clicks or impressions, popularity removed to a degree."""
import dataclasses
from typing import Optional

from absl import logging
import numpy as np

from clrec_tf.data.frequencies import log_popularity
from clrec_tf.data.query_features import context_feature
from clrec_tf.data.query_features import query_columns
from clrec_tf.errors import UserError
from clrec_tf.losses import closed_forms
from clrec_tf.objectives.all_clicks import make_all_clicks
from clrec_tf.objectives.cached_queue_negatives import cached_queue
from clrec_tf.objectives.cached_queue_negatives import CachedQueueNegatives
from clrec_tf.objectives.impression_stream import ImpressionStream
from clrec_tf.objectives.in_batch_negatives import InBatchNegatives
from clrec_tf.objectives.queue_negatives import QueueNegatives
from clrec_tf.objectives.queue_settings import ChosenByQueue
from clrec_tf.objectives.queue_settings import QueueSettings
from clrec_tf.objectives.raw_queue_negatives import raw_queue
from clrec_tf.objectives.raw_queue_negatives import RawQueueNegatives
from clrec_tf.settings.registry import LOSSES
from clrec_tf.settings.setting import setting

FEW_ENTRIES = 100  # of a queue for each value of a context, below which a warning is due


@dataclasses.dataclass(frozen=True)
class ContrastiveSettings(QueueSettings):
    """--loss=contrastive"""
    enqueue_per_step: int = setting(256,
        "--target_mode=all: targets that enter the queue in a step, drawn from the step's.", lower=1)
    mask_same_user: bool = setting(False,
        "Leave a user's other clicks out of its own denominator. --target_mode=all always does so, but for "
        "--queue=all_clicks and impressions.")
    debias_beta: float = setting(1.0,
        "How much of the items' popularity the contrastive loss removes: 1 = CLRec, p(y|x)/p(y); 0 = corrected sampled "
        "softmax, p(y|x); between, p(y|x)/p(y)^β. With --negatives=impressions, of the impressions' popularity.",
        lower=0.0, upper=1.0)
    debias_context: str = setting("",
        "Category of users or requests, such as country: negatives are clicks of the same value, so that what differs "
        "in exposure between values is removed too, p(y|x)/p(y|value). Empty: p(y|x)/p(y).")
    momentum_encoder: float = setting(0.0,
        "Momentum m of the keys' encoder (MoCo), such as 0.999: items are compared with users as encoded by moving "
        "averages of the weights, θ_k ← mθ_k + (1−m)θ_q after each step, without gradient. 0: by the weights.",
        lower=0.0, upper=1.0)
    negatives: str = setting("clicks", "What feeds the queue: clicked items, or impressions (prepare --impressions).",
                             choices=("clicks", "impressions"))

    def check(self, config):
        """`UserError` where a batch does not enter the queue whole, or flags contradict each other."""
        self._check_capacity(config.loss.queue_size, config.train)
        if self.negatives == "impressions" and self.mask_same_user:
            raise UserError("--mask_same_user and --negatives=impressions: impressions have no clicks of the same user "
                            "to leave out; give one of them")
        if self.debias_context and (self.negatives == "impressions" or self.debias_beta < 1.0):
            other = "negatives=impressions" if self.negatives == "impressions" else f"debias_beta={self.debias_beta}"
            why = ("impressions have no context" if self.negatives == "impressions" else
                   "a lesser degree is known of the popularity over all contexts only")
            raise UserError(f"--debias_context={self.debias_context} and --{other}: {why}; give one of them")
        if self.queue == "all_clicks":
            self._check_all_clicks()
        if self.momentum_encoder:
            self._check_momentum(config.encoder_class, config.encoder)

    def _check_momentum(self, encoder, settings):
        """`UserError` where there are no keys to keep, or items would never learn."""
        flag = f"--momentum_encoder={self.momentum_encoder}"
        if self.momentum_encoder == 1.0:
            raise UserError(f"{flag}: must be below 1, or the keys stay as they begin; usual are 0.9 to 0.9999")
        why = dict(raw="it encodes its entries anew in every step", in_batch="it keeps nothing from earlier steps",
                   all_clicks="it scores the items as they are").get(self.queue_kind)
        if why:
            raise UserError(f"{flag} and --queue={self.queue}: {why}, so there are no older vectors to be consistent "
                            "with; use --queue=cached, or leave --momentum_encoder out")
        if encoder.target_aware or encoder.vectors_of(settings) > 1:
            raise UserError(f"{flag} and --user_encoder={encoder.registered_name}: what a user is compared by depends on "
                            "the target there, which is encoded as a key alone; use an encoder of one vector, or leave "
                            "--momentum_encoder out")
        if encoder.own_factors:
            raise UserError(f"{flag} and --user_encoder={encoder.registered_name}: histories are read by vectors of "
                            "their own there, so the candidates', which have no gradient as keys, would never learn; "
                            "use another --user_encoder, or leave --momentum_encoder out")

    def _check_all_clicks(self):
        """`UserError` where a setting says something of a queue that there is not."""
        if self.mask_same_user:
            raise UserError("--mask_same_user and --queue=all_clicks: it holds numbers of clicks, not whose they are; "
                            "give one of them")
        if self.debias_context:
            raise UserError(f"--debias_context={self.debias_context} and --queue=all_clicks: it holds numbers of clicks "
                            "of all contexts together; use --queue=cached or raw")
        if self.prefill_queue or not self.balanced_gradient:
            flag = "prefill_queue" if self.prefill_queue else "nobalanced_gradient"
            raise UserError(f"--{flag} and --queue=all_clicks: nothing is kept between steps; leave --{flag} out")

    def _check_capacity(self, size, train):
        """`UserError` where a step brings more than the queue holds."""
        flag, count, what = "batch_size", train.batch_size, "a batch enters"
        if train.target_mode == "all":
            flag, count, what = "enqueue_per_step", self.enqueue_per_step, "what a step adds enters"
        if self.queue not in ("in_batch", "all_clicks") and size < count:
            raise UserError(f"--queue_size={size} is smaller than --{flag}={count}: {what} the queue whole, so raise "
                            f"--queue_size or lower --{flag}")


@LOSSES.register("contrastive")
class Contrastive(ChosenByQueue):
    """`QueueNegatives` with a correction of degree β, or with impressions in the queue."""

    Settings = ContrastiveSettings
    summary = "CLRec, negatives from --queue."

    @classmethod
    def variant(cls, inputs, settings):
        """What is corrected is the popularity p̂ of what feeds the queue."""
        impressions, log_q, shown, counts = None, None, None, None
        if settings.negatives == "impressions":
            shown = np.array(inputs.read_exposures("--negatives=impressions")[:, 1])
            counts = np.bincount(shown, minlength=len(inputs.items.rows))
        if settings.queue == "all_clicks":
            return make_all_clicks(inputs, counts, settings.debias_beta)
        if shown is not None:
            impressions = ImpressionStream(shown, inputs.items.rows, inputs.seed, inputs.local_variable,
                                           inputs.local_constant)
        if settings.debias_beta < 1.0:
            log_q = (1.0 - settings.debias_beta) * log_popularity(inputs.items.counts if counts is None else counts)
            log_q[1:] -= log_q[1:].mean()  # a constant changes nothing, and exponents stay small
        context = context_column(settings.debias_context, inputs.schema)
        if context is not None:
            _warn_of_few_entries(settings, inputs)
        windows = inputs.config.train.target_mode == "all"
        # A user's other targets of the same window are no independent draws given the user.
        masked = settings.mask_same_user or (windows and not impressions)
        return build_variant(settings.queue_kind, inputs.model, inputs.config.loss.queue_size, masked,
                             inputs.local_variable, log_q=log_q, impressions=impressions,
                             local_constant=inputs.local_constant, balanced=settings.balanced_gradient,
                             entering=settings.enqueue_per_step if windows else None,
                             context=context, keys=inputs.keys)

    @classmethod
    def closed_form(cls, world, settings):
        """p/p̂^β, p̂ the popularity of what feeds the queue."""
        if (settings.mask_same_user or settings.debias_context or settings.momentum_encoder
                or not settings.follows_the_loss):
            return None
        fed = world.mean_exposure if settings.negatives == "impressions" else world.click_popularity
        return closed_forms.debiased(world.clicks, fed, settings.debias_beta)


def _warn_of_few_entries(settings, inputs) -> None:
    """Says where the queue has few entries for each value of --debias_context."""
    values = context_feature(settings.debias_context, inputs.schema.query_features).rows - 1
    size = inputs.config.train.batch_size if settings.queue_kind == "in_batch" else inputs.config.loss.queue_size
    if size < FEW_ENTRIES * values:
        logging.warning("--debias_context=%s: %d values share a queue of %d entries, %.0f each if they were alike, and "
                        "a row is compared with those of its own: raise --queue_size, or name a context of fewer values",
                        settings.debias_context, values, size, size / values)


def context_column(name: str, schema) -> Optional[int]:
    """The column of query rows that --debias_context names, None for ""; `UserError` where no one column has it."""
    if not name:
        return None
    feature = context_feature(name, schema.query_features)
    if feature.width > 1:
        raise UserError(f"--debias_context={name} has several values per request: name one that has one")
    if feature.rows < 2:
        raise UserError(f"--debias_context={name} has no value in the training part: leave it out")
    return query_columns(schema.query_features)[feature.key].start


def build_variant(kind, model, capacity, mask_same_user, local_variable, balanced=True, entering=None, context=None,
                  keys=None, **settings) -> QueueNegatives:
    """The variant "in_batch", "raw" or "cached" over a new queue.

    Args:
      kind: variant.
      model: a `TwoTower`.
      capacity: Q.
      mask_same_user: leave a user's other clicks out of its denominator.
      local_variable: from the runtime, see `FifoQueue`.
      balanced, keys: see `CachedQueueNegatives`.
      entering, context: see `QueueNegatives`.
      **settings: log_q, impressions, local_constant, see `QueueNegatives`.
    """
    if kind == "in_batch":
        return InBatchNegatives(model, None, mask_same_user, context=context, **settings)
    settings |= dict(entering=entering, context=context)
    sizes = capacity, model, local_variable, context is not None
    if kind == "raw":
        return RawQueueNegatives(model, raw_queue(*sizes), mask_same_user, **settings)
    return CachedQueueNegatives(model, cached_queue(*sizes), mask_same_user, balanced=balanced, keys=keys,
                                **settings)
