"""The vectors that users are searched with: of one or several intents, with their weights."""
import dataclasses
from typing import Sequence
from typing import Union

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Intents:
    """K intents of each of N users, each user's heaviest first.

    Attributes:
      vectors: float32 [N,K,d], ready to be compared, of a bundle [N,K,d+1] with the dial's coordinate; zero for a
        history without a known item.
      weights: float32 [N,K]; they sum to 1 over all H intents that the model has, not over fewer.
      numbers: int32 [N,K], which of the H intents each is.
    """
    vectors: np.ndarray
    weights: np.ndarray
    numbers: np.ndarray

    def heaviest(self, count: int) -> "Intents":
        """The first `count` of each user."""
        return Intents(self.vectors[:, :count], self.weights[:, :count], self.numbers[:, :count])

    def of(self, rows: Sequence[int]) -> "Intents":
        """Those of some users."""
        return Intents(self.vectors[rows], self.weights[rows], self.numbers[rows])

    def by_number(self) -> "Intents":
        """The same in the order of the numbers: almost equal weights come in either order from two computations."""
        order = np.argsort(self.numbers, axis=1)
        return Intents(np.take_along_axis(self.vectors, order[:, :, None], 1),
                       np.take_along_axis(self.weights, order, 1), np.take_along_axis(self.numbers, order, 1))

    def queries(self) -> np.ndarray:
        """All vectors [N·K,d], a user's together."""
        return self.vectors.reshape(-1, self.vectors.shape[2])


def concatenated(parts: Sequence[Intents], count: int, dim: int) -> Intents:
    """The users of all parts, of `count` intents of width `dim`, in order; there may be no part."""
    joined = lambda name, shape, dtype: np.concatenate([np.zeros(shape, dtype), *(getattr(p, name) for p in parts)])
    return Intents(joined("vectors", (0, count, dim), np.float32), joined("weights", (0, count), np.float32),
                   joined("numbers", (0, count), np.int32))


def served(signature, inputs: dict, num_intents: int, count: Union[int, Sequence[int]]) -> Intents:
    """Calls `serving_default` (see `saved_model`).

    Args:
      signature: of a loaded tower.
      inputs: arrays by input, without `intents`.
      num_intents: H of the tower.
      count: K, 1..H, for all users or of each; a user of fewer than another is padded, see `saved_model`.
    """
    users = len(inputs["history"])
    inputs = {name: tf.constant(value) for name, value in inputs.items()}
    if num_intents > 1:
        inputs["intents"] = tf.constant(np.broadcast_to(np.asarray(count, np.int32), users))
    outputs = {name: value.numpy() for name, value in signature(**inputs).items()}
    numbers = outputs.get("intents", np.zeros(outputs["weights"].shape, np.int32))
    return Intents(outputs["user_vectors"], outputs["weights"], numbers)
