"""The multi-interest query tower of MIND, `--user_encoder=mind` (Li et al. 2019, arXiv 1904.08030). Letters: B users, T
clicks, K interests, D width."""
import dataclasses

import tensorflow as tf
import tf_keras

from clrec_tf.encoders.base import UserEncoder
from clrec_tf.encoders.base import UserVectors
from clrec_tf.encoders.dense import apply_layers
from clrec_tf.encoders.dense import product
from clrec_tf.errors import UserError
from clrec_tf.losses.contrastive import MASKED
from clrec_tf.settings.registry import ENCODERS
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


def squash(vectors: tf.Tensor) -> tf.Tensor:
    """|z|²/(1 + |z|²)·z/|z|, the direction of z with a length below 1: [...,D] -> [...,D]; 0 stays 0."""
    squared = tf.reduce_sum(tf.square(vectors), axis=-1, keepdims=True)
    return vectors * squared / (1.0 + squared) * tf.math.rsqrt(tf.maximum(squared, 1e-12))


def interests_in_use(clicks: tf.Tensor, interests: int) -> tf.Tensor:
    """Which capsules users have, the first K'_u = max(1, min(K, ⌊log₂ n_u⌋)): numbers of clicks n [B] -> [B,K] bool."""
    needed = tf.constant([0] + [2 ** number for number in range(2, interests + 1)], clicks.dtype)
    return clicks[:, None] >= needed


def routing_shares(logits: tf.Tensor, in_use: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """w_{tk} = softmax_k over the capsules in use, how a click is shared out: b [B,T,K], [B,K], [B,T] -> [B,T,K]; 0 for
    padding."""
    shares = tf.nn.softmax(tf.where(in_use[:, None], logits, MASKED))
    return shares * tf.cast(mask, shares.dtype)[:, :, None]


def route(mapped: tf.Tensor, initial: tf.Tensor, in_use: tf.Tensor, mask: tf.Tensor, iterations: int):
    """Behaviour-to-interest routing: w = softmax_k(b), u_k = squash(Σ_t w_tk·S·e_t), b_tk ← b_tk + ⟨u_k, S·e_t⟩.

    Shares are constants of the gradient, as in released implementations; the paper says nothing of it.

    Args:
      mapped: S·e [B,T,D].
      initial: b [T,K] before the first iteration.
      in_use: [B,K] bool.
      mask: [B,T] bool.
      iterations: how often shares are computed, ≥ 1.

    Returns:
      (capsules u [B,K,D], 0 where not in use; shares w [B,T,K] of the last iteration).
    """
    tf.debugging.assert_shapes([(mapped, "BTD"), (initial, "TK"), (in_use, "BK"), (mask, "BT")])
    logits, constant = initial[None], tf.stop_gradient(mapped)
    for _ in range(iterations - 1):
        capsules = squash(tf.matmul(routing_shares(logits, in_use, mask), constant, transpose_a=True))
        logits += tf.matmul(constant, capsules, transpose_b=True)
    shares = routing_shares(logits, in_use, mask)
    return squash(tf.matmul(shares, mapped, transpose_a=True)), shares


def label_aware_attention(vectors: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Σ_k softmax_k(logits)·v_k, the user as one target sees him: v [B,K,D], [B,K] -> [B,D]."""
    tf.debugging.assert_shapes([(vectors, "BKD"), (logits, "BK")])
    return tf.linalg.matvec(vectors, tf.nn.softmax(logits), transpose_a=True)


@dataclasses.dataclass(frozen=True)
class MindSettings(Section):
    """--user_encoder=mind"""
    interests: int = setting(4, "Interests K, vectors per user; a user of n clicks has log2(n) of them, rounded down, "
                                "at least one and at most K.", lower=1, upper=16)
    routing_iterations: int = setting(3, "Iterations of the dynamic routing (MIND: 3).", lower=1)
    interest_reading: str = setting("candidates",
        "candidates: each candidate of the loss, positive or negative, reads the user's interests by itself, nearly as "
        "the largest of the products that it is found by. target: the target chooses for all (MIND); it finds less, "
        "since no request has a target.", choices=("candidates", "target"))
    label_attention: float = setting(100.0,
        "--interest_reading=target: sharpness p of the attention by which it mixes its user's interests: 0 takes their "
        "mean, a large one the nearest alone.", lower=0.0)

    def check(self, config):
        """`UserError` for a sharpness that nothing reads."""
        if self.interest_reading != "target" and self.label_attention != type(self).label_attention:
            raise UserError(f"--label_attention={self.label_attention} is read with --interest_reading=target, not with "
                            f"{self.interest_reading}: leave it out, or give that")


@ENCODERS.register("mind")
class MindUserEncoder(UserEncoder):
    """v_k = W'·ReLU(W·√d·u_k + b) + b', capsules u from `route` over S·e_t with e_t = √d·X_t and one S for all pairs.

    The initial routing logits are drawn once from N(0, 1), for each place of a click and capsule, kept in checkpoints
    and never trained: with equal ones all capsules would stay alike, and drawn anew a request would have other answers
    each time. A vector weighs as much as the share of the clicks that is routed to it.

    Deviations. By default all candidates of the loss read the interests, each by `losses.contrastive.attended_logits`;
    where a user has fewer than K, his heaviest stands in the other places too, and weighs the more in that reading.
    In the paper the target alone does, and its negatives meet the vector that it has chosen; then attention takes
    softmax_k(p·⟨v_k, y⟩/ρ) where the paper has softmax_k(⟨v_k, y⟩^p): cosines may be negative, and a power of them means
    nothing. The mixture is compared like a single vector, so by its cosine.
    The last layer is linear, not ReLU, since items have coordinates of both signs. The paper's profile of a user stands
    beside u_k; here it enters after these layers (`encoders.query`). Times and positions are part of X_t.
    """

    Settings = MindSettings
    summary = "--interests vectors per user, by dynamic routing of clicks (MIND)."

    def __init__(self, settings, sizes):
        super().__init__(settings, sizes)
        glorot = lambda number: tf_keras.initializers.GlorotUniform(seed=sizes.seed + number)
        self.bilinear = self.add_weight(name="bilinear", shape=(sizes.dim, sizes.dim), initializer=glorot(0))
        self.initial_logits = self.add_weight(
            name="initial_logits", shape=(sizes.max_history, settings.interests), trainable=False,
            initializer=tf_keras.initializers.RandomNormal(stddev=1.0, seed=sizes.seed + 1))
        self.layers = tf_keras.Sequential([
            tf_keras.layers.Dense(4 * sizes.dim, "relu", kernel_initializer=glorot(2), name="hidden"),
            tf_keras.layers.Dense(sizes.dim, kernel_initializer=glorot(3), name="output")], name="layers")
        self.layers.build((None, sizes.dim))

    @classmethod
    def vectors_of(cls, settings):
        """--interests."""
        return settings.interests

    def call(self, clicks, training=False):
        """-> `UserVectors` [B,K,D], not normalized; zeros for an empty history."""
        del training
        dim, interests, mask = self.sizes.dim, self.num_vectors, clicks.mask
        length = tf.shape(mask)[1]
        count = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
        in_use = interests_in_use(count, interests)
        mapped = product(tf.reshape(clicks.vectors, [-1, dim]) * dim ** 0.5, self.bilinear, self.sizes.product_dtype)
        capsules, shares = route(tf.reshape(mapped, [-1, length, dim]), self.initial_logits[:length], in_use, mask,
                                 self.settings.routing_iterations)
        vectors = apply_layers(self.layers, tf.reshape(capsules, [-1, dim]) * dim ** 0.5, self.sizes.product_dtype)
        vectors = tf.where(count[:, None, None] > 0, tf.reshape(vectors, [-1, interests, dim]), 0.0)
        if interests == 1:
            return vectors[:, 0]
        routed = tf.math.log(tf.maximum(tf.reduce_sum(shares, axis=1), 1e-9))
        return UserVectors(vectors, tf.where(in_use, routed, MASKED))

    def for_targets(self, users, targets):
        """See `UserEncoder.for_targets`: by --interest_reading all vectors, or the attention of the class."""
        if self.settings.interest_reading == "candidates":
            return users.heaviest_first()[0].vectors
        logits = tf.linalg.matvec(users.vectors, targets / self.sizes.temperature) * self.settings.label_attention
        return label_aware_attention(users.vectors, tf.where(users.in_use, logits, MASKED))
