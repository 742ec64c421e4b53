"""Tables of a page: a head, a name for each row, and what is missing said in a word."""
import re
from typing import Any
from typing import Optional
from typing import Sequence

from clrec_tf.reporting.markup import Markup
from clrec_tf.reporting.markup import tag
from clrec_tf.reporting.runs import number

MISSING = tag("span", "missing", class_="missing")


def table(caption: str, head: Sequence[Any], rows: Sequence[tuple], numbers: bool = True) -> Markup:
    """A table in a box that scrolls where the page is too narrow.

    Args:
      caption: what it shows.
      head: of each column; the first is that of the rows' names.
      rows: the name, then a cell for each other column; None is shown as missing.
      numbers: whether cells are set to the right.
    """
    top = tag("tr", [tag("th", breakable(one), scope="col") for one in head])
    body = [tag("tr", tag("th", breakable(name), scope="row"),
                [tag("td", MISSING if cell is None else cell) for cell in cells]) for name, *cells in rows]
    inside = tag("table", tag("caption", tag("span", caption)), tag("thead", top), tag("tbody", body),
                 class_="numbers" if numbers else "words")
    return tag("div", inside, class_="scroll", tabindex="0", role="region", aria_label=caption)


def breakable(name: Any) -> Any:
    """A name that may be broken into lines behind its signs, on a phone; what is no text comes back as it is."""
    if not isinstance(name, str) or isinstance(name, Markup):
        return name
    return [[part, tag("wbr")] for part in re.findall(r"[^/_,]+[/_,]*|[/_,]+", name)]


def more(title: str, *content: Any) -> Markup:
    """What is opened by a click."""
    return tag("details", tag("summary", title), content)


def figure_text(value: Any) -> Optional[str]:
    """A figure as text: four decimals, thousands apart; None where it is none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if number(value) is None:
        return None
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4f}" if abs(value) >= 1e-3 or not value else f"{value:.3g}"


def setting_text(value: Any) -> Optional[str]:
    """A setting as its flag would have it; None where there is none."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value)) or "(empty)"
    return str(value).lower() if isinstance(value, bool) else "(empty)" if value == "" else str(value)
