"""Pictures of the lists of runs: recall against diversity, and where recommendations go by popularity."""
import re
from typing import Optional
from typing import Sequence

from clrec_tf.evaluation.figures import bucket_name
from clrec_tf.evaluation.report import MOST_POPULAR
from clrec_tf.evaluation.report import UNTRAINED
from clrec_tf.models import dial
from clrec_tf.reporting.chart import Chart
from clrec_tf.reporting.chart import SERIES
from clrec_tf.reporting.markup import Markup
from clrec_tf.reporting.markup import tag
from clrec_tf.reporting.runs import number
from clrec_tf.reporting.runs import Run
from clrec_tf.reporting.tables import figure_text
from clrec_tf.reporting.tables import more
from clrec_tf.reporting.tables import table

_MOST_BUCKETS = 64  # of counts below 2**63
_USUAL = 10  # length of lists


def series(place: int) -> str:
    """The class of a run's colour and dashes."""
    return f"s{place % SERIES}"


def shape(place: int) -> int:
    """The shape of a run's points, other than that of the run that has the same colour."""
    return place + place // SERIES


def figure(drawn: Optional[Markup], caption: str, absent: Sequence[str], *data: Markup) -> Markup:
    """A picture with its caption, who is missing in it, and its numbers."""
    missing = tag("p", "Missing here: ", ", ".join(absent), ".", class_="missing") if absent else None
    return tag("figure", drawn, tag("figcaption", caption), missing, more("Its numbers as a table", *data)
               if drawn else None)


def dial_picture(runs: Sequence[Run]) -> Markup:
    """Hit rate against distinct items by popularity; most-popular and untrained models as points."""
    diversity, hits = _axes(runs)
    curves = {run.name: [(value, x, y) for value in dial.values_named(hits, run.metrics)
                         if None not in (x := run.number(dial.name(diversity, value)),
                                         y := run.number(dial.name(hits, value)))] for run in runs}
    absent = [name for name, points in curves.items() if not points]
    if len(absent) == len(runs):
        return figure(None, f"No run has {hits} and {diversity} at several popularities.", absent)
    points = _reference_points(runs, diversity, hits)
    every = [point[1:] for points in curves.values() for point in points] + [point for _, point, _ in points]
    length = diversity.partition("@")[2].partition("/")[0]
    chart = Chart([x for x, _ in every], [y for _, y in every], f"distinct items in all lists of {length}", hits,
                  from_zero=(True, True))
    for place, run in enumerate(runs):
        curve = [point[1:] for point in curves[run.name]]
        if curve:
            chart.line(curve, series(place))
            chart.points(curve, series(place), shape(place))
            _label_ends(chart, curves[run.name], run.number("popularity"), series(place))
    for title, point, of in points:
        chart.points([point], of, 1, 3.6)
        chart.text(*point, title, of)
    described = "; ".join(f"{name}: " + ", ".join(
        f"{figure_text(y)} with {x:,} items at popularity {value:g}" for value, x, y in (curve[0], curve[-1]))
        for name, curve in curves.items() if curve)
    caption = (f"{hits} against distinct items, one curve for each training, by the popularity that a request asks for "
               "(0: as trained). A ring: the one that validation users chose. Squares: references.")
    rows = [(run.name, f"{value:g}", figure_text(y), figure_text(x)) for run in runs
            for value, x, y in curves[run.name]]
    rows += [(title, "", figure_text(y), figure_text(x)) for title, (x, y), _ in points]
    return figure(chart.svg(f"Recall against diversity. {described}."), caption, absent,
                  table("The dial", ("run", "popularity", hits, diversity), rows))


def _axes(runs):
    """Names of diversity and hit rate of the list length that most runs have, of equals the nearest to 10."""
    lengths = _numbers_in(r"aggregate_diversity@(\d{1,6})/full/popularity=.*", runs)
    length = min(set(lengths), key=lambda one: (-lengths.count(one), abs(one - _USUAL), one), default=_USUAL)
    names = [f"hr@{k}/{candidates}" for candidates in ("full", "pop100", "uniform100")
             for k in (length, *sorted(set(_numbers_in(rf"hr@(\d{{1,6}})/{candidates}", runs))))]
    hits = next((name for name in names if any(dial.values_named(name, run.metrics) for run in runs)), names[0])
    return f"aggregate_diversity@{length}/full", hits


def _numbers_in(pattern, runs) -> list[int]:
    """The number in each metric's name that matches."""
    return [int(match[1]) for run in runs for name in run.metrics if (match := re.fullmatch(pattern, name))]


def _reference_points(runs, diversity, hits):
    """(title, (diversity, hit rate), class): most-popular once where runs agree, untrained of each run."""
    points = {}
    for place, run in enumerate(runs):
        for prefix, title, of in ((MOST_POPULAR, "most popular", "reference"), (UNTRAINED, "untrained", series(place))):
            point = run.number(prefix + diversity), run.number(prefix + hits)
            if None not in point:
                points.setdefault((title, point), (title, point, of))
    return list(points.values())


def _label_ends(chart, curve, chosen, of):
    """Popularity beside the first and last point, and at the model as trained; a ring around the one chosen."""
    for value, x, y in curve:
        if value == chosen:
            chart.ring(x, y, of)
        if value in (curve[0][0], 0.0, curve[-1][0]):
            chart.text(x, y, f"{value:g}", of)


def histogram(runs: Sequence[Run]) -> Markup:
    """Shares of clicks and recommendations by popularity of the item."""
    ours = {run.name: _shares(run.metrics, r"degree_histogram@\d+/full/") for run in runs}
    absent = [name for name, shares in ours.items() if not shares]
    if len(absent) == len(runs):
        return figure(None, "No run has a histogram by popularity.", absent)
    shown = {"training clicks": _first(runs, "truth/degree_histogram/"),
             "most popular": _first(runs, rf"{MOST_POPULAR}degree_histogram@\d+/full/"), **ours}
    buckets = range(max(map(len, shown.values())))
    shown = {name: shares + [0.0] * (len(buckets) - len(shares)) for name, shares in shown.items() if shares}
    names = [bucket_name(bucket) for bucket in buckets]
    chart = Chart([], [share for shares in shown.values() for share in shares], "clicks of the item in training",
                  "share", x_names=names)
    if "training clicks" in shown:
        chart.bars(shown["training clicks"], "truth")
    if "most popular" in shown:
        chart.line(list(enumerate(shown["most popular"])), "reference")
    for place, run in enumerate(runs):
        if run.name in shown:
            chart.line(list(enumerate(shown[run.name])), series(place))
            chart.points(list(enumerate(shown[run.name])), series(place), shape(place), 2.6)
    described = "; ".join(f"{name}: most, {max(shares):.0%}, at {names[shares.index(max(shares))]} clicks"
                          for name, shares in shown.items())
    rows = [(names[bucket], *(f"{shares[bucket]:.1%}" for shares in shown.values())) for bucket in buckets]
    caption = ("Where clicks and recommendations go, by how often the item was clicked in training, from each count to "
               "below the next. Bars: training clicks. Dotted: most-popular's lists.")
    return figure(chart.svg(f"Recommendations by popularity. {described}."), caption, absent,
                  table("Shares by popularity", ("clicks from", *shown), rows))


def _first(runs, pattern):
    """Shares of the first run that has them; they are of the data, not of the model."""
    return next(filter(None, (_shares(run.metrics, pattern) for run in runs)), [])


def _shares(metrics, pattern) -> list[float]:
    """Share of each bucket 0, 1, …; none where there are no such figures."""
    totals = {int(match[1]): number(value) for name, value in metrics.items()
              if (match := re.fullmatch(rf"{pattern}(\d{{1,2}})", name)) and (number(value) or 0) > 0}
    totals = {bucket: total for bucket, total in totals.items() if bucket < _MOST_BUCKETS}
    whole = sum(totals.values())
    return [totals.get(bucket, 0) / whole for bucket in range(max(totals) + 1)] if whole else []
