"""Multi-CLRec's loss, --loss=contrastive with --model=multi_clrec: 1+H queues of clicks."""
import dataclasses
import typing

from clrec_tf.errors import UserError
from clrec_tf.losses import closed_forms
from clrec_tf.objectives.cached_multi_queue import CachedMultiQueue
from clrec_tf.objectives.queue_settings import ChosenByQueue
from clrec_tf.objectives.queue_settings import QueueSettings
from clrec_tf.objectives.raw_multi_queue import RawMultiQueue
from clrec_tf.settings.registry import LOSSES
from clrec_tf.settings.setting import setting

AUTO_BETA = -1.0
LITERAL_TEMPERATURE = 0.05  # the least with --st_mode=literal: float32 holds the square of e^(2/ρ), as norms need it


@dataclasses.dataclass(frozen=True)
class MultiQueueSettings(QueueSettings):
    """--loss=contrastive --model=multi_clrec"""
    AUTO: typing.ClassVar[str] = "raw"  # entries stay long in an intent's queue, so vectors would be old
    st_mode: str = setting("soft",
        "multi_clrec: gradient of the choice among a user's vectors. literal: as the formula reads, without bound. "
        "capped: at most --st_max_ratio. soft: of the mixture of all vectors.", choices=("literal", "capped", "soft"))
    st_max_ratio: float = setting(100.0, "multi_clrec: largest e^(s_h − s_h*) in the gradient of st_mode capped.",
                                  lower=1.0)

    intent_beta: float = setting(AUTO_BETA,
        "multi_clrec: how much of the popularity of a user's own intents the loss removes beside that of the items. 1: "
        "all that its queues do (paper), for logs whose exposure follows intents. 0: none, so that what is learned is "
        "p(y|x)/p(y), as CLRec's. -1: 1 with --multi_objective=paper, 0 with gated.", lower=-1.0, upper=1.0)

    def beta_of(self, objective: str) -> float:
        """--intent_beta, chosen by --multi_objective where it is -1."""
        return float(objective == "paper") if self.intent_beta == AUTO_BETA else self.intent_beta

    def check(self, config):
        """`UserError` where a batch does not enter the main queue whole, or flags contradict each other."""
        if AUTO_BETA < self.intent_beta < 0:
            raise UserError(f"--intent_beta={self.intent_beta}: must be from 0 to 1, or -1")
        size, batch = config.loss.queue_size, config.train.batch_size
        if size % 2 or size < 2 * batch:
            raise UserError(
                f"--queue_size={size} with --model=multi_clrec: half of it is the main queue, which a batch enters "
                f"whole; give an even number of at least twice --batch_size={batch}")
        if self.queue in ("in_batch", "all_clicks"):
            raise UserError(f"--queue={self.queue} with --model=multi_clrec: its queues are what it learns from; use raw "
                            "or cached")
        self._check_objective(config.tower.multi_objective)
        if self.st_mode == "literal" and config.model.temperature < LITERAL_TEMPERATURE:
            raise UserError(f"--st_mode=literal with --temperature={config.model.temperature}: its gradient grows to "
                            f"e^(2/ρ), more than float32 holds; use soft or capped, or at least {LITERAL_TEMPERATURE}")


    def _check_objective(self, objective):
        """`UserError` where a setting of the paper's objective is given with another."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if objective != "paper" and field.name in ("st_mode", "st_max_ratio") and value != field.default:
                raise UserError(f"--{field.name}={value} is read with --multi_objective=paper, not with {objective}: "
                                "leave it out, or give that")


@LOSSES.register("contrastive", tower="multi_clrec")
class MultiQueueContrastive(ChosenByQueue):
    """`MultiQueueNegatives`."""

    Settings, all_vectors = MultiQueueSettings, True
    summary = "CLRec, negatives from --queue."

    @classmethod
    def variant(cls, inputs, settings):
        """Half of --queue_size is the main queue's, half each intent's."""
        return build_multi_queue(settings.queue_kind, inputs.model, inputs.config.loss.queue_size // 2,
                                 inputs.local_variable, inputs.num_items + 1, settings.st_mode, settings.st_max_ratio,
                                 settings.beta_of(inputs.model.settings.multi_objective), settings.balanced_gradient)

    @classmethod
    def closed_form(cls, world, settings):
        """The fixed point for one vector per context, and as many clicks in the main queue as in an intent's."""
        if not settings.follows_the_loss:
            return None
        return closed_forms.multi_queue(world.clicks, world.click_popularity, world.intent, settings.beta_of("gated"))


def build_multi_queue(kind, model, capacity, local_variable, item_rows, st_mode, st_max_ratio, intent_beta=1.0,
                      balanced=True):
    """The objective "raw" or "cached" over new queues; see the classes."""
    arguments = model, capacity, local_variable, st_mode, st_max_ratio, intent_beta
    if kind == "raw":
        return RawMultiQueue(item_rows, *arguments)
    return CachedMultiQueue(*arguments, balanced=balanced)
