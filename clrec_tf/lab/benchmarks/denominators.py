"""The loss of Multi-CLRec alone, forward and backward, beside the matrix products that it cannot do without.

Letters: B batch, H intents, D width, Q capacity of each queue, V items. A row is compared with Q candidates of the main
queue and Q of one intent's, so the products are [B·H,D]·[D,2Q] forward and two as large backward.
"""
import dataclasses

import numpy as np
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.lab.benchmarks import timing
from clrec_tf.lab.children import peak_memory_bytes
from clrec_tf.lab.children import resident_memory_bytes
from clrec_tf.losses import multi_vector as losses

SEED = 3
EVEN, UNEVEN = "even", "uneven"  # how often each intent is a target's: alike, or falling as one over its rank


@dataclasses.dataclass(frozen=True)
class LossSizes:
    """Sizes of one loss.

    Attributes:
      batch: B.
      intents: H.
      capacity: Q.
      dim: D.
      temperature: ρ.
      draw: of the targets' intents.
    """
    batch: int
    intents: int
    capacity: int
    dim: int
    temperature: float
    draw: str = EVEN

    @property
    def live(self) -> int:
        """Candidates of a cached queue that are the batch's own."""
        return min(self.batch, self.capacity)

    @classmethod
    def from_config(cls, config: Config, intents: int, dim: int, draw: str = EVEN):
        """The settings' sizes."""
        return cls(config.train.batch_size, intents, config.loss.queue_size // 2, dim, config.model.temperature, draw)


class Inputs:
    """Random vectors, and the losses of them.

    Args:
      case: sizes.
      items: V, the items whose counts the count matrix has.
    """

    def __init__(self, case: LossSizes, items: int):
        self.case, random = case, np.random.default_rng(SEED)
        heads, capacity = case.intents, case.capacity
        unit = lambda *shape: tf.Variable(tf.math.l2_normalize(random.standard_normal(shape, np.float32), axis=-1))
        chances = 1.0 / np.arange(1, heads + 1) if case.draw == UNEVEN else np.ones(heads)
        self.intents = tf.constant(random.choice(heads, case.batch, p=chances / chances.sum()), tf.int32)
        self.shares = tf.fill([case.batch], 1.0 / case.batch)
        self.weight_logits = tf.constant(random.standard_normal((case.batch, heads), np.float32))
        self.vectors, self.positives = unit(case.batch, heads, case.dim), unit(case.batch, case.dim)
        self.main, self.own = unit(capacity, case.dim), unit(heads, capacity, case.dim)
        self.items = unit(items, case.dim)
        counted = lambda rows: np.stack([np.bincount(random.integers(0, items, capacity), minlength=items)
                                         for _ in range(rows)])
        self.counts = tf.constant(counted(1) + counted(heads), tf.float32)
        self.full = tf.ones([1, capacity]), tf.ones([heads, capacity])

    def grouped(self):
        """The loss over the queues' entries, all with gradient, as of raw queues."""
        return self._differentiated(self._of_queues, self.main, self.own)

    def cached(self):
        """The same of cached queues: of the candidates only the batch's own have a gradient."""
        return self._differentiated(lambda: self._of_queues(tf.ones([self.case.intents, self.case.live])), self.main)

    def counted(self):
        """The loss over all items with how often they stand in the queues."""
        return self._differentiated(lambda: losses.mean_log_denominator(
            self.vectors, self.intents, self.shares, self.items, self.counts,
            temperature=self.case.temperature)[0], self.items)

    def brute_force(self):
        """The loss with every queue scored by every vector."""
        main, own = self.full
        main = tf.repeat(main, self.case.intents, axis=0)
        return self._differentiated(lambda: tf.reduce_sum(self.shares * losses.brute_force_log_denominators(
            self.vectors, self.intents, self.main, main, self.own, own, self.case.temperature)), self.main, self.own)

    def products(self, candidates: int, live: int):
        """The products alone, every result in full: with `candidates`, `live` of them with gradient."""
        rows = self.case.batch * self.case.intents
        variable = lambda *shape: tf.Variable(tf.random.normal(shape), trainable=False)
        vectors, items, by_logits = (variable(rows, self.case.dim), variable(candidates, self.case.dim),
                                     variable(rows, candidates))
        one_of = lambda product: tf.reshape(product, [-1])[0]  # or TensorFlow would leave the product out
        return tf.function(lambda: [
            one_of(tf.matmul(vectors, items, transpose_b=True)), one_of(tf.matmul(by_logits, items)),
            one_of(tf.matmul(by_logits[:, :live], vectors, transpose_a=True))])

    def _of_queues(self, trained=None):
        main, own = self.full
        return losses.mean_log_denominator(self.vectors, self.intents, self.shares, self.main, main, self.own, own,
                                           temperature=self.case.temperature, trained=trained)[0]

    def _differentiated(self, denominator, *candidates):
        """Function of no arguments: the loss, numerator included, and one element of every gradient."""
        sources = [self.vectors, self.positives, *candidates]

        def loss_and_gradients():
            with tf.GradientTape() as tape:
                scores = tf.linalg.matvec(self.vectors, self.positives / self.case.temperature)
                selected = losses.selected_score(scores, self.weight_logits, "capped", 100.0)
                loss = denominator() - tf.reduce_sum(self.shares * selected)
            return [loss, *(tf.reshape(gradient, [-1])[0] for gradient in tape.gradient(loss, sources))]

        return tf.function(loss_and_gradients)


PATHS = {"grouped": Inputs.grouped, "counted": Inputs.counted, "brute_force": Inputs.brute_force}


def times(config: Config, intents: int, dim: int, items: int, brute_force: bool) -> dict:
    """Each path and its bare products in turn, with even and with uneven intents.

    Returns:
      draw -> dict of `ms` by path, `vs_bare_matmul` by path, and with `brute_force` `grouped_vs_brute_force`.
    """
    by_draw = {}
    for draw in (EVEN, UNEVEN):
        inputs = Inputs(LossSizes.from_config(config, intents, dim, draw), items)
        met = 2 * inputs.case.capacity
        bare = {"grouped": (met, met), "cached": (met, inputs.case.live), "counted": (items, items)}
        calls = {name: getattr(inputs, name)() for name in bare}
        calls |= {f"{name} bare": inputs.products(*sizes) for name, sizes in bare.items()}
        if brute_force:
            calls["brute_force"] = inputs.brute_force()
        seconds = timing.take_turns(calls, config.benchmark.rounds)
        over_bare = {name: round(timing.ratio(seconds, name, f"{name} bare"), 3) for name in bare}
        milliseconds = {name: round(1000 * float(np.median(rounds)), 2) for name, rounds in seconds.items()}
        by_draw[draw] = dict(ms=milliseconds, vs_bare_matmul=over_bare)
        if brute_force:
            by_draw[draw]["grouped_vs_brute_force"] = round(timing.ratio(seconds, "grouped", "brute_force"), 4)
    return by_draw


def peak_growth(config: Config, intents: int, dim: int, items: int, path: str) -> int:
    """By how many bytes a loss and its gradients raise this process' peak above what its inputs take."""
    tiny = Inputs(dataclasses.replace(LossSizes.from_config(config, intents, dim), batch=2, capacity=2), 2)
    PATHS[path](tiny)()  # what TensorFlow itself takes belongs to no path
    inputs = Inputs(LossSizes.from_config(config, intents, dim), items)
    call, before = PATHS[path](inputs), resident_memory_bytes()
    call()
    return peak_memory_bytes() - before
