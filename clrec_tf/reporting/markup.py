"""HTML and SVG from Python: text is escaped wherever it enters, so that a title holds no element."""
import html
from typing import Any


class Markup(str):
    """Text that is markup already."""


def tag(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """An element.

    Args:
      name: such as "td".
      *children: `Markup`, text or numbers, which are escaped, lists of these, or None, which is left out.
      **attributes: `class_` is class, `aria_label` is aria-label, `viewBox` is itself; None is left out, and True is
        an attribute without a value.
    """
    given = "".join(f" {_attribute(key)}" + ("" if value is True else f'="{html.escape(str(value))}"')
                    for key, value in attributes.items() if value is not None)
    if name in ("meta", "link", "wbr"):
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{joined(children)}</{name}>")


def joined(children: Any) -> Markup:
    """Children of an element, as there, one behind the other."""
    if children is None:
        return Markup("")
    if isinstance(children, Markup):
        return children
    if isinstance(children, (list, tuple)):
        return Markup("".join(joined(child) for child in children))
    return Markup(html.escape(str(children)))


def _attribute(key):
    return key.rstrip("_").replace("_", "-")
