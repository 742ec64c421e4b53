"""The closed-form table: what every loss learns in every world, and how good that is."""
import dataclasses

import numpy as np

from clrec_tf.lab.proof import closed_forms
from clrec_tf.lab.proof.exposure_simulator import ExposureWorld
from clrec_tf.lab.proof.exposure_simulator import generate
from clrec_tf.lab.proof.exposure_simulator import WorldSettings
from clrec_tf.lab.proof import measures

CAP = 10.0  # of clipped weights, relative to their mean

MLE, IPW, CLIPPED, CLREC = "softmax", "IPW", "IPW, clipped", "CLRec"
MULTI, BETA75, BETA50, IMPRESSIONS = "Multi-CLRec", "β=.75", "β=.5", "impression queue"
LEGEND = {
    MLE: "full softmax, sampled softmax with logQ correction, BCE with uniform negatives",
    IPW: "inverse propensity weighting, or contrastive with negatives from q(·|x): the oracle",
    CLIPPED: f"its weights cut at {CAP:g} times their mean",
    CLREC: "contrastive with the queue of clicks",
    BETA75: "CLRec's logits corrected by (1−β) log p_d; negative sampling from p_d^β, own or shared",
    IMPRESSIONS: "contrastive with a queue of impressions",
}

WORLDS = {
    "pop": WorldSettings("pop"),
    "pop σ=.7": WorldSettings("pop", quality_std=0.7),
    "quality σ=.7": WorldSettings("quality", quality_std=0.7),
    "quality σ=1.4": WorldSettings("quality", quality_std=1.4),
    "intent τ=3": WorldSettings("intent", intent_relevance=0.5, intent_exposure=3.0),
    "intent τ=2 σ=.7": WorldSettings("intent", quality_std=0.7, intent_exposure=2.0),
    "personal τ=3": WorldSettings("personal", intent_relevance=0.5, intent_exposure=3.0),
    "personal τ=2 σ=.7": WorldSettings("personal", quality_std=0.7, intent_exposure=2.0),
}


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """One world with what every loss learns in it.

    Attributes:
      name: key of `WORLDS`.
      settings: of the world.
      world: its distributions.
      models: loss -> [X,V].
      measured: loss -> {kl (nats), oracle_recall, biased_recall, diversity (items), pop_auc}.
    """
    name: str
    settings: WorldSettings
    world: ExposureWorld
    models: dict[str, np.ndarray]
    measured: dict[str, dict]

    def column(self, measure: str, *without: str) -> dict:
        """loss -> value of one measure, some losses left out."""
        return {loss: row[measure] for loss, row in self.measured.items() if loss not in without}


def scorers(world: ExposureWorld) -> dict[str, np.ndarray]:
    """What each loss learns in a world: name -> [X,V]."""
    p, popularity = world.clicks, world.click_popularity
    weights = closed_forms.relative_weights(p, world.exposure)
    return {
        MLE: closed_forms.maximum_likelihood(p),
        IPW: closed_forms.inverse_propensity(p, world.exposure),
        CLIPPED: closed_forms.clipped_inverse_propensity(p, weights, CAP),
        CLREC: closed_forms.click_queue(p, popularity),
        MULTI: closed_forms.multi_queue(p, popularity, world.intent),
        BETA75: closed_forms.debiased(p, popularity, 0.75),
        BETA50: closed_forms.debiased(p, popularity, 0.5),
        IMPRESSIONS: closed_forms.impression_queue(p, world.mean_exposure),
    }


def world_settings(name: str, seed: int) -> WorldSettings:
    """Those of a world of the table."""
    return dataclasses.replace(WORLDS[name], seed=seed)


def evaluate(seed: int) -> list[Evaluated]:
    """The whole table, the worlds generated with `seed`."""
    found = []
    for name in WORLDS:
        settings = world_settings(name, seed)
        world = generate(settings)
        models = scorers(world)
        measured = {loss: measures.measure(world, model) for loss, model in models.items()}
        found.append(Evaluated(name, settings, world, models, measured))
    return found
