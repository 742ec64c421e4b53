"""What is known of a request beside its clicks: the user's profile and the request's context, in one row of numbers."""
import dataclasses
import re
from typing import Sequence

import numpy as np

from clrec_tf.data.features import columns_after
from clrec_tf.errors import UserError

USER, CONTEXT = "user", "context"  # sources
CATEGORY, LIST, NUMBER = "category", "list", "number"  # kinds
KINDS = (CATEGORY, LIST, NUMBER)


@dataclasses.dataclass(frozen=True)
class QueryFeature:
    """One feature of users or of requests.

    Attributes:
      name: as in the log, or in the file of users.
      source: "user", the same in all requests of a user; or "context", of each click, and so of the request for it.
      kind: "category", "list" of categories, or "number".
      rows: embedding rows: values are in [0, rows), 0 = missing or unknown.
      width: values per request; 1 but of lists.
      bounds: of a number, ascending float32: x has the value 1 + how many bounds are ≤ x.
    """
    name: str
    source: str
    kind: str
    rows: int
    width: int
    bounds: tuple[float, ...] = ()

    @property
    def key(self) -> str:
        """Name of the feature in an Example, and of its values in feature_values.json."""
        return f"{self.source[0]}:{self.name}"

    @property
    def input(self) -> str:
        """Name of the feature in requests and signatures, such as user_gender or context_country."""
        return f"{self.source}_{re.sub(r'[^0-9A-Za-z_]', '_', self.name)}"


def query_width(features: Sequence[QueryFeature]) -> int:
    """Columns W of a query row."""
    return sum(feature.width for feature in features)


def query_columns(features: Sequence[QueryFeature]) -> dict[str, slice]:
    """Key of each feature -> its columns of a query row, in the order of the features: users' first."""
    return dict(zip((feature.key for feature in features), columns_after(0, features)))


def of_source(features: Sequence[QueryFeature], source: str) -> tuple[QueryFeature, ...]:
    """The features of one source."""
    return tuple(feature for feature in features if feature.source == source)


def context_feature(name: str, features: Sequence[QueryFeature]) -> QueryFeature:
    """The feature that --debias_context names, as in the log or as in requests; `UserError` where none or two do."""
    found = [feature for feature in features if name in (feature.name, feature.input)]
    if not found:
        raise UserError(f"--debias_context={name} is no feature of users or requests of this data set: " + (
            f"choose from {', '.join(dict.fromkeys(feature.name for feature in features))}" if features else
            "prepare it with --context_columns"))
    if len(found) > 1:
        raise UserError(f"--debias_context={name} is a feature of users and one of requests: give "
                        f"{' or '.join(feature.input for feature in found)}")
    return found[0]


def bins_of(numbers: np.ndarray, bounds: Sequence[float]) -> np.ndarray:
    """Values of a feature of numbers: any shape float -> int64, 0 where not finite."""
    numbers = np.asarray(numbers, np.float32)
    bins = 1 + np.searchsorted(np.asarray(bounds, np.float32), numbers, side="right")
    return np.where(np.isfinite(numbers), bins, 0)
