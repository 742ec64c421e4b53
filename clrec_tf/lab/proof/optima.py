"""The closed-form table: what every loss learns in every simulation, and how good that is."""
import dataclasses

import numpy as np

from clrec_tf.lab.proof.exposure_simulator import ExposureSimulation
from clrec_tf.lab.proof.exposure_simulator import generate
from clrec_tf.lab.proof.exposure_simulator import SimulationSettings
from clrec_tf.lab.proof import measures
from clrec_tf.losses import closed_forms

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

SIMULATIONS = {
    "pop": SimulationSettings("pop"),
    "pop σ=.7": SimulationSettings("pop", quality_std=0.7),
    "quality σ=.7": SimulationSettings("quality", quality_std=0.7),
    "quality σ=1.4": SimulationSettings("quality", quality_std=1.4),
    "intent τ=3": SimulationSettings("intent", intent_relevance=0.5, intent_exposure=3.0),
    "intent τ=2 σ=.7": SimulationSettings("intent", quality_std=0.7, intent_exposure=2.0),
    "personal τ=3": SimulationSettings("personal", intent_relevance=0.5, intent_exposure=3.0),
    "personal τ=2 σ=.7": SimulationSettings("personal", quality_std=0.7, intent_exposure=2.0),
}


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """One simulation with what every loss learns in it.

    Attributes:
      name: key of `SIMULATIONS`.
      settings: of the simulation.
      simulation: its distributions.
      models: loss -> [X,V].
      measured: loss -> {kl (nats), oracle_recall, biased_recall, diversity (items), pop_auc}.
    """
    name: str
    settings: SimulationSettings
    simulation: ExposureSimulation
    models: dict[str, np.ndarray]
    measured: dict[str, dict]

    def column(self, measure: str, *without: str) -> dict:
        """loss -> value of one measure, some losses left out."""
        return {loss: row[measure] for loss, row in self.measured.items() if loss not in without}


def scorers(simulation: ExposureSimulation) -> dict[str, np.ndarray]:
    """What each loss learns in a simulation: name -> [X,V]."""
    p, popularity = simulation.clicks, simulation.click_popularity
    weights = closed_forms.relative_weights(p, simulation.exposure)
    return {
        MLE: closed_forms.maximum_likelihood(p),
        IPW: closed_forms.inverse_propensity(p, simulation.exposure),
        CLIPPED: closed_forms.clipped_inverse_propensity(p, weights, CAP),
        CLREC: closed_forms.click_queue(p, popularity),
        MULTI: closed_forms.multi_queue(p, popularity, simulation.intent),
        BETA75: closed_forms.debiased(p, popularity, 0.75),
        BETA50: closed_forms.debiased(p, popularity, 0.5),
        IMPRESSIONS: closed_forms.impression_queue(p, simulation.mean_exposure),
    }


def simulation_settings(name: str, seed: int) -> SimulationSettings:
    """Those of a simulation of the table."""
    return dataclasses.replace(SIMULATIONS[name], seed=seed)


def evaluate(seed: int) -> list[Evaluated]:
    """The whole table, the simulations generated with `seed`."""
    table = []
    for name in SIMULATIONS:
        settings = simulation_settings(name, seed)
        simulation = generate(settings)
        models = scorers(simulation)
        measured = {loss: measures.measure(simulation, model) for loss, model in models.items()}
        table.append(Evaluated(name, settings, simulation, models, measured))
    return table
