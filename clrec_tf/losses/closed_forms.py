"""What each loss learns when it has learned all: the distribution softmax φ(x,·) at its optimum, one function each.

Letters: X contexts, V items. p [X,V] is p_data(y|x), the distribution of clicks; results are [X,V], rows summing to 1.
"""
import numpy as np

FIXED_POINT_STEPS = 3000


def normalized(rows: np.ndarray) -> np.ndarray:
    """Rows scaled to sum 1: [X,V] -> [X,V]."""
    return rows / rows.sum(axis=-1, keepdims=True)


def maximum_likelihood(p: np.ndarray) -> np.ndarray:
    """Full softmax, and sampled softmax with logQ correction: p itself, exposure included."""
    return p


def inverse_propensity(p: np.ndarray, exposure: np.ndarray) -> np.ndarray:
    """IPW, and the contrastive loss with negatives from q(·|x): p/q ∝ c, the oracle. exposure q [X,V]."""
    return normalized(p / exposure)


def clipped_inverse_propensity(p: np.ndarray, weights: np.ndarray, cap: float) -> np.ndarray:
    """IPW with clipped weights: p·min(w, cap). weights w [X,V], 1/q or `relative_weights`."""
    return normalized(p * np.minimum(weights, cap))


def relative_weights(p: np.ndarray, exposure: np.ndarray) -> np.ndarray:
    """1/q scaled to mean 1 over the clicks of each context: [X,V], [X,V] -> [X,V]."""
    return 1 / exposure / (p / exposure).sum(axis=1, keepdims=True)


def click_queue(p: np.ndarray, popularity: np.ndarray) -> np.ndarray:
    """CLRec, negatives from the queue of clicks: p/p_d, pointwise mutual information. popularity p_d [V]."""
    return normalized(p / popularity)


def debiased(p: np.ndarray, popularity: np.ndarray, beta: float) -> np.ndarray:
    """The contrastive loss of logits φ − (1−β) log p_d: p/p_d^β; β=1 is CLRec, β=0 maximum likelihood."""
    return normalized(p / popularity ** beta)


def impression_queue(p: np.ndarray, mean_exposure: np.ndarray) -> np.ndarray:
    """Negatives from a queue of impressions: p/q̄, which is the oracle where exposure ignores x. q̄ [V]."""
    return normalized(p / mean_exposure)


def negative_sampling(p: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Logistic loss, own or shared negatives: p/p_n. noise p_n [V]."""
    return normalized(p / noise)


def uniform_bce(p: np.ndarray) -> np.ndarray:
    """Logistic loss with uniform negatives (SASRec): p/(1/V), so p."""
    return negative_sampling(p, np.full(p.shape[1], 1 / p.shape[1]))


def dialled(model: np.ndarray, popularity: np.ndarray, alpha: float) -> np.ndarray:
    """softmax of log m + α·log p̂, a model m [X,V] served at popularity α: m = p/p̂^β becomes p/p̂^{β−α}.

    `popularity` [V] is what the model was trained against: p_d, or q̄ for a queue of impressions.
    """
    return normalized(model * popularity ** alpha)


def rebiased(scores: np.ndarray, popularity: np.ndarray) -> np.ndarray:
    """log m + log p_d: of m = p/p_d it ranks as p does. scores m [X,V], popularity [V] -> scores [X,V]."""
    return np.log(scores) + np.log(popularity)


def intent_negatives(popularity: np.ndarray, intent: np.ndarray) -> np.ndarray:
    """n_h = ½p_d + ½p_d(·|h), what Multi-CLRec's positive of intent h is compared with: [V], int [V] -> [H,V]."""
    of_intent = intent == np.arange(intent.max() + 1)[:, None]
    return 0.5 * popularity + 0.5 * normalized(popularity * of_intent)


def multi_queue(p: np.ndarray, popularity: np.ndarray, intent: np.ndarray, intent_beta: float = 1.0) -> np.ndarray:
    """Multi-CLRec with many negatives: the fixed point of e^φ = p / Σ_h P_h n_h/Z_h, Z_h = Σ_y n_h e^φ.

    P_h is the intent's share of the context's clicks. Each step goes half the way.

    Args:
      p: [X,V].
      popularity: p_d [V].
      intent: of each item [V], 0..H−1.
      intent_beta: 0: negatives of the target's intent count less, as they are more than among clicks, which leaves
        p/p_d; between: n_h^β'·p_d^(1−β').
    """
    negatives = intent_negatives(popularity, intent) ** intent_beta * popularity ** (1 - intent_beta)
    share = p @ (intent[:, None] == np.arange(len(negatives)))
    phi = np.zeros_like(p)
    for _ in range(FIXED_POINT_STEPS):
        mass = np.exp(phi) @ negatives.T
        phi = 0.5 * phi + 0.5 * (np.log(p) - np.log((share / mass) @ negatives))
        phi -= phi.max(axis=1, keepdims=True)
    return normalized(np.exp(phi))
