"""Settings of losses that sample negatives from the catalogue."""
import dataclasses

from clrec_tf.data.frequencies import smoothed_frequencies
from clrec_tf.errors import UserError
from clrec_tf.objectives.alias_sampler import AliasSampler
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class SamplingSettings(Section):
    """Negatives sampled from the catalogue."""
    num_negatives: int = setting(0, "Sampled negatives L (0: as many as --queue_size; bce: always one).", lower=0)
    sampler_power: float = setting(-1.0,
        "Exponent of the training count in the sampler (−1: 1 for sampled_softmax, .75 for negative sampling; bce is "
        "uniform).", lower=-1.0, upper=2.0)

    def __post_init__(self):
        super().__post_init__()
        if -1.0 < self.sampler_power < 0.0:
            raise UserError(f"--sampler_power={self.sampler_power} would draw rare items more often than popular ones: "
                            "give 0 or more, or −1 for the default")

    def frequencies(self, counts, default_power: float):
        """The sampler's distribution over ids 1..item_rows−1, from training counts [item_rows]."""
        return smoothed_frequencies(counts[1:], default_power if self.sampler_power < 0 else self.sampler_power)

    def negatives(self, config) -> int:
        """L."""
        return self.num_negatives or config.loss.queue_size


def make_sampler(frequencies, inputs) -> AliasSampler:
    """A sampler of ids minus one by their frequencies [item_rows−1]."""
    return AliasSampler(frequencies, inputs.seed, inputs.local_variable, inputs.local_constant)
