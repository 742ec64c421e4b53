"""A log with numbers and parts: what a data set is made of."""
import dataclasses
from typing import Iterator, Optional

import numpy as np
import polars as pl

from clrec_tf.preparation.click_parts import ClickParts
from clrec_tf.preparation.earlier_vocabulary import EarlierVocabulary
from clrec_tf.preparation.query_features import Column
from clrec_tf.preparation.split_rule import SplitRule
from clrec_tf.preparation import splits
from clrec_tf.preparation.splits import Clicks


@dataclasses.dataclass(frozen=True)
class SplitLog:
    """A log whose users and items have numbers, and whose clicks have parts.

    Attributes:
      clicks: by user.
      rule: that decides the part of each.
      users: original ids of users, by number.
      items: by number: item (the original id), optional title, f:<feature>.
      features: name -> whether it has several values.
      earlier: the vocabulary that is continued, or None.
      numbered: [V'] index of the item that has each of its numbers, −1: the number is free; None without.
      query_columns: of users, and of the clicks.
    """
    clicks: ClickParts
    rule: SplitRule
    users: pl.Series
    items: pl.DataFrame
    features: dict[str, bool]
    earlier: Optional[EarlierVocabulary] = None
    numbered: Optional[np.ndarray] = None
    query_columns: tuple[Column, ...] = ()

    def parts(self) -> Iterator[tuple[Clicks, np.ndarray]]:
        """Clicks of some users after the other [N], and the part of each [N]."""
        for clicks in self.clicks:
            first = np.diff(clicks.user, prepend=-1) != 0  # of each user
            own = dataclasses.replace(clicks, user=np.cumsum(first) - 1)
            yield clicks, self.rule.parts(own, clicks.user[first])

    def trained(self) -> Iterator[tuple[Clicks, np.ndarray, np.ndarray]]:
        """`parts`, and which clicks are trained on [N]."""
        for clicks, part in self.parts():
            yield clicks, part, splits.training_mask(clicks, part, self.rule.settings.min_train_length)

    def known_values(self, feature: str) -> tuple[list[str], int]:
        """Values of a feature that have numbers already, and how many an item may have."""
        if self.earlier is None or not self.earlier.width(feature):
            return [], 1
        return self.earlier.feature_values[feature], self.earlier.width(feature)
