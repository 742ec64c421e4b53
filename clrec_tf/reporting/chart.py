"""A small chart as SVG: axes with round ticks, lines, points and bars. Colours are classes of the page's style.

It is drawn 360 wide, for a phone, and grows with the page, so its letters can be read on both.
"""
import math
from typing import Optional
from typing import Sequence

from clrec_tf.reporting.markup import Markup
from clrec_tf.reporting.markup import tag

WIDTH, HEIGHT = 360, 250
SERIES = 8  # classes s0 to s7 of colours and dashes, and shapes of points
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 12, 12, 38
_LETTER, _LINE = 6.2, 12  # mean width of a letter, at most, and height of a line


class Chart:
    """A chart to be filled.

    Args:
      xs, ys: all values that it is to show; at least one of each.
      x_label, y_label: of the axes.
      from_zero: whether the axes begin at 0, (x, y).
      x_names: names of the places 0, 1, … in place of numbers.
    """

    def __init__(self, xs: Sequence[float], ys: Sequence[float], x_label: str, y_label: str,
                 from_zero: tuple[bool, bool] = (False, True), x_names: Sequence[str] = ()):
        self._x_range = (-0.6, len(x_names) - 0.4) if x_names else _range(xs, from_zero[0])
        self._y_range = _range(ys, from_zero[1])
        self._parts, self._labels, self._boxes = [], [x_label, y_label], []
        self._axes(x_names)

    def line(self, points: Sequence[tuple[float, float]], series: str) -> None:
        """Joins points (x, y) in the order given. Args: series: class of the colour and dashes."""
        path = " ".join(f"{'ML'[place > 0]}{self._x(x):.1f} {self._y(y):.1f}" for place, (x, y) in enumerate(points))
        self._parts.append(tag("path", d=path, class_=f"line {series}"))

    def points(self, points: Sequence[tuple[float, float]], series: str, shape: int, size: float = 3.2) -> None:
        """Marks points (x, y). Args: shape: number of one, see `mark`."""
        self._parts += [mark(self._x(x), self._y(y), series, shape, size) for x, y in points]

    def ring(self, x: float, y: float, series: str) -> None:
        """A circle around a point."""
        self._parts.append(tag("circle", cx=f"{self._x(x):.1f}", cy=f"{self._y(y):.1f}", r="7",
                               class_=f"ring {series}"))

    def bars(self, heights: Sequence[float], series: str) -> None:
        """Bars at the places 0, 1, …"""
        bottom, half = self._y(0), 0.42 * (self._x(1) - self._x(0))
        self._parts += [tag("rect", x=f"{self._x(place) - half:.1f}", y=f"{self._y(height):.1f}",
                            width=f"{2 * half:.1f}", height=f"{bottom - self._y(height):.1f}", class_=f"bar {series}")
                        for place, height in enumerate(heights)]

    def text(self, x: float, y: float, words: str, series: str) -> None:
        """Words beside a point, to its right, or to its left where there is no room; none where others stand there."""
        across, up, room = self._x(x), self._y(y) - 5, _LETTER * len(words) + 2
        right = across + room + 6 <= WIDTH
        left = across + 6 if right else across - 6 - room
        if any(left < other + width and other < left + room and abs(up - height) < _LINE
               for other, height, width in self._boxes):
            return
        self._boxes.append((left, up, room))
        self._parts.append(_text(across + (6 if right else -6), up, words, "start" if right else "end",
                                 f"label {series}"))

    def svg(self, described: str) -> Markup:
        """The chart. Args: described: in words, for those who do not see it."""
        return tag("svg", tag("title", described), self._parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img",
                   aria_label=described, class_="chart")

    def _x(self, value):
        low, high = self._x_range
        return _LEFT + (value - low) / (high - low) * (WIDTH - _LEFT - _RIGHT)

    def _y(self, value):
        low, high = self._y_range
        return HEIGHT - _BOTTOM - (value - low) / (high - low) * (HEIGHT - _TOP - _BOTTOM)

    def _axes(self, x_names):
        """Grid, ticks and labels; the first and the last number of the x axis keep inside."""
        bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
        for value in ticks(*self._y_range):
            y = f"{self._y(value):.1f}"
            self._parts += [tag("line", x1=_LEFT, x2=right, y1=y, y2=y, class_="grid"),
                            _text(_LEFT - 5, self._y(value) + 3.5, number_text(value), "end", "tick")]
        shown = dict(enumerate(x_names)) or {value: number_text(value) for value in ticks(*self._x_range)}
        every = max(1, math.ceil(max(len(name) + 1 for name in shown.values()) * _LETTER * len(shown)
                                 / (right - _LEFT)))
        for value in list(shown)[::every]:
            self._parts.append(_text(self._x(value), bottom + 14, shown[value], "middle", "tick"))
        self._parts += [tag("line", x1=_LEFT, x2=right, y1=bottom, y2=bottom, class_="axis"),
                        _text((_LEFT + right) / 2, HEIGHT - 6, self._labels[0], "middle", "tick"),
                        tag("text", self._labels[1], x=0, y=0, text_anchor="middle", class_="tick",
                            transform=f"translate(9 {(_TOP + bottom) / 2:.0f}) rotate(-90)")]


def mark(x: float, y: float, series: str, shape: int, size: float = 3.2) -> Markup:
    """A point: a circle, square, triangle or diamond by its number."""
    corners = ((), ((-1, -1), (1, -1), (1, 1), (-1, 1)), ((0, -1.3), (1.2, 1), (-1.2, 1)),
               ((0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0)))[shape % 4]
    if not corners:
        return tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=size, class_=f"point {series}")
    return tag("polygon", points=" ".join(f"{x + size * a:.1f},{y + size * b:.1f}" for a, b in corners),
               class_=f"point {series}")


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """At most `most` round numbers from low to high: multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / most
    power = 10.0**math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 5, 10, 20) if (math.floor(high / (size * power) + 1e-9)
                                                               - math.ceil(low / (size * power) - 1e-9)) < most)
    return [round(place * step, 12) + 0.0 for place in range(math.ceil(low / step - 1e-9),
                                                            math.floor(high / step + 1e-9) + 1)]


def number_text(value: float) -> str:
    """A tick's number, short: 1.5k, 2M, .05 as 0.05."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size and abs(value) >= 1e4:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _range(values, from_zero) -> tuple[float, float]:
    """What an axis spans: a little more than the values, and never nothing."""
    low, high = min(values), max(values)
    low, high = (min(low, 0.0), max(high, 0.0)) if from_zero else (low, high)
    room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return low if from_zero and low == 0.0 else low - room, high + room


def _text(x, y, words, anchor, class_: Optional[str]):
    return tag("text", words, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=class_)
