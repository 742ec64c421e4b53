"""By how much a user's vectors prefer items of their own intent, as coordinates of both (an extension of the paper).

A vector h and an item that is routed to h(y) get m·cos(e_h, e_{h(y)}) more in their logit: √(ρm)·e_h stands behind the
vector, √(ρm)·e_{h(y)} behind the item. So vectors need not keep away from items of other intents, which on a sphere
costs what tells their own apart.
"""
import numpy as np
import tensorflow as tf

MOST_DIRECTIONS = 16


class IntentMargin:
    """The coordinates of H intents.

    Args:
      intents: H.
      temperature: ρ.
      nats: m; 0: there are no coordinates.

    Attributes:
      nats: m.
      width: coordinates.
    """

    def __init__(self, intents: int, temperature: float, nats: float):
        rows = directions(intents) if nats else np.zeros((intents, 0))
        self.nats, self.width = nats, rows.shape[1]
        self._rows = tf.constant(np.sqrt(temperature * nats) * rows, tf.float32)

    def behind(self, vectors: tf.Tensor, intents: tf.Tensor) -> tf.Tensor:
        """Vectors [...,D] with the direction of each one's intent, int32 [...] -> [...,D+width]."""
        return tf.concat([vectors, tf.gather(self._rows, intents)], axis=-1) if self.width else vectors


def directions(intents: int) -> np.ndarray:
    """A fixed direction for each intent, [H,min(H, 16)] of norm 1: orthogonal where there are enough coordinates,
    orthogonal or opposite up to twice as many, and drawn at random beyond."""
    if intents <= MOST_DIRECTIONS:
        return np.eye(intents)
    if intents <= 2 * MOST_DIRECTIONS:
        return np.concatenate([np.eye(MOST_DIRECTIONS), -np.eye(MOST_DIRECTIONS)])[:intents]
    drawn = np.random.default_rng(0).standard_normal((intents, MOST_DIRECTIONS))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
