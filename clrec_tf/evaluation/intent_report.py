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
  intents/hit_rate          how often the heaviest vector's intent is that of the next click; with @7, one of the seven.
                            Of users whose next click is in the vocabulary, as is the next line
  …/constant                the same of the most frequent intents, alike for all users
  hr@K/full/given_intent    hr@K/full if the intent of the next click were known and its vector alone searched, of all
                            users. It bounds what a better selection could bring, and no selection will reach it, since
                            it has read the category of what is looked for
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


def report_intents(encoder, routing: Routing, item_vectors: np.ndarray, users: EvaluationSet, counts: np.ndarray,
                   config, seed: int, detailed: bool = True) -> dict:
    """The metrics above.

    Args:
      encoder: an `Encoder` of a model with H intents.
      routing: of that model.
      item_vectors: [V,d], ready to be compared.
      users: U users.
      counts: int [V], training clicks of items 1..V.
      config: an `EvaluateConfig`, for cut-offs and the seen filter.
      seed: of the users drawn, and of the bootstrap.
      detailed: also 95 % intervals.

    Returns:
      {name: float or int}.
    """
    return (_balance(routing, counts) | _categories(routing, counts)
            | _vectors(encoder, routing, item_vectors, users.sample(MAX_USERS, seed))
            | _selection(encoder, routing, item_vectors, users, config, seed if detailed else None))


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


def _vectors(encoder, routing, item_vectors, users):
    vectors, _, numbers = encoder.user_intents(users, HEAVIEST)
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


def _selection(encoder, routing, item_vectors, users, config, interval_seed):
    """How well the heaviest intents meet the next click, and what knowing its intent would bring."""
    known = (users.next_clicks >= 1) & (users.next_clicks <= len(item_vectors))
    wanted = routing.routes[np.where(known, users.next_clicks, 1) - 1]
    numbers, given, heaviest, start = [], [], [], 0
    for vectors, weights, chunk in encoder.user_intent_chunks(users):
        rows = np.arange(len(chunk))
        given.append(vectors[rows, (chunk == wanted[start + rows, None]).argmax(axis=1)])
        numbers.append(chunk[:, :HEAVIEST].copy())
        heaviest.append(weights[:, 0].copy())
        start += len(chunk)
    numbers = np.concatenate(numbers)
    selected = np.bincount(numbers[:, 0]) / len(numbers)
    result = {"intents/share_max/selected": float(selected.max()),
              "intents/effective/selected": intent_metrics.effective_number(selected),
              "intents/weight": float(np.concatenate(heaviest).mean())}
    for ending, count in (("", 1), (f"@{numbers.shape[1]}", numbers.shape[1])):
        if known.any():
            result |= {f"intents/hit_rate{ending}": intent_metrics.hit_rate(numbers[known, :count], wanted[known]),
                       f"intents/hit_rate{ending}/constant": intent_metrics.constant_hit_rate(wanted[known], count)}
    return result | _hits_of_given(np.concatenate(given), item_vectors, users, config, interval_seed)


def _hits_of_given(vectors, item_vectors, users, config, interval_seed):
    """Hit rates on the next click if each user is searched with this vector [U,d]."""
    counts = protocols.rank_targets(protocols.vector_scorer(vectors, item_vectors), users, len(item_vectors),
                                    filter_seen=config.filter_seen).counts["full"]
    better, tied = counts.better[users.target_splits[:-1]], counts.tied[users.target_splits[:-1]]
    hits = {f"hr@{k}/full/given_intent": metrics.hit_rate(better, tied, k) for k in sorted(map(int, config.ks))}
    result = {name: float(values.mean()) for name, values in hits.items()}
    if interval_seed is not None:
        result |= metrics.named_intervals(hits, interval_seed)
    return result
