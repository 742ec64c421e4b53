"""What every nearest-neighbour index over item vectors can do: exact, ScaNN's, faiss', and an updated one.

Letters: V items, N queries, d width. Results that a search lacks have position −1 and score −inf.
"""
import abc

import numpy as np


class Index(abc.ABC):
    """An index of `size` items, by position 0..V−1.

    Attributes:
      kind: its name in index.json.
      is_exact: whether searches find the true k best.
      size: V.
      parameters: what `load` of the same class needs beside the files, as JSON takes it.
      base_folder: where in its folder the files lie that no update changes; "" where these are all.
    """
    kind: str
    is_exact: bool
    size: int
    parameters: dict
    base_folder = ""

    @property
    @abc.abstractmethod
    def vectors(self) -> np.ndarray:
        """float32 [V,d], as they are compared, not to be written to."""

    @property
    def live(self) -> np.ndarray:
        """bool [V], which items can be found."""
        return np.ones(self.size, bool)

    def vectors_at(self, positions: np.ndarray) -> np.ndarray:
        """`vectors[positions]`, without a copy of all: int [N] -> float32 [N,d]."""
        return np.asarray(self.vectors[positions])

    @abc.abstractmethod
    def search(self, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The live items of highest inner product, best first.

        Args:
          vectors: float32 [N,d] of users. A zero vector, which an empty history has, gives the first k live positions
            with score 0.
          k: results wanted.

        Returns:
          (positions int64 [N,k], scores float32 [N,k]).
        """

    @abc.abstractmethod
    def save(self, folder: str) -> None:
        """Writes its files into an empty folder; index.json is `saved_index`'s."""


def no_results(users: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions and scores [users,k] of a search without a result, into which a search writes what it finds."""
    return np.full((users, k), -1, np.int64), np.full((users, k), -np.inf, np.float32)
