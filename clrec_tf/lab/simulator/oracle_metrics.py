"""Metrics of recommended lists against the truth of a simulation: what no click log can tell.

Letters: U users, V items, L length of the lists.
"""
from typing import Iterator

import numpy as np

from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.evaluation.protocols import ScoreChunk
from clrec_tf.lab.simulator import simulated_logs

CHUNK = 512


class Judge:
    """Knows each evaluated user's context at the next click.

    Args:
      truth: of the simulation.
      users: U evaluated users, numbered as prepare does: by their first click in the log, which is sorted by user.
      original_ids: [V] ids of the data set's items 1..V; V may be less than the simulation has items.

    Raises:
      DataError: the users are not of this simulation.
    """

    def __init__(self, truth: simulated_logs.Truth, users: EvaluationSet, original_ids: np.ndarray):
        simulated_users = np.unique(truth.click_user)[users.user_ids]
        self.contexts = truth.contexts_at(simulated_users, users.request_times)
        self._columns = np.searchsorted(truth.item_ids, original_ids.astype(str))
        self._truth = truth

    def oracle_scorer(self) -> ScoreChunk:
        """Scores c(x,y) of the data set's items: who recommends by it knows everything."""
        return lambda start, stop: self._truth.relevance[self.contexts[start:stop]][:, self._columns]

    def of_lists(self, lists: np.ndarray) -> dict[str, float]:
        """Means over users of the lists [U,L] of item ids from 1, without empty places.

        Returns:
          `oracle_recall@L`: Σ of o(y|x) = c/Σc over the list. `ctr@L`: mean of c(x,y), the share of the list that would
          be clicked if it were shown.
        """
        recall, clicks = [], []
        for start, oracle in self._chunks():
            columns = self._columns[lists[start:start + len(oracle)] - 1]
            recall.append(np.take_along_axis(oracle, columns, axis=1).sum(axis=1))
            relevance = self._truth.relevance[self.contexts[start:start + len(oracle)]]
            clicks.append(np.take_along_axis(relevance, columns, axis=1).mean(axis=1))
        length = lists.shape[1]
        return {f"oracle_recall@{length}": float(np.concatenate(recall).mean()),
                f"ctr@{length}": float(np.concatenate(clicks).mean())}

    def divergence(self, logits: ScoreChunk) -> float:
        """KL(o‖softmax φ) over the data set's items, nats, mean over users; `logits` gives φ [n,V]."""
        divergences = []
        for start, oracle in self._chunks():
            oracle = oracle[:, self._columns]
            oracle /= oracle.sum(axis=1, keepdims=True)
            scores = np.asarray(logits(start, start + len(oracle)), np.float64)
            shifted = scores - scores.max(axis=1, keepdims=True)
            log_model = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
            divergences.append((oracle * (np.log(oracle) - log_model)).sum(axis=1))
        return float(np.concatenate(divergences).mean())

    def _chunks(self) -> Iterator[tuple[int, np.ndarray]]:
        """(first user, o [n, items of the simulation]) of all users."""
        for start in range(0, len(self.contexts), CHUNK):
            yield start, simulated_logs.oracle_distribution(self._truth, self.contexts[start:start + CHUNK])
