"""Finding items by what a person types, also among millions, beside a service that has to go on answering."""
import time
import unicodedata
import weakref
from itertools import islice
from typing import Iterator
from typing import Optional

import numpy as np

from clrec_tf.retrieval.bundle import Bundle

_CHUNK = 2000  # items whose texts are searched in one call, during which Python's lock is held: 0.1 ms
_WORDS = ("\n", "\t", " ")  # before the beginning of an id, of a title, and of a word


class ItemFinder:
    """Finds items by id and title; used by one thread at a time.

    Upper case, accents and runs of white space do not count. The texts to be searched are made when a search first
    needs them, and dropped when another version is served.

    Args:
      seconds: longest that a search may take; items that it has not reached by then are not found.
    """

    def __init__(self, seconds: float = 0.5):
        self._seconds = seconds
        self._bundle = lambda: None  # weak: texts do not keep a version in memory that is not served any more
        self._texts: dict[int, str] = {}

    def find(self, bundle: Bundle, query: str, limit: int) -> dict:
        """Items: that of this very id, then those of which the id, the title or a word of it begins with the query,
        then those that hold it anywhere; the most popular first, and for "" only those. Inserted items come last;
        deleted ones are found too as long as they count in histories.

        Returns:
          `items`, at most `limit`, as `known_items` gives them; and `complete`, whether all items were looked at or
          enough were found.
        """
        if self._bundle() is not bundle:
            self._bundle, self._texts = weakref.ref(bundle), {}
        query = folded(query)
        if not query:
            popular = range(min(bundle.manifest["tower_items"], limit))  # the popularity of inserted items is not known
            return {"items": _entries(bundle, popular), "complete": True}
        exact = [place for place in _places(bundle, [query]) if place >= 0 and _of_use(bundle, place)]
        begin, within, complete = self._search(bundle, query, limit)
        places = list(dict.fromkeys([*exact, *begin, *within]))[:limit]
        return {"items": _entries(bundle, places), "complete": complete}

    def _search(self, bundle, query, limit):
        """Positions of items that the query begins, and of others that hold it; and whether the time was enough."""
        size = len(bundle.item_ids)
        begin, within, end = [], [], time.monotonic() + self._seconds
        for start in range(0, size, _CHUNK):
            if time.monotonic() > end:
                return begin, within, False
            text = self._text(bundle, start, min(start + _CHUNK, size))
            first = set().union(*(islice(_lines(text, before + query), limit) for before in _WORDS))
            begin += [start + line for line in sorted(first)]
            if len(begin) >= limit:
                break
            others = (start + line for line in _lines(text, query) if line not in first)
            within += islice(others, limit - len(within))
        return begin, within, True

    def _text(self, bundle, start, end):
        """A line per item, each after its "\\n"; empty for those of no use."""
        if start not in self._texts:
            titles = [""] * (end - start) if bundle.titles is None else bundle.titles[start:end].tolist()
            self._texts[start] = "".join(
                f"\n{folded(str(item))}\t{folded(title)}" if _of_use(bundle, place) else "\n" for place, item, title
                in zip(range(start, end), bundle.item_ids[start:end].tolist(), titles))
        return self._texts[start]


def known_items(bundle: Bundle, ids: list[str]) -> dict:
    """Of ids as typed: `items`, each with `id`, `title` or None, and `known`, whether it counts in a history.

    One that was inserted by a bare vector does not, but can be retrieved: it is `fresh`.
    """
    places = _places(bundle, ids)
    entries = [dict(id=item, title=None, known=False) for item in ids]
    for row, place in enumerate(places):
        if place >= 0:
            entries[row], = _entries(bundle, [place])
    return {"items": entries}


def folded(text: str) -> str:
    """As texts are compared."""
    if not text.isascii():
        text = "".join(sign for sign in unicodedata.normalize("NFKD", text) if not unicodedata.combining(sign))
    return " ".join(text.casefold().split())


def _lines(text: str, wanted: str) -> Iterator[int]:
    """Numbers of the lines that hold `wanted`, each once, ascending."""
    line, last, at = -1, 0, text.find(wanted)
    while at >= 0:
        line += text.count("\n", last, at + 1)
        yield line
        last = at + 1
        following = text.find("\n", last)
        at = -1 if following < 0 else text.find(wanted, following)


def _places(bundle: Bundle, ids: list[str]) -> list[int]:
    """Positions of ids as typed; −1 where unknown."""
    if bundle.manifest["id_type"] == "string":
        return bundle.all_positions(bundle.id_array(ids)).tolist() if ids else []
    numbers = [_number(item) for item in ids]
    places = bundle.all_positions(np.array([number or 0 for number in numbers], np.int64))
    return [-1 if number is None else place for number, place in zip(numbers, places.tolist())]


def _number(text: str) -> Optional[int]:
    digits = text.removeprefix("-")
    number = int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else 2**63
    return number if abs(number) < 2**63 else None


def _of_use(bundle, place) -> bool:
    """Whether an item can be retrieved or counts in histories."""
    return place < bundle.manifest["tower_items"] or bool(bundle.live[place]) or _counts(bundle, [place])[0]


def _counts(bundle, places) -> list[bool]:
    """Whether each item counts in histories."""
    return (bundle.history_rows.numbers(np.array(places, np.int64)) >= 0).tolist()


def _entries(bundle, places) -> list[dict]:
    """Ids as text: a number of more than 53 bits would not survive JavaScript."""
    known = _counts(bundle, places)
    return [dict(id=str(bundle.item_ids[place].item()),
                 title=None if bundle.titles is None else bundle.titles[place] or None, known=counts)
            | ({} if counts or not bundle.live[place] else {"fresh": True}) for place, counts in zip(places, known)]
