"""The history as a picture: today's model beside yesterday's on each day's next clicks, and what could be found."""
import math
import os

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from clrec_tf.days import history
from clrec_tf.evaluation.figures import save_png
from clrec_tf.system import atomic

FIGURE_FILE = "history.png"
_TODAY, _YESTERDAY, _REFUSED, _STOPPED, _NEW = "#0b6e99", "#9aa5b1", "#c0392b", "#e9d8d4", "#e07a3f"
_MOST_METRICS, _MOST_NAMES = 4, 12


def draw_history(days_dir: str, days: list[dict]) -> str:
    """Draws a panel for each metric of --gate, and one of the share of next clicks that can be found.

    A bar at today's model is the 95 % interval of its change against yesterday's, laid from yesterday's value.

    Args:
      days_dir: where it is written.
      days: of `history.read`, of any version.

    Returns:
      Path of the PNG, which appears under its name only when it is whole.

    Raises:
      UserError: it cannot be written.
    """
    named = list(dict.fromkeys(name for each in reversed(days) for name in history.compared(each)))
    metrics = named[:_MOST_METRICS]
    figure = Figure(figsize=(9, 2.4 * (len(metrics) + 1) + 0.4), dpi=100, layout="constrained")
    panels = figure.subplots(len(metrics) + 1, sharex=True, squeeze=False)[:, 0]
    for axes, metric in zip(panels, metrics):
        _draw_metric(axes, days, metric)
    _draw_findable(panels[-1], days)
    for axes in panels:
        _mark_stopped(axes, days)
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    step = math.ceil(max(len(days), 1) / _MOST_NAMES)
    panels[-1].set_xticks(range(0, len(days), step), [each["day"] for each in days[::step]], rotation=30, ha="right",
                          fontsize=8)
    panels[-1].set_xlim(-0.5, max(len(days), 1) - 0.5)
    panels[0].set_title("Each day's next clicks: today's model and yesterday's")
    figure.align_ylabels()
    path = os.path.join(days_dir, FIGURE_FILE)
    with atomic.write_errors(path, f"days_dir={days_dir}"):
        return save_png(figure, path)


def today(entry: dict, metric: str):
    """A metric of the day's own model, or None."""
    compared = history.compared(entry).get(metric)
    return compared["now"] if compared else history.part(entry, "metrics").get(metric)


def interval(entry: dict, metric: str):
    """Bounds that today's value may have by chance, from yesterday's and the interval of the change; None without."""
    compared = history.compared(entry).get(metric, {})
    changes = [compared.get("low"), compared.get("high")]
    if None in changes or not all(map(math.isfinite, changes)):
        return None
    return tuple(compared["before"] * (1.0 + change) for change in changes)


def _draw_metric(axes, days, metric):
    """One panel: today's model as a line through published days, refused ones as crosses, yesterday's as squares."""
    values = [today(each, metric) for each in days]
    refused = [each["status"] == history.REFUSED for each in days]
    before = [history.compared(each).get(metric, {}).get("before") for each in days]
    bounds = [(place, interval(each, metric)) for place, each in enumerate(days)]
    bounds = [(place, *pair) for place, pair in bounds if pair]
    if bounds:
        places, lows, highs = zip(*bounds)
        axes.vlines(places, lows, highs, color=_TODAY, alpha=0.45, linewidth=4,
                    label="95 % interval of\nthe change, paired")
    _plot(axes, before, "s--", _YESTERDAY, "yesterday's model", zorder=2)
    _plot(axes, [None if no else value for value, no in zip(values, refused)], "o-", _TODAY, "today's model", zorder=3)
    _plot(axes, [value if no else None for value, no in zip(values, refused)], "X", _REFUSED, "refused", zorder=4)
    axes.set_ylabel(metric.replace("/full", "/full\n", 1).rstrip(), fontsize=8)


def _plot(axes, values, form, colour, label, zorder):
    """What is known of a series, joined over gaps."""
    known = [(place, value) for place, value in enumerate(values) if value is not None]
    if known:
        axes.plot(*zip(*known), form, color=colour, label=label, zorder=zorder, markersize=5)


def _draw_findable(axes, days):
    """The last panel."""
    _plot(axes, [each.get("findable") for each in days], "o-", _TODAY, "with today's items", zorder=3)
    _plot(axes, [each.get("findable_yesterday") for each in days], "s--", _YESTERDAY, "with yesterday's", zorder=2)
    _plot(axes, [history.part(each, "data").get("new_items") for each in days], "^:", _NEW, "new items, of all",
          zorder=1)
    axes.set_ylabel("next clicks that\ncan be found", fontsize=8)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_ylim(0.0, 1.05)


def _mark_stopped(axes, days):
    """Days that ended before training, as bands."""
    label = "stopped"
    for place, each in enumerate(days):
        if each["status"] == history.STOPPED:
            axes.axvspan(place - 0.5, place + 0.5, color=_STOPPED, label=label, zorder=0)
            label = None
