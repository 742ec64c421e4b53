"""The dial's curve, recall against diversity, as a table and as a picture."""
import os
from types import MappingProxyType
from typing import Mapping
from typing import Sequence

from matplotlib.figure import Figure

from clrec_tf.errors import UserError
from clrec_tf.evaluation.figures import save_png
from clrec_tf.evaluation.report import MOST_POPULAR
from clrec_tf.evaluation.report import UNTRAINED
from clrec_tf.models import dial
from clrec_tf.system.finite import is_number
from clrec_tf.system.json_files import load_json

CURVE_FILE = "dial.png"
_LINE, _CHOSEN, _POINT, _OTHER = "#0b6e99", "#e07a3f", "#3d3d3d", "#7fb3c8"


def _axes_names(result, ks, length):
    """(diversity, hit rate) of the cut-off that is as long as the lists, or else of the first one."""
    cutoffs = sorted(map(int, ks))
    k = length if length in cutoffs else cutoffs[0]
    sets = [name for name in ("full", "pop100", "uniform100") if f"hr@{k}/{name}" in result]
    return f"aggregate_diversity@{length}/full", f"hr@{k}/{sets[0]}", f"ndcg@{k}/{sets[0]}"


def curve_table(result: dict, ks: Sequence[str], length: int) -> str:
    """A line for each popularity: hit rate, NDCG, the same among 100 popular items, diversity, popularity index."""
    diversity, hits, ndcg = _axes_names(result, ks, length)
    k = hits.partition("@")[2].partition("/")[0]
    columns = [name for name in (hits, ndcg, f"hr@{k}/pop100", diversity, f"popularity_index@{length}/full")
               if any(key.startswith(f"{name}/popularity=") for key in result)]
    lines = [("popularity", *dict.fromkeys(columns))]
    for value in dial.values_named(columns[0], result):
        mark = " (chosen)" if result.get("popularity") == value else ""
        numbers = [result[dial.name(name, value)] for name in lines[0][1:]]
        lines.append((f"{value:g}{mark}", *(f"{number:.4f}" if isinstance(number, float) else f"{number:,}"
                                            for number in numbers)))
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\nThe table above is at popularity 0, as trained. The dial, by " + result.get("popularity_of", "clicks") + (
        ":\n") + "\n".join("  ".join(cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in
                                      enumerate(zip(line, widths))).rstrip() for line in lines)


def save_curve(workdir: str, result: dict, ks: Sequence[str], length: int, model_name: str,
               others: Mapping = MappingProxyType({})) -> str:
    """Draws hit rate against distinct items for every popularity, most-popular and other systems as points, or as a
    curve, where they were evaluated at several popularities too.

    Args:
      workdir: folder of the run.
      result: metrics of an evaluation with a curve.
      ks, length: of the evaluation.
      model_name: for the legend.
      others: of `read_points`.

    Returns:
      Path of the PNG, which appears under its name only when it is whole.

    Raises:
      UserError: one of the others lacks a metric of the axes.
    """
    diversity, hits, _ = _axes_names(result, ks, length)
    figure = Figure(figsize=(8, 5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    values = dial.values_named(hits, result)
    xs, ys = _curve(result, diversity, hits)
    axes.plot(xs, ys, "o-", color=_LINE, label=f"{model_name}, one training, by popularity", zorder=3)
    curves = {name: _curve(metrics, diversity, hits) for name, metrics in others.items()
              if dial.values_named(hits, metrics)}
    for name, (other_xs, other_ys) in curves.items():
        axes.plot(other_xs, other_ys, "o--", color=_OTHER, markersize=4, label=name, zorder=1)
    for value, x, y in zip(values, xs, ys):
        chosen = result.get("popularity") == value
        # The chosen one's below, or it would cover its neighbour's.
        axes.annotate(f"{value:g}" + (" (chosen)" if chosen else ""), (x, y), (0, -16) if chosen else (6, 6),
                      textcoords="offset points", ha="center" if chosen else "left", fontsize=9,
                      color=_CHOSEN if chosen else _LINE, weight="bold" if chosen else "normal")
    points = _points(result, diversity, hits, {name: other for name, other in others.items() if name not in curves})
    for name, (x, y) in points.items():
        axes.plot(x, y, "s", color=_POINT, zorder=2)
    _name_points(axes, points, max(xs), max([*ys, *(y for _, y in points.values())]))
    axes.set_xlabel(f"distinct items in all users' lists of {length}, of {result['items']:,}")
    axes.set_ylabel(f"hit rate: {hits}")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    axes.set_title(f"The dial: recall against diversity ({result['split']}, {result['users']:,} users)")
    return save_png(figure, os.path.join(workdir, CURVE_FILE))


def _name_points(axes, points, width, height):
    """Names beside the points, to the left where there is room, one below the other where points are close."""
    lowest = {}  # by side: where the last name stands, and its point's x
    for name, (x, y) in sorted(points.items(), key=lambda item: -item[1][1]):
        left = x < 0.3 * width
        last_y, last_x = lowest.get(left, (float("inf"), x))
        at = min(y - 0.025 * height, last_y - 0.04 * height) if abs(x - last_x) < 0.25 * width else y - 0.025 * height
        lowest[left] = at, x
        axes.annotate(name, (x, y), (x + (0.02 if left else -0.02) * width, at), fontsize=8, color=_POINT,
                      ha="left" if left else "right", va="center",
                      arrowprops=dict(arrowstyle="-", color=_POINT, linewidth=0.5, alpha=0.5))


def read_points(path: str) -> dict:
    """The file of `DialConfig.curve_points`: {name: {metric: number}}; nothing for "".

    Raises:
      UserError: it is not there, or of another form.
    """
    if not path:
        return {}
    form = "give a JSON object {name: {metric: number}}"
    others = load_json(path, "correct --curve_points", form)
    for name, metrics in others.items() if isinstance(others, dict) else [("", others)]:
        if not isinstance(metrics, dict) or not all(map(is_number, metrics.values())):
            raise UserError(f"--curve_points={path}: {name or 'it'} is no object of numbers: {form}")
    return others


def _curve(metrics, diversity, hits):
    """(diversities, hit rates) by rising popularity; `UserError` where one of the pair is not there."""
    names = [tuple(dial.name(name, value) for name in (diversity, hits)) for value in dial.values_named(hits, metrics)]
    missing = sorted({name for pair in names for name in pair} - set(metrics))
    if missing:
        raise UserError(f"--curve_points: a curve needs {diversity} at every popularity, {missing[0]} is missing")
    return [[metrics[name] for name in column] for column in zip(*names)]


def _points(result, diversity, hits, others):
    """name -> (diversity, hit rate) of what stands beside the curve."""
    points = {title: (result[prefix + diversity], result[prefix + hits])
             for prefix, title in ((MOST_POPULAR, "most popular"), (UNTRAINED, "untrained"))
             if prefix + diversity in result and prefix + hits in result}
    for name, metrics in others.items():
        if {diversity, hits} - set(metrics):
            raise UserError(f"--curve_points: each system needs {diversity} and {hits}, {name} has "
                            f"{', '.join(metrics) or 'nothing'}")
        points[name] = metrics[diversity], metrics[hits]
    return points
