"""log Z of rows sorted by intent, group by group and chunk by chunk, and its gradients while the logits are there.

What `multi_vector.mean_log_denominator` computes with; its letters, and G groups of rows. Pure.
"""
import dataclasses
import math

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Candidates:
    """Some of what a chunk meets.

    Attributes:
      vectors: [M,D].
      counts: [M].
      live: how many, the first, have a gradient; None: none.
    """
    vectors: tf.Tensor
    counts: tf.Tensor
    live: tf.Tensor | None


@dataclasses.dataclass(frozen=True)
class SortedRows:
    """Rows of users, sorted by the group whose own candidates they meet.

    Attributes:
      vectors: z/ρ [B,H,D].
      log_weights: log w [B,H].
      log_terms: [B], the logarithm of what each row's sum has besides; −inf: nothing.
      shares: [B], of each row in the mean.
      begins, ends: [G] int32, the rows of each group.
    """
    vectors: tf.Tensor
    log_weights: tf.Tensor
    log_terms: tf.Tensor
    shares: tf.Tensor
    begins: tf.Tensor
    ends: tf.Tensor

    def chunk(self, begin, stop):
        """(vectors, log weights, log terms, shares) of some rows."""
        return (self.vectors[begin:stop], self.log_weights[begin:stop], self.log_terms[begin:stop],
                self.shares[begin:stop])


class GroupedCandidates:
    """The candidates of all groups.

    Args:
      shared: [N,D], and `shared_counts` [G,N] or [1,N].
      own: [G,Q,D] with `own_counts` [G,Q], or None.
      trained: [G,n], what a gradient by each of the first n shared candidates is multiplied by; then no own candidate
        has one. None: all have.
      shifted: whether exponents need a shift to stay finite.
      chunk: rows at once.
    """

    def __init__(self, shared, shared_counts, own, own_counts, trained, shifted, chunk):
        self._size, self._width = tf.shape(shared)[0], shared.shape[1]
        self._shared_counts, self._own, self._own_counts = shared_counts, own, own_counts
        self._trained, self._shifted, self._chunk = trained, shifted, chunk
        self._groups = own.shape[0] if own is not None else shared_counts.shape[0]
        # Of shared candidates the first `train_shared` have a gradient; of own ones all or none.
        self._train_shared, self._train_own = (
            (self._size, own is not None) if trained is None else (tf.shape(trained)[1], False))
        self._shared = _without_empty(shared, tf.reduce_max(shared_counts, axis=0))

    def differentiate(self, rows: SortedRows):
        """-> (log Z [B], gradients of Σ share·log Z by rows [B,H,D], by log w [B,H], by the log terms [B], by shared
        [N,D], by own [G,Q,D] or a scalar without meaning)."""
        heads = rows.vectors.shape[1]
        pieces = lambda *shape: tf.TensorArray(tf.float32, 0, dynamic_size=True, infer_shape=False,
                                               element_shape=[None, *shape])
        queues = tf.TensorArray(tf.float32, self._groups if self._train_own else 0,
                                element_shape=self._own.shape[1:] if self._train_own else None)
        of_group = lambda *state: self._of_group(rows, *state)
        of_rows = [pieces(), pieces(heads, self._width), pieces(heads), pieces()]
        _, of_rows, by_shared, by_own, _ = tf.while_loop(
            lambda group, *_: group < self._groups, of_group,
            [0, of_rows, tf.zeros([self._train_shared, self._width]), queues, 0],
            shape_invariants=[tf.TensorShape([]), [None] * len(of_rows), tf.TensorShape([None, self._width]), None,
                              tf.TensorShape([])],
            parallel_iterations=1)
        logs, by_rows, by_weights, by_terms = (piece.concat() for piece in of_rows)
        by_shared = tf.pad(by_shared, [[0, self._size - self._train_shared], [0, 0]])
        if self._own is None:
            by_own = tf.zeros([])
        else:
            by_own = by_own.stack() if self._train_own else tf.zeros_like(self._own)
        return (logs, tf.reshape(by_rows, [-1, heads, self._width]), tf.reshape(by_weights, [-1, heads]), by_terms,
                by_shared, by_own)

    def _of_group(self, rows, group, of_rows, by_shared, by_own, piece):
        """One group's chunks, in turn."""
        sets, end = self._sets(group), rows.ends[group]

        def of_chunk(begin, of_rows, by_sets, piece):
            stop = tf.minimum(begin + self._chunk, end)
            *found, by_live = _chunk(*rows.chunk(begin, stop), sets, self._shifted)
            by_sets = [sums + more for sums, more in zip(by_sets, by_live)]
            return stop, [array.write(piece, part) for array, part in zip(of_rows, found)], by_sets, piece + 1

        # Sums go on from where the groups before left them, unless a group's have a factor of their own.
        new = lambda candidates: tf.zeros([candidates.live, self._width])
        live = [by_shared if self._trained is None else new(sets[0])] + [
            new(candidates) for candidates in sets[1:] if candidates.live is not None]
        _, of_rows, by_sets, piece = tf.while_loop(
            lambda begin, *_: begin < end, of_chunk, [rows.begins[group], of_rows, live, piece],
            shape_invariants=[tf.TensorShape([]), [None] * len(of_rows),
                              [tf.TensorShape([None, self._width])] * len(live), tf.TensorShape([])],
            parallel_iterations=1)
        by_shared = by_sets[0] if self._trained is None else by_shared + self._trained[group][:, None] * by_sets[0]
        if self._train_own:
            by_own = by_own.write(group, by_sets[1])
        return group + 1, of_rows, by_shared, by_own, piece

    def _sets(self, group) -> list[Candidates]:
        """What the rows of a group meet: the shared candidates, and the group's own."""
        counts = self._shared_counts[tf.minimum(group, self._shared_counts.shape[0] - 1)]
        sets = [Candidates(self._shared, counts, self._train_shared)]
        if self._own is not None:
            mine = _without_empty(self._own[group], self._own_counts[group])
            sets.append(Candidates(mine, self._own_counts[group], tf.shape(mine)[0] if self._train_own else None))
        return sets


def _without_empty(vectors, counts):
    """Zeros in empty slots, which may hold anything: it must not become inf·0."""
    return tf.where(counts[:, None] > 0, vectors, 0.0)


def _chunk(rows, log_weights, log_terms, shares, sets, shifted):
    """Rows [n,H,D], already over ρ, with sets of `Candidates`, each in its own products: to join them would copy them.

    Returns:
      (log of the denominators [n]; the gradient of Σ share·log by the rows [n,H,D], by log w [n,H], by the log
      terms [n]; [those by each set's live ones]).
    """
    heads, width = rows.shape[1], rows.shape[2]
    flat = tf.reshape(rows, [-1, width])
    logits = [tf.matmul(flat, part.vectors, transpose_b=True) for part in sets]
    counts, weights, top = [part.counts for part in sets], tf.reshape(tf.exp(log_weights), [-1]), 0.0
    if shifted:
        # Counts and weights in the exponent, −inf for an empty slot: what has none may not decide the shift.
        logits = [tf.nn.bias_add(part, tf.math.log(count)) + tf.reshape(log_weights, [-1, 1])
                  for part, count in zip(logits, counts)]
        top = tf.reduce_max([tf.reduce_max(tf.reshape(tf.reduce_max(part, axis=1), [-1, heads]), axis=1)
                             for part in logits], axis=0)
        top = tf.maximum(top, log_terms)
        top = tf.where(top > -math.inf, top, 0.0)
        logits = [part - tf.repeat(top, heads)[:, None] for part in logits]
        counts, weights = [tf.cast(count > 0, tf.float32) for count in counts], tf.ones_like(weights)
    # Without a shift counts and weights enter through the products: each term is touched by nothing but exp.
    terms = [tf.exp(part) for part in logits]
    sums = weights * tf.add_n([tf.linalg.matvec(term, count) for term, count in zip(terms, counts)])
    besides = tf.exp(log_terms - top)
    of_rows = tf.reduce_sum(tf.reshape(sums, [-1, heads]), axis=1) + besides
    of_one = tf.math.divide_no_nan(shares, of_rows)
    factors = tf.repeat(of_one, heads)
    scale = (factors * weights)[:, None]
    by_rows = scale * tf.add_n([tf.matmul(term, count[:, None] * part.vectors)
                                for term, count, part in zip(terms, counts, sets)])
    scaled = scale * flat
    by_live = [count[:part.live, None] * tf.matmul(term[:, :part.live], scaled, transpose_a=True)
               for term, count, part in zip(terms, counts, sets) if part.live is not None]
    # 0 where nothing is compared with, as in a batch of rows that do not count.
    logs = tf.math.log(tf.where(of_rows > 0, of_rows, 1.0)) + top
    return logs, tf.reshape(by_rows, [-1, heads, width]), tf.reshape(factors * sums, [-1, heads]), of_one * besides, by_live
