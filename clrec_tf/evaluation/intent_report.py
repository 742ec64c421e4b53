"""What an evaluation says about the intents of a model that has several (paper, Figure 5, in numbers).

Balance, over training clicks:
  intents/share_min/soft, share_max/soft   the least and most likely intent, π_h = mean p_{h|item} of the clicked items
  intents/effective/soft    exp(entropy) of π: as many equal intents would be as uncertain; at most H
  …/hard                    the same of the clicks on the items of each route, argmax_h p_{h|item}
  intents/empty             intents without any item

Categories, over training clicks:
  intents/category_purity   of an intent's clicks, the share on items that have its most frequent category. An item of
                            several categories has each of them.
  intents/categories        effective number of categories per intent; a click is shared evenly among its categories
  …/chance                  both, of all clicks together: what a routing that ignores categories would have

Vectors, of at most 2,000 users drawn at random and the 7 heaviest vectors of each (all, if the model has fewer):
  intents/own_items@10      of a vector's 10 nearest items, the share that is routed to that very intent
  intents/own_items@10/chance   of 10 items drawn at random
  intents/themes@7          different intents among the vectors' themes; a theme is the route of most of those 10 items

Selection:
  intents/share_max/selected, effective/selected   how users share out among the intents of their heaviest vectors: a
                            share of 1 means that the same intent is selected for everybody
  intents/weight            mean weight of the heaviest vector
  intents/entropy           mean entropy of the weights, nats: near 0 the others have none, at most log H
  intents/calibration       expected calibration error of the weights as chances of the next click's intent: over all
                            users and intents, in ten bins of the weight, how far its mean is from how often it is
                            right. Weights that are all alike are calibrated too, so look at
  intents/log_loss          mean of −log w of the next click's intent, nats; with /constant, that of its frequency
  intents/hit_rate          how often the heaviest vector's intent is that of the next click; with @7, one of the seven.
                            Of users whose next click is in the vocabulary, as is the next line
  …/constant                the same of the most frequent intents, alike for all users
  hr@K/full/given_intent    hr@K/full if the intent of the next click were known and its vector alone searched, of all
                            users. It bounds what a better selection could bring, and no selection will reach it, since
                            it has read the category of what is looked for
  …/given_intent/its_items  the same knowledge without that vector: the score of all vectors, among the items that are
                            routed to that intent

Scores: what one user's H vectors make of an item; s_h = ⟨z_h, g⟩/ρ, and of gated ones s_h + log w_h.
  hr@K/full/lse             log Σ_h e^{s_h}, which the objective is calibrated for and hr@K/full is of, unless
                            --eval_intents says less
  hr@K/full/maximum         max_h s_h, which indexes and servers find; at most log H below
  hr@K/full/heaviest        s_h of the heaviest vector alone
"""
import dataclasses

import numpy as np

from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.data.features import feature_columns
from clrec_tf.evaluation import intent_metrics
from clrec_tf.evaluation import metrics
from clrec_tf.evaluation import protocols

HEAVIEST, NEAREST, MAX_USERS = 7, 10, 2000


@dataclasses.dataclass(frozen=True)
class Routing:
    """What a model's routing says of the V items of a catalogue; row i describes item i + 1.

    Attributes:
      probabilities: p_{h|item} float64 [V,H].
      routes: int [V], the likeliest intent of each.
      categories: int [V,W], what items are routed by; 0 = empty place.
      feature: its name.
    """
    probabilities: np.ndarray
    routes: np.ndarray
    categories: np.ndarray
    feature: str


def routing_of(model, encoder, catalogue: Catalogue) -> Routing:
    """The routing of a `MultiCLRec`, whose `Encoder` is given."""
    features, number = model.item_encoder.features, model.item_encoder.category
    logits = encoder.routing_logits(catalogue.item_rows)
    # Routes come from the logits: probabilities near 1 may round to the same number.
    return Routing(intent_metrics.probabilities(logits), logits.argmax(axis=1),
                   catalogue.item_rows[:, feature_columns(features)[features[number].name]], features[number].name)


def report_intents(intents: tuple, routing: Routing, item_vectors: np.ndarray, temperature: float, users: EvaluationSet,
                   counts: np.ndarray, config, seed: int, detailed: bool = True) -> dict:
    """The metrics above.

    Args:
      intents: all of `Encoder.user_intents` of the users.
      routing: of that model.
      item_vectors: [V,d], ready to be compared.
      temperature: ρ.
      users: U users.
      counts: int [V], training clicks of items 1..V.
      config: an `EvaluateConfig`, for cut-offs and the seen filter.
      seed: of the users drawn, and of the bootstrap.
      detailed: also 95 % intervals.

    Returns:
      {name: float or int}.
    """
    served = Served(*intents, item_vectors, temperature, users, config, seed if detailed else None)
    sample = users.sample_rows(MAX_USERS, seed)
    return (_balance(routing, counts) | _categories(routing, counts)
            | _vectors(served.vectors[sample, :HEAVIEST], served.numbers[sample, :HEAVIEST], routing, item_vectors)
            | _selection(served, routing) | _rules(served))


class Served:
    """All vectors of all users, and hit rates of what they rank.

    Args:
      vectors, weights, numbers: see `Encoder.user_intents`.
      items, temperature, users, config: see `report_intents`.
      interval_seed: None for no intervals.
    """

    def __init__(self, vectors, weights, numbers, items, temperature, users, config, interval_seed):
        self.vectors, self.weights, self.numbers = vectors, weights, numbers
        self.items, self.temperature, self.users = items, temperature, users
        self._config, self._seed = config, interval_seed

    @property
    def known(self) -> np.ndarray:
        """Whether each user's next click is in the vocabulary, bool [U]."""
        return (self.users.next_clicks >= 1) & (self.users.next_clicks <= len(self.items))

    def scorer(self, vectors, temperature=None) -> protocols.ScoreChunk:
        """See `protocols.vector_scorer`."""
        return protocols.vector_scorer(vectors, self.items, temperature)

    def hit_rates(self, name: str, scorer: protocols.ScoreChunk) -> dict:
        """`hr@K/full/NAME` on the next click."""
        counts = protocols.rank_targets(scorer, self.users, len(self.items),
                                        filter_seen=self._config.filter_seen).counts["full"]
        first = self.users.target_splits[:-1]
        hits = {f"hr@{k}/full/{name}": metrics.hit_rate(counts.better[first], counts.tied[first], k)
                for k in sorted(map(int, self._config.ks))}
        result = {name: float(values.mean()) for name, values in hits.items()}
        return result if self._seed is None else result | metrics.named_intervals(hits, self._seed)


def _balance(routing, counts):
    num_intents = routing.probabilities.shape[1]
    result = {}
    for kind, shares in dict(soft=intent_metrics.soft_shares(routing.probabilities, counts),
                             hard=intent_metrics.route_shares(routing.routes, counts, num_intents)).items():
        result |= {f"intents/share_min/{kind}": float(shares.min()), f"intents/share_max/{kind}": float(shares.max()),
                   f"intents/effective/{kind}": intent_metrics.effective_number(shares)}
    return result | {"intents/empty": num_intents - len(np.unique(routing.routes))}


def _categories(routing, counts):
    result = {}
    for ending, routes in (("", routing.routes), ("/chance", np.zeros_like(routing.routes))):
        arguments = routes, counts, routing.categories
        result |= {f"intents/category_purity{ending}": intent_metrics.category_purity(*arguments),
                   f"intents/categories{ending}": intent_metrics.effective_categories(*arguments)}
    return result


def _vectors(vectors, numbers, routing, item_vectors):
    listed = nearest_items(vectors.reshape(-1, vectors.shape[2]), item_vectors, NEAREST)
    themes = intent_metrics.themes(listed, routing.routes).reshape(numbers.shape)
    own = intent_metrics.own_share(listed, routing.routes, numbers.ravel())
    name, heaviest = f"intents/own_items@{listed.shape[1]}", numbers.shape[1]
    return {name: float(own.mean()),
            f"{name}/chance": float(intent_metrics.chance_of_own(routing.routes, numbers.ravel()).mean()),
            f"intents/themes@{heaviest}": float(intent_metrics.distinct(themes).mean())}


def nearest_items(vectors: np.ndarray, item_vectors: np.ndarray, count: int) -> np.ndarray:
    """The `count` items (at most V) of highest score under each vector [N,d] -> ids int32 [N,count], best first."""
    scorer, step = protocols.vector_scorer(vectors, item_vectors), protocols.users_per_chunk(
        len(item_vectors), protocols.MEMORY_BYTES)
    starts = range(0, len(vectors), step)
    return np.concatenate([protocols.top_items(scorer(start, min(start + step, len(vectors))),
                                               min(count, len(item_vectors))) for start in starts])


def _rules(served: Served) -> dict:
    """The same vectors joined in three ways."""
    return (served.hit_rates("heaviest", served.scorer(served.vectors[:, 0]))
            | served.hit_rates("maximum", served.scorer(served.vectors))
            | served.hit_rates("lse", served.scorer(served.vectors, served.temperature)))


def _selection(served: Served, routing) -> dict:
    """How well the weights meet the next click, and what knowing its intent would bring."""
    known, numbers, weights = served.known, served.numbers, served.weights
    wanted = routing.routes[np.where(known, served.users.next_clicks, 1) - 1]
    selected = np.bincount(numbers[:, 0]) / len(numbers)
    result = {"intents/share_max/selected": float(selected.max()),
              "intents/effective/selected": intent_metrics.effective_number(selected),
              "intents/weight": float(weights[:, 0].mean()), "intents/entropy": intent_metrics.mean_entropy(weights)}
    if known.any():
        right = numbers[known] == wanted[known, None]
        result["intents/calibration"] = intent_metrics.calibration_error(weights[known].ravel(), right.ravel())
        frequency = np.bincount(wanted[known]) / np.count_nonzero(known)
        for ending, chances in (("", weights[known][right]), ("/constant", frequency[wanted[known]])):
            result[f"intents/log_loss{ending}"] = intent_metrics.log_loss(chances)
    heaviest = min(HEAVIEST, numbers.shape[1])
    for ending, count in (("", 1), (f"@{heaviest}", heaviest)):
        if known.any():
            result |= {f"intents/hit_rate{ending}": intent_metrics.hit_rate(numbers[known, :count], wanted[known]),
                       f"intents/hit_rate{ending}/constant": intent_metrics.constant_hit_rate(wanted[known], count)}
    of_wanted = (numbers == wanted[:, None]).argmax(axis=1)
    given = served.vectors[np.arange(len(numbers)), of_wanted]
    return (result | served.hit_rates("given_intent", served.scorer(given))
            | served.hit_rates("given_intent/its_items", _only(served, routing.routes, wanted)))


def _only(served: Served, routes, wanted) -> protocols.ScoreChunk:
    """The scores of all vectors, of items of the wanted route [U]; other items come behind all of them."""
    everything = served.scorer(served.vectors, served.temperature)

    def score_chunk(start, stop):
        scores = everything(start, stop)
        behind = 1 + np.abs(scores).max()
        return np.where(routes == wanted[start:stop, None], scores, scores - 3 * behind)

    return score_chunk
