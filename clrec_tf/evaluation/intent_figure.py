"""The picture of one user's intents: the clicks, and beside them what each vector finds (paper, Figure 5).

Colours and numbers say which intent an item is routed to. A vector that has a theme finds items of its own colour.
"""
import os

from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.textpath import TextToPath

from clrec_tf.evaluation.figures import save_png
from clrec_tf.evaluation.intent_example import IntentExample

INTENTS_FILE = "intents.png"
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7a4fa3")  # apart for the colour-blind
_OTHER, _TEXT, _SUBDUED = "#9a9a9a", "#222222", "#666666"
_COLUMNS, _GAP, _MARGIN = 4, 0.22, 0.25  # inches, like all lengths below
_WIDTH, _HISTORY_WIDTH, _ROW, _HEAD, _TITLE = 2.85, 3.2, 0.335, 0.34, 0.62
_CHIP, _PAD = 0.3, 0.04
_FONT = font_manager.FontProperties(family="DejaVu Sans")


def save_intents(workdir: str, example: IntentExample) -> str:
    """Draws the picture and returns the path of the PNG, which appears under its name only when it is whole."""
    vectors, tall = example.vectors, _height(max(len(vector.items) for vector in example.vectors))
    rows = -(-(len(vectors) + 1) // _COLUMNS)  # one more box, for the next click
    height = max(rows * (tall + _GAP) - _GAP, _height(len(example.history)))
    top, width = _MARGIN + _TITLE, 2 * _MARGIN + _HISTORY_WIDTH + _COLUMNS * (_WIDTH + _GAP)
    page = _Page(width, top + height + _MARGIN, [vector.number for vector in vectors])
    _draw_title(page, example)
    page.box(_MARGIN, top, _HISTORY_WIDTH, f"clicks, latest first ({len(example.history)} of {example.clicks:,})", "",
             example.history, _SUBDUED, height)
    places = [(_MARGIN + _HISTORY_WIDTH + _GAP + place % _COLUMNS * (_WIDTH + _GAP),
               top + place // _COLUMNS * (tall + _GAP)) for place in range(len(vectors) + 1)]
    for place, vector in zip(places, vectors):
        page.box(*place, _WIDTH, f"intent {vector.number}", _weight(vector.weight), vector.items,
                 page.colours[vector.number], tall, example.next_click)
    page.box(*places[-1], _WIDTH, "clicked next", "", [example.next_click], _SUBDUED, _height(1))
    return save_png(page.figure, os.path.join(workdir, INTENTS_FILE))


def _draw_title(page, example):
    own = [item.intent == vector.number for vector in example.vectors for item in vector.items]
    page.text(_MARGIN, _MARGIN + 0.12, f"User {example.user_id:,}: the {len(example.vectors)} heaviest intents", 13,
              weight="bold")
    page.text(_MARGIN, _MARGIN + 0.42, "An item's number and colour are those of the intent that it is routed to by "
              f"its {example.feature}; grey: none of these {len(example.vectors)}. Of the {len(own)} items that the "
              f"vectors find, {sum(own)} are routed to their vector's own intent.", 9, colour=_SUBDUED)


def _height(items):
    """Of a box with so many items."""
    return _HEAD + items * _ROW + 2 * _PAD


def _weight(weight):
    return f"weight {weight:.3f}" if weight >= 0.0005 else "weight < 0.001"


class _Page:
    """A page of boxes; lengths in inches, from the upper left corner.

    Args:
      width, height: of the page.
      numbers: of the intents that have a colour of their own.
    """

    def __init__(self, width, height, numbers):
        self.figure = Figure(figsize=(width, height), dpi=150, facecolor="white")
        self._axes = self.figure.add_axes((0, 0, 1, 1))
        self._axes.set(xlim=(0, width), ylim=(height, 0))
        self._axes.axis("off")
        self.colours = {number: _COLOURS[place % len(_COLOURS)] for place, number in enumerate(numbers)}

    def box(self, left, top, width, head, remark, items, colour, height, marked=None):
        """A frame with a coloured head, and an item in each row; the item that equals `marked` is in bold print."""
        self._rectangle(left, top, width, height, facecolor="none", edgecolor=colour, linewidth=1.2)
        self._rectangle(left, top, width, _HEAD, facecolor=colour, edgecolor=colour, linewidth=1.2)
        self.text(left + 0.09, top + _HEAD / 2, head, 10, colour="white", weight="bold")
        self.text(left + width - 0.09, top + _HEAD / 2, remark, 9, colour="white", align="right")
        for row, item in enumerate(items):
            self._item(left + 0.07, top + _HEAD + _PAD + row * _ROW, width - 0.14, item, item == marked)

    def _item(self, left, top, width, item, bold):
        colour = self.colours.get(item.intent, _OTHER)
        self._rectangle(left, top + 0.055, _CHIP, _ROW - 0.08, facecolor=colour, edgecolor="none")
        self.text(left + _CHIP / 2, top + _ROW / 2 + 0.015, "–" if item.intent is None else str(item.intent), 8,
                  colour="white", weight="bold", align="center")
        room, left = width - _CHIP - 0.08, left + _CHIP + 0.07
        weight, mark = ("bold", " ← clicked next") if bold else ("normal", "")
        title = shortened(readable(item.title, item.original_id), 8, room - _width(mark, 8, weight), weight)
        self.text(left, top + 0.12, title + mark, 8, weight=weight)
        self.text(left, top + 0.255, shortened(readable(item.category, "?"), 6.5, room), 6.5, colour=_SUBDUED)

    def text(self, left, middle, words, size, colour=_TEXT, weight="normal", align="left"):
        """A line of text; a dollar sign is a dollar sign."""
        self._axes.text(left, middle, words, fontsize=size, color=colour, fontweight=weight, horizontalalignment=align,
                        verticalalignment="center", parse_math=False, family=_FONT.get_family())

    def _rectangle(self, left, top, width, height, **style):
        self._axes.add_patch(Rectangle((left, top), width, height, **style))


def readable(words: str, otherwise: str) -> str:
    """The words in one line, "?" for characters that the font lacks; `otherwise` where it lacks most of them."""
    words = " ".join(words.split())
    known = font_manager.get_font(font_manager.findfont(_FONT)).get_charmap()
    missing = sum(ord(letter) not in known for letter in words)
    if 2 * missing > len(words):
        return readable(otherwise, "?") if otherwise != words else "?"
    return "".join(letter if ord(letter) in known else "?" for letter in words)


def shortened(words: str, size: float, room: float, weight: str = "normal") -> str:
    """The words, or as many of their letters as fit into `room` inches at a font size in points, and "…"."""
    if _width(words, size, weight) <= room:
        return words
    while words and _width(words + "…", size, weight) > room:
        words = words[:-1]
    return words.rstrip() + "…"


def _width(words, size, weight):
    font = font_manager.FontProperties(family=_FONT.get_family(), size=size, weight=weight)
    return TextToPath().get_text_width_height_descent(words, font, False)[0] / 72
