"""What a search for one user is to bring, beside who the user is."""
import dataclasses
from typing import Optional
from typing import Sequence

from clrec_tf.retrieval.attributes import ItemFilter


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """Options of one search.

    Attributes:
      k: items wanted, ≥ 1; fewer come where no more are left.
      exclude_seen: leave every item of the history out, also those older than the tower looks at.
      intents: K, the heaviest intents searched (0: as many as the bundle says).
      merge: "maximum" or "quota", see `merge`.
      exclude: original ids that must not come; unknown ones do not matter.
      allow: original ids of which alone any may come, such as those in stock; None for all. They are scored exactly,
        one by one, whatever the index.
      popularity: α of the dial; None: the bundle's default.
      titles: whether titles come beside the ids, if the catalogue has any.
      passing: what the attributes of items must be, see `attributes`; () for any.
      explain: whether the clicks that each item rests on come too, see `explanations`.
    """
    k: int = 10
    exclude_seen: bool = False
    intents: int = 0
    merge: str = "maximum"
    exclude: Sequence = ()
    allow: Optional[Sequence] = None
    titles: bool = True
    popularity: Optional[float] = None
    passing: ItemFilter = ()
    explain: bool = False
