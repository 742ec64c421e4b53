"""The objective of --loss, with what it needs of the data beyond batches: catalogue, counts, impressions."""
import numpy as np

from clrec_tf.config import Config
from clrec_tf.config import LossConfig
from clrec_tf.data.exposures import read_exposures
from clrec_tf.data.frequencies import log_popularity
from clrec_tf.data.frequencies import smoothed_frequencies
from clrec_tf.data.item_rows import Items
from clrec_tf.data.item_rows import read_items
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import UserError
from clrec_tf.objectives.alias_sampler import AliasSampler
from clrec_tf.objectives.impression_stream import ImpressionStream
from clrec_tf.objectives.multi_queue_negatives import build_multi_queue
from clrec_tf.objectives.queue_variants import build_variant
from clrec_tf.objectives import sampled_variants

MAX_FULL_SOFTMAX = 20_000  # items; more are scored by sampled softmax
LITERAL_TEMPERATURE = 0.05  # the least with --st_mode=literal: float32 holds the square of e^(2/ρ), as norms need it
# Settings that only some losses read, by section.
SAMPLING = ("sampled_softmax", "negative_sampling", "shared_negative_sampling", "ipw")
USED_BY = {
    "loss": {**dict.fromkeys(("debias_beta", "negatives"), ("contrastive",)), "sampler": ("sampled_softmax",),
             **dict.fromkeys(("num_negatives", "sampler_power"), SAMPLING),
             **dict.fromkeys(("propensity", "propensity_data", "propensity_feature", "ipw_cap"), ("ipw",))},
    "model": dict.fromkeys(("mask_same_user", "prefill_queue", "st_mode", "st_max_ratio"), ("contrastive",)),
}
POWERS = dict(sampled_softmax=1.0, ipw=1.0, negative_sampling=0.75, shared_negative_sampling=0.75, bce=0.0)


def weight_cap(settings: LossConfig, schema: schema_lib.Schema) -> float:
    """The largest 1/q̂: --ipw_cap times that of an item shown as often as the average; infinite where it is 0."""
    return settings.ipw_cap * schema.num_items if settings.ipw_cap else np.inf


def build_objective(config: Config, schema: schema_lib.Schema, manifest: schema_lib.Manifest, model, runtime,
                    propensity=None):
    """The objective of --loss over a model.

    Args:
      config: settings.
      schema, manifest: of --data_dir.
      model: a `CLRec`.
      runtime: gives worker-local variables and constants.
      propensity: the first stage of ipw, () -> (batch, constants -> q̂ [B]; the constants); called for that loss only.

    Raises:
      UserError: settings that contradict each other or the data.
    """
    settings = config.loss
    _check(config, schema)
    local, constant, data_dir = runtime.local_variable, runtime.local_constant, config.paths.data_dir
    if config.model.model == "multi_clrec" and settings.loss == "contrastive":
        multi = config.model
        return build_multi_queue(multi.queue_kind, model, multi.queue_size // 2, local, schema.item_rows, multi.st_mode,
                                 multi.st_max_ratio, multi.balanced_gradient)
    if settings.loss == "contrastive" and settings.debias_beta == 1.0 and settings.negatives == "clicks":
        return build_variant(config.model.queue_kind, model, config.model.queue_size, config.model.mask_same_user,
                             local, balanced=config.model.balanced_gradient)
    items = read_items(data_dir, schema, manifest, model.item_encoder.item_width)
    if settings.loss == "contrastive":
        return _contrastive(config, manifest, model, items, runtime)
    if settings.loss == "ipw":
        softmax = _softmax(config, model, items, runtime, len(items.rows) - 1 <= MAX_FULL_SOFTMAX)
        of_batch, constants = propensity()
        return sampled_variants.PropensityWeighted(softmax, of_batch, weight_cap(settings, schema), constants, constant)
    if settings.loss in ("full_softmax", "sampled_softmax"):
        return _softmax(config, model, items, runtime, settings.loss == "full_softmax")
    return sampled_variants.NegativeSampling(
        model, items.rows, AliasSampler(_frequencies(settings, items), config.paths.seed, local, constant),
        1 if settings.loss == "bce" else settings.num_negatives or config.model.queue_size,
        settings.loss == "shared_negative_sampling", constant)


def _check(config, schema):
    """`UserError` where flags contradict each other, the loss or the data."""
    settings = config.loss
    if -1.0 < settings.sampler_power < 0.0:
        raise UserError(f"--sampler_power={settings.sampler_power} would draw rare items more often than popular ones: "
                        "give 0 or more, or −1 for the default")
    for name, section in (("loss", settings), ("model", config.model)):
        for flag, losses in USED_BY[name].items():
            value = getattr(section, flag)
            if settings.loss not in losses and value != getattr(type(section), flag):
                raise UserError(f"--{flag}={value} belongs to --loss={', '.join(losses)}, not to {settings.loss}: "
                                "leave it out")
    if config.model.model == "multi_clrec" and settings.loss == "contrastive":
        if config.model.queue_kind == "in_batch":
            raise UserError("--queue=in_batch with --model=multi_clrec: its queues are what it learns from; use raw or "
                            "cached")
        for flag in ("debias_beta", "negatives"):
            if getattr(settings, flag) != getattr(LossConfig, flag):
                raise UserError(f"--{flag}={getattr(settings, flag)} belongs to --model=clrec: the queues of "
                                "multi_clrec hold clicks, and its loss has no correction; leave it out")
        if config.model.st_mode == "literal" and config.model.temperature < LITERAL_TEMPERATURE:
            raise UserError(f"--st_mode=literal with --temperature={config.model.temperature}: its gradient grows to "
                            f"e^(2/ρ), more than float32 holds; use soft or capped, or at least {LITERAL_TEMPERATURE}")
    if settings.negatives == "impressions" and config.model.mask_same_user:
        raise UserError("--mask_same_user and --negatives=impressions: impressions have no clicks of the same user to "
                        "leave out; give one of them")
    if settings.loss == "full_softmax" and schema.num_items > MAX_FULL_SOFTMAX:
        raise UserError(f"--loss=full_softmax scores every item in every step; {schema.num_items} are more than "
                        f"{MAX_FULL_SOFTMAX}: use sampled_softmax, whose optimum is the same")


def _contrastive(config, manifest, model, items, runtime):
    """CLRec with a correction of degree β, or with impressions in the queue; what is corrected is the queue's p̂."""
    settings, impressions, log_q, counts = config.loss, None, None, items.counts
    if settings.negatives == "impressions":
        shown = np.array(read_exposures(config.paths.data_dir, manifest, "--negatives=impressions")[:, 1])
        impressions = ImpressionStream(shown, items.rows, config.paths.seed, runtime.local_variable,
                                       runtime.local_constant)
        counts = np.bincount(shown, minlength=len(items.rows))
    if settings.debias_beta < 1.0:
        log_q = (1.0 - settings.debias_beta) * log_popularity(counts)
        log_q[1:] -= log_q[1:].mean()  # a constant changes nothing, and exponents stay small
    return build_variant(config.model.queue_kind, model, config.model.queue_size, config.model.mask_same_user,
                         runtime.local_variable, log_q, impressions, config.model.balanced_gradient,
                         runtime.local_constant)


def _softmax(config, model, items, runtime, full: bool):
    """Softmax over all items, or over sampled ones."""
    rows, constant = items.rows, runtime.local_constant
    count = config.loss.num_negatives or config.model.queue_size
    if full:
        return sampled_variants.FullSoftmax(model, rows, local_constant=constant)
    if config.loss.sampler == "tf_default":
        return sampled_variants.TfDefaultSampledSoftmax(model, rows, None, count, constant)
    frequencies = _frequencies(config.loss, items)
    log_q = np.append(0.0, np.log(frequencies)).astype(np.float32)
    sampler = AliasSampler(frequencies, config.paths.seed, runtime.local_variable, constant)
    return sampled_variants.SampledSoftmax(model, rows, sampler, count, log_q, constant)


def _frequencies(settings: LossConfig, items: Items) -> np.ndarray:
    """The sampler's distribution over ids 1..item_rows−1."""
    power = POWERS[settings.loss] if settings.sampler_power < 0 or settings.loss == "bce" else settings.sampler_power
    return smoothed_frequencies(items.counts[1:], power)
