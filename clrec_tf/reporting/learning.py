"""Pictures of training: loss and validation by step, and what the queue held."""
from typing import Sequence

from clrec_tf.reporting.chart import Chart
from clrec_tf.reporting.markup import Markup
from clrec_tf.reporting.pictures import figure
from clrec_tf.reporting.pictures import series
from clrec_tf.reporting.pictures import shape
from clrec_tf.reporting.runs import Run
from clrec_tf.reporting.tables import figure_text
from clrec_tf.reporting.tables import table

_MOST_POINTS, _MOST_ROWS = 300, 40  # of a curve, of its table
_QUEUE = (("queue_fill", "entries in the queue"),
          ("queue_duplicate_rate", "share of entries that repeat an item"),
          ("queue_age", "age of the entries, steps"))
_LAST = ("queue_intent_fill_min", "queue_intent_fill_mean", "queue_intent_age_max", "queue_intent_share_min",
         "queue_intent_share_max")


def learning_curves(runs: Sequence[Run]) -> list[Markup]:
    """Loss by step, and each metric that a run was validated by."""
    metrics = list(dict.fromkeys(f"valid/{run.setting('train', 'validation_metric') or 'hr@10/full'}" for run in runs))
    return [_curves(runs, "loss", "training loss. Losses of different objectives or queues are not on one scale",
                    from_zero=False),
            *(_curves(runs, name, f"validation users' {name.partition('/')[2]}. A ring: the checkpoint evaluated")
              for name in metrics)]


def queue_curves(runs: Sequence[Run]) -> list[Markup]:
    """What the queue held by step; of what no run has, nothing is drawn."""
    return [_curves(runs, name, title) for name, title in _QUEUE
            if name != "queue_age" or any(run.curve(name) for run in runs)]


def queue_table(runs: Sequence[Run]) -> Markup:
    """What the queue held at the end of training."""
    names = [name for name, _ in _QUEUE] + [name for name in _LAST if any(run.curve(name) for run in runs)]
    return table("The queue at the end of training", ("", *(run.name for run in runs)), [
        ("--queue", *(str(run.setting("loss", "queue") or "") or None for run in runs)),
        ("--queue_size", *(figure_text(run.setting("loss", "queue_size")) for run in runs)),
        *((name, *(_last(run.curve(name)) for run in runs)) for name in names)])


def _last(curve):
    if not curve:
        return None
    value = curve[-1][1]
    return figure_text(int(value) if value == int(value) else value)


def _curves(runs, name, title, from_zero: bool = True) -> Markup:
    curves = {run.name: _thinned(run.curve(name), _MOST_POINTS) for run in runs}
    absent = [of for of, curve in curves.items() if not curve]
    caption = f"{title[0].upper()}{title[1:]}."
    if len(absent) == len(runs):
        return figure(None, caption, absent)
    every = [point for curve in curves.values() for point in curve]
    chart = Chart([x for x, _ in every], [y for _, y in every], "step", name, from_zero=(True, from_zero))
    for place, run in enumerate(runs):
        curve = curves[run.name]
        if curve:
            chart.line(curve, series(place))
            chart.points(curve if len(curve) <= 30 else curve[-1:], series(place), shape(place), 2.6)
            evaluated = dict(curve).get(run.metrics.get("step")) if name.startswith("valid/") else None
            if evaluated is not None:
                chart.ring(run.metrics["step"], evaluated, series(place))
    described = "; ".join(f"{of}: from {figure_text(curve[0][1])} at step {curve[0][0]:,} to "
                          f"{figure_text(curve[-1][1])} at step {curve[-1][0]:,}"
                          for of, curve in curves.items() if curve)
    return figure(chart.svg(f"{name} by step. {described}."), caption, absent, _numbers(name, curves))


def _numbers(name, curves):
    """A row for each step that a curve has, or every so many of them."""
    by_step = {of: dict(curve) for of, curve in curves.items()}
    steps = _thinned(sorted({step for curve in by_step.values() for step in curve}), _MOST_ROWS)
    return table(f"{name} by step", ("step", *by_step), [
        (f"{step:,}", *(figure_text(values[step]) if step in values else "" for values in by_step.values()))
        for step in steps])


def _thinned(values: list, most: int) -> list:
    """At most so many of the values, evenly, the first and the last among them."""
    if len(values) <= most:
        return values
    return [values[place * (len(values) - 1) // (most - 1)] for place in range(most)]
