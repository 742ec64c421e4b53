"""One user's clicks and intent vectors, named and routed, to be looked at (paper, Figure 5)."""
import dataclasses
import os
from typing import Optional
from typing import Sequence

import numpy as np

from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.errors import DataError
from clrec_tf.evaluation.intent_report import Routing
from clrec_tf.evaluation.intent_report import routing_of
from clrec_tf.evaluation import protocols
from clrec_tf.system.json_files import load_json
from clrec_tf.system.json_files import save_json

EXAMPLE_FILE = "intents.json"
VECTORS, NEAREST, LATEST, MIN_CLICKS = 7, 8, 17, 15


@dataclasses.dataclass(frozen=True)
class ShownItem:
    """An item as it is named: title (its id, if it has none), id, category, and the intent that it is routed to.

    Items outside the vocabulary have the intent None.
    """
    title: str
    original_id: str
    category: str
    intent: Optional[int]


@dataclasses.dataclass(frozen=True)
class ShownVector:
    """A vector by its intent's number: its weight, and its nearest items, best first."""
    number: int
    weight: float
    items: Sequence[ShownItem]


@dataclasses.dataclass(frozen=True)
class IntentExample:
    """One user.

    Attributes:
      user_id: number of the user.
      clicks: how many clicks the history has.
      history: the latest of those that the query tower sees, the latest first.
      next_click: the next click.
      vectors: the heaviest, by falling weight.
      feature: name of the feature that items are routed by.
    """
    user_id: int
    clicks: int
    history: Sequence[ShownItem]
    next_click: ShownItem
    vectors: Sequence[ShownVector]
    feature: str


def example_of(model, encoder, item_vectors: np.ndarray, users: EvaluationSet, catalogue: Catalogue,
               feature_values: dict[str, list[str]], max_history: int, config, seed: int) -> IntentExample:
    """A random user with at least 15 clicks, or any, if there is none.

    Args:
      model: a `MultiCLRec`.
      encoder: its `Encoder`.
      item_vectors: [V,d], ready to be compared.
      users: whom to draw from.
      catalogue: of V items.
      feature_values: see `catalogue.read_feature_values`; values without a name are shown as numbers.
      max_history: T, clicks that the query tower sees.
      config: an `EvaluateConfig`; its seen filter holds for the nearest items as well.
      seed: of the draw.
    """
    user = users.take(np.array([draw_user(np.diff(users.history_splits), seed)]))
    routing = routing_of(model, encoder, catalogue)
    shown = _Namer(catalogue, routing, feature_values.get(routing.feature, ()))
    vectors, weights, numbers = (part[0] for part in encoder.user_intents(user, VECTORS))
    scores = protocols.vector_scorer(vectors, item_vectors)(0, len(vectors))
    if config.filter_seen:
        scores[:, [item - 1 for item in user.history_ids if item <= len(item_vectors)]] = -np.inf
    nearest = protocols.top_items(scores, min(NEAREST, len(item_vectors)))
    return IntentExample(
        int(user.user_ids[0]), len(user.history_ids),
        [shown(item) for item in user.history_ids[::-1][:min(LATEST, max_history)]], shown(user.next_clicks[0]),
        [ShownVector(int(number), float(weight), [shown(item) for item in items if item])
         for number, weight, items in zip(numbers, weights, nearest)], routing.feature)


def save_example(workdir: str, example: IntentExample) -> str:
    """Writes intents.json atomically and returns its path."""
    path = os.path.join(workdir, EXAMPLE_FILE)
    save_json(path, dataclasses.asdict(example))
    return path


def load_example(workdir: str) -> Optional[IntentExample]:
    """What `save_example` has written; None where it has not. `DataError` where that is damaged."""
    path = os.path.join(workdir, EXAMPLE_FILE)
    if not os.path.exists(path):
        return None
    damaged = "run python -m clrec_tf.evaluate again"
    values = load_json(path, damaged, damaged)
    try:
        values |= dict(
            history=[ShownItem(**item) for item in values["history"]], next_click=ShownItem(**values["next_click"]),
            vectors=[ShownVector(**vector | dict(items=[ShownItem(**item) for item in vector["items"]]))
                     for vector in values["vectors"]])
        return IntentExample(**values)
    except (KeyError, TypeError) as error:
        raise DataError(f"{path} is not what evaluate writes ({error}): {damaged}") from error


def draw_user(clicks: np.ndarray, seed: int) -> int:
    """Position of a random user among those with enough clicks, or among all. Args: clicks int [U]."""
    enough = np.flatnonzero(clicks >= MIN_CLICKS)
    return int(np.random.default_rng(seed).choice(enough if len(enough) else len(clicks)))


class _Namer:
    """Item id -> `ShownItem`."""

    def __init__(self, catalogue: Catalogue, routing: Routing, values: Sequence[str]):
        self._catalogue, self._routing, self._values = catalogue, routing, values

    def __call__(self, item):
        row = int(item) - 1
        if not 0 <= row < len(self._catalogue.counts):
            return ShownItem("(not in the vocabulary)", "", "", None)
        name = str(self._catalogue.original_ids[row])
        title = self._catalogue.titles[row] if self._catalogue.titles is not None else ""
        categories = [self._category(value) for value in self._routing.categories[row] if value > 0]
        return ShownItem(title or name, name, ", ".join(categories), int(self._routing.routes[row]))

    def _category(self, value):
        if value <= len(self._values) and self._values[value - 1]:
            return self._values[value - 1]
        return f"{self._routing.feature} {value}"
