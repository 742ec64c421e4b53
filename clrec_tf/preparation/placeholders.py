"""Ids that are probably none: words that people and programs write where they know no user or item."""
import polars as pl

from clrec_tf.settings.data import PrepareConfig

_WORDS = (r"missing|unknown|unspecified|undefined|null|none|nil|nan|n\.?/?a\.?|"
          r"not[ _]?(?:set|available|applicable|defined)|[-+]?inf(?:inity)?|#ref!|#value!|#name\?|-+|\?+|\.|_")
_PATTERN = rf"(?i)^(?:[(<\[]?(?:{_WORDS})[)>\]]?|0{{8}}-(?:0{{4}}-){{3}}0{{12}})$"


def among(users: pl.Series, items: pl.Series) -> dict[str, list[str]]:
    """Ids, all distinct, that read like a word for a missing one, the UUID of zeros too: of users, of items, if any.

    Words that --null_values has by default are left out: whoever meets one as an id has said that it is one.
    """
    found = {}
    for name, ids in (("user", users), ("item", items)):
        words = ids.filter(ids.str.contains(_PATTERN) & ~ids.is_in(PrepareConfig.null_values)).head(5)
        found |= {f"{name}s_like_missing": words.to_list()} if len(words) else {}
    return found
