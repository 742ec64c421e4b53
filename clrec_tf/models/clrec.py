"""CLRec: two towers, one vector per user."""
import dataclasses

import tensorflow as tf

from clrec_tf.data.histories import gaps_to_next
from clrec_tf.encoders.base import Clicks
from clrec_tf.encoders.clicks import ClickEncoder
from clrec_tf.encoders.factor_items import FactorItemEncoder
from clrec_tf.encoders.items import ItemEncoder
from clrec_tf.encoders.query import QueryEncoder
from clrec_tf.errors import UserError
from clrec_tf.models.two_tower import TwoTower
from clrec_tf.settings.registry import ENCODERS
from clrec_tf.settings.registry import TOWERS
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class CLRecSettings(Section):
    """--model=clrec"""
    user_encoder: str = setting("multi_att", ENCODERS.help, choices=ENCODERS.names)
    use_features: bool = setting(True, "Encode items with their features, not the id alone.")
    feature_projection: bool = setting(False,
        "Project the concatenated features to d, which lets feature widths differ from a sum of d (a deviation "
        "from the paper).")
    content_hidden: int = setting(0, "Hidden width of the encoder of dense content vectors (0: linear).", lower=0)
    candidate_features: bool = setting(True, "Encode candidates with their features; without, only histories are.")
    similarity: str = setting("cosine", "cosine (paper) or dot (ablation).", choices=("cosine", "dot"))


@TOWERS.register("clrec")
class CLRec(TwoTower):
    """The candidate tower g = items, and the query tower f = user encoder of items with positions and times.

    Args:
      item_encoder: rows [N,C] -> g [N,D], or g and factors [N,2D], of which the query tower reads the latter.
      click_encoder: g, mask, gaps -> X; None where the user encoder does that too.
      user_encoder: `Clicks` of X and g -> f.
      similarity, temperature, candidate_features: see `TwoTower`.
      query_encoder: f and query rows -> users; None where nothing but clicks is read.
    """

    Settings = CLRecSettings
    summary = "one vector per user."

    def __init__(self, item_encoder, click_encoder, user_encoder, similarity, temperature, candidate_features=True,
                 name="clrec", query_encoder=None):
        super().__init__(item_encoder, click_encoder, user_encoder, similarity, temperature, name)
        self.candidate_features, self.query_encoder = candidate_features, query_encoder

    @classmethod
    def encoder_name(cls, settings):
        """--user_encoder."""
        return settings.user_encoder

    @classmethod
    def make(cls, inputs):
        """See `TwoTower.make`."""
        settings, sizes = inputs.settings, inputs.sizes
        features = sizes.schema.features if settings.use_features else ()
        if len(features) > sizes.dim:
            raise UserError(f"--embedding_dim={sizes.dim} is too narrow for {len(features)} item features: raise it")
        items = (FactorItemEncoder if inputs.encoder.own_factors else ItemEncoder)(
            sizes.schema.item_rows, sizes.dim, features, inputs.feature_widths, settings.feature_projection,
            inputs.content if settings.use_features else None, settings.content_hidden, inputs.seed,
            sizes.product_dtype)
        clicks = None if inputs.encoder.own_clicks else ClickEncoder(
            sizes.dim, sizes.max_history, sizes.position, sizes.boundaries, sizes.seed, sizes.event_kinds)
        query = None
        if sizes.query_features:
            query = QueryEncoder(sizes.query_features, sizes.dim, sizes.seed + 100, sizes.product_dtype)
        return cls(items, clicks, inputs.user_encoder(), settings.similarity, sizes.temperature,
                   settings.candidate_features, query_encoder=query)

    @property
    def reads(self):
        """Times where clicks are encoded with them, and what the user encoder reads."""
        times = {"times"} if self.click_encoder is not None and self.click_encoder.time_table is not None else set()
        return self.user_encoder.reads | times

    @property
    def history_width(self):
        """D, or 2D with the items' factors."""
        return self.item_encoder.width

    @property
    def query_variables(self):
        """Of the clicks' positions, times and behaviours, of the user encoder, and of what is known beside clicks."""
        parts = self.click_encoder, self.user_encoder, self.query_encoder
        return [variable for part in parts if part is not None for variable in part.variables]

    def item_vectors(self, rows):
        """The candidate tower: item rows [N,C] -> g [N,D], not normalized."""
        return self._vectors(self.item_encoder(rows)) if self.candidate_features else self.item_encoder.ids(rows[:, 0])

    def _vectors(self, items):
        """g [N,D] of what the item encoder gives."""
        return items if self.history_width == self.item_encoder.dim else items[:, :self.item_encoder.dim]

    def user_vectors(self, items, mask, gaps=None, dwell=None, events=None, query=None):
        """Histories as item vectors g [B,T,D], mask [B,T], gaps [B,T] seconds -> f(x) [B,D], ready to be compared; the
        heaviest of several, and slots [B,K,D] where the model is `target_aware`.

        `dwell`, `events` and `query` are as of `Clicks`.
        """
        users = self._users(self._clicks(items, mask, self._gaps(gaps, mask), dwell, events), query)[0]
        return users if self.num_intents == 1 else users.heaviest_first()[0].vectors[:, 0]

    def _users(self, clicks, query, training=False):
        """What the user encoder gives, ready to be compared, and what it adds to the loss of each row."""
        users, added = self.user_encoder.with_auxiliary(clicks, training)
        known = tf.reduce_any(clicks.mask, axis=1)
        if self.num_intents == 1:
            return self._asked(users, known, query), added
        return dataclasses.replace(users, vectors=self._asked(users.vectors, known, query)), added

    def _gaps(self, gaps, mask):
        """Times before the request as the user encoder reads them."""
        return gaps_to_next(gaps, mask) if gaps is not None and self.user_encoder.gaps_to_next else gaps

    def _clicks(self, items, mask, gaps, dwell, events, seed=None, asked=None):
        items = items if self.history_width == self.item_encoder.dim else items[:, :, self.item_encoder.dim:]
        # Only what the encoder declares, so that it is trained, evaluated and served on the same.
        reads = self.user_encoder.reads
        vectors = None if self.click_encoder is None else self.click_encoder(items, mask, gaps, events)
        return Clicks(vectors, items, mask, gaps if "times" in reads else None, dwell if "dwell" in reads else None,
                      events, seed=seed, asked=asked)

    def _asked(self, users, known, query):
        """Users ready to be compared, from what their clicks tell [B,D] or [B,K,D], whether there are any [B], and
        query rows."""
        if self.query_encoder is not None:
            known = known[:, None] if users.shape.rank == 2 else known[:, None, None]
            users = self.query_encoder(tf.where(known, users, 0.0), query)
        return self.score_vectors(users)

    def user_intents(self, items, mask, gaps=None, dwell=None, events=None, query=None):
        """See `TwoTower.user_intents`; mostly one."""
        users, _ = self._users(self._clicks(items, mask, self._gaps(gaps, mask), dwell, events), query)
        if self.num_intents > 1:
            users, numbers = users.heaviest_first()
            return users.vectors, tf.nn.softmax(users.logits), numbers
        users = users[:, None, :]
        return users, tf.ones_like(users[:, :, 0]), tf.zeros(tf.shape(users)[:2], tf.int32)

    def for_targets(self, users, targets):
        """See `TwoTower.for_targets`: what the user encoder makes of several."""
        return users if self.num_intents == 1 else self.score_vectors(self.user_encoder.for_targets(users, targets))

    def _history_items(self, rows, ids=None):
        return self.item_encoder.encode_distinct(rows, ids)

    def _encode_rows(self, items, places, batch, training):
        batch_size, length = batch["history"].shape[:2]
        if "row" in batch:
            return *self._encode_windows(items, places, batch, training), None
        mask, gaps = tf.sequence_mask(batch["length"], length), batch.get("time_gap")
        events, query = batch.get("event"), batch.get("query")
        mask &= ~self.hidden_histories(batch_size, batch, training)[:, None]
        if self.user_encoder.adds_clicks:
            # Each target is a sum of one item, each history of T, of which padding is zero.
            sums = tf.concat([tf.range(batch_size), tf.repeat(tf.range(batch_size, 2 * batch_size), length)], axis=0)
            targets, item_sums = tf.split(tf.sparse.segment_sum(items, places, sums, 2 * batch_size), 2)
            users = self.user_encoder.of_sums(self.click_encoder.sums(item_sums, mask, gaps, events), mask)
            return targets, self._asked(users, tf.reduce_any(mask, axis=1), query), None
        targets, history = tf.split(tf.gather(items, places), [batch_size, batch_size * length])
        history = tf.reshape(history, [batch_size, length, self.history_width])
        clicks = self._clicks(history, mask, self._gaps(gaps, mask), batch.get("dwell"), events, batch.get("seed"))
        users, added = self._users(clicks, query, training)
        return self._vectors(targets), users, added

    def _encode_windows(self, items, places, batch, training):
        """The first two of `_encode_rows` for --target_mode=all: a user at each position that a target follows."""
        shape, dim = tf.shape(batch["history"]), self.item_encoder.dim
        targets, history = tf.split(tf.gather(items, places), [tf.size(batch["row"]), shape[0] * shape[1]])
        clicks = self._clicks(tf.reshape(history, [shape[0], shape[1], self.history_width]),
                              tf.sequence_mask(batch["length"], shape[1]), batch.get("time_gap"), batch.get("dwell"),
                              batch.get("event"), batch.get("seed"), self._positions_asked(batch))
        users = tf.gather(tf.reshape(self.user_encoder.positions(clicks, training), [-1, dim]), batch["row"])
        known = ~self.hidden_histories(tf.size(batch["row"]), batch, training)
        return tf.ensure_shape(self._vectors(targets), [None, dim]), self._asked(users, known, batch.get("query"))

    def _positions_asked(self, batch):
        """`Clicks.asked` of a batch of windows; None where the user encoder does not hide what is asked for."""
        if not self.user_encoder.hides_targets:
            return None
        shape = tf.shape(batch["history"], tf.int64)[:2]
        asked = tf.tensor_scatter_nd_update(
            tf.zeros([shape[0] * shape[1]], tf.bool), batch["row"][:, None], tf.ones_like(batch["row"], tf.bool))
        return tf.reshape(asked, shape)

    def auxiliary_losses(self, encoded, batch):
        """What the user encoder adds."""
        del batch
        return 0.0 if encoded.beside is None else encoded.beside
