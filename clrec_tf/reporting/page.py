"""The page: sections of finished runs in one HTML file that needs nothing else, for screens and paper."""
import base64
import hashlib
import pathlib
from typing import Sequence

import clrec_tf
from clrec_tf.evaluation.findings import WARNINGS
from clrec_tf.reporting import facts
from clrec_tf.reporting.chart import mark
from clrec_tf.reporting.learning import learning_curves
from clrec_tf.reporting.learning import queue_curves
from clrec_tf.reporting.learning import queue_table
from clrec_tf.reporting.markup import Markup
from clrec_tf.reporting.markup import tag
from clrec_tf.reporting.metric_tables import metric_tables
from clrec_tf.reporting.pictures import dial_picture
from clrec_tf.reporting.pictures import histogram
from clrec_tf.reporting.pictures import series
from clrec_tf.reporting.pictures import shape
from clrec_tf.reporting.runs import ALIKE
from clrec_tf.reporting.runs import Run
from clrec_tf.reporting.tables import figure_text

_ANY_ENCODER = "clrec"  # the tower that takes all user encoders
_UPRIGHT = 8  # runs that a sheet of paper held upright has room for
_STYLE = (pathlib.Path(__file__).parent / "page.css").read_text(encoding="utf-8")
# Whatever got into the page: no script runs, nothing is loaded, and only this style holds.
_POLICY = ("default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; style-src 'sha256-"
           + base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode() + "'")
_INTERVALS = ("At popularity 0, as trained. Intervals are 95 % bootstrap intervals over users; they say nothing of "
              "other seeds. Runs whose intervals overlap may be equal. ")


def page_of(runs: Sequence[Run]) -> str:
    """HTML of one or several runs. Args: runs: of `read_runs`."""
    unlike = _evaluated_unlike(runs)
    sections = (
        ("metrics", "Metrics", [tag("p", _INTERVALS, "Bold: a row's highest run." if len(runs) > 1 and not unlike
                                    else None), metric_tables(runs, not unlike)]),
        ("dial", "Recall against diversity", dial_picture(runs)),
        ("popularity", "Recommendations by popularity", histogram(runs)),
        ("learning", "Learning curves", tag("div", learning_curves(runs), class_="pair")),
        ("queue", "The queue", [queue_table(runs), tag("div", queue_curves(runs), class_="pair")]),
        ("intents", "Intents", facts.intents(runs)),
        ("settings", "Settings", facts.settings(runs)),
        ("origin", "Where the figures come from", facts.provenance(runs)))
    sections = [section for section in sections if section[2]]
    title = f"Report: {', '.join(run.name for run in runs)}"
    head = tag("head", tag("meta", charset="utf-8"), tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
               tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
               tag("meta", name="color-scheme", content="light dark"), tag("title", title),
               tag("link", rel="icon", href="data:,"), tag("style", Markup(_STYLE)))
    body = tag("body", tag("header", tag("h1", title), _subtitle(runs[0]), _legend(runs), tag("nav", [
        tag("a", name, href=f"#{key}") for key, name, _ in sections], aria_label="Sections")),
        tag("main", _said(runs, unlike), [tag("section", tag("h2", name), content, id=key)
                                          for key, name, content in sections]),
        tag("footer", f"Written by clrec_tf {clrec_tf.__version__}, python -m clrec_tf.report."),
        class_="many" if len(runs) > _UPRIGHT else None)
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _subtitle(run):
    users, items = (figure_text(run.metrics.get(name)) or "an unknown number of" for name in ("users", "items"))
    return tag("p", f"{run.setting('paths', 'data_dir') or 'An unnamed data set'}, {run.metrics['split']} part: "
               f"{users} users, {items} items.", class_="soft")


def _legend(runs):
    """Each run with its colour, dashes and shape, which all pictures use."""
    items = []
    for place, run in enumerate(runs):
        drawn = tag("path", d="M2 8 H30", class_=f"line {series(place)}"), mark(16, 8, series(place), shape(place), 4)
        items.append(tag("li", tag("svg", *drawn, viewBox="0 0 32 16", aria_hidden="true"),
                         tag("span", tag("b", run.name), tag("small", _described(run)))))
    return tag("ul", items, class_="legend", aria_label="Runs")


def _described(run):
    model = run.setting("model", "model")
    parts = [model, run.setting("model", "user_encoder") if model == _ANY_ENCODER else None,
             run.setting("loss", "loss"),
             f"queue {run.setting('loss', 'queue')}" if run.curve("queue_fill") else None,
             f"seed {run.setting('paths', 'seed')}", f"step {figure_text(run.metrics.get('step')) or 'missing'}"]
    return ", ".join(str(part) for part in parts if part)


def _evaluated_unlike(runs) -> list[str]:
    """What the evaluations differ in, so that their figures cannot be compared."""
    return [f"{name}: " + ", ".join(f"{run.name} {figure_text(run.metrics.get(name)) or 'missing'}" for run in runs)
            for name in ALIKE if len({repr(run.metrics.get(name)) for run in runs}) > 1]


def _said(runs, unlike):
    """Warnings, above everything."""
    sentences = [f"These runs were not evaluated alike, so their figures cannot be compared: {'; '.join(unlike)}. "
                 "Evaluate them with the same flags."] if unlike else []
    for run in runs:
        warnings = run.metrics.get(WARNINGS)
        sentences += [f"{run.name}: {warning}" for warning in (warnings if isinstance(warnings, list) else ())]
        steps = [step for step in (run.best, run.latest) if step is not None]
        if steps and run.number("step") not in steps:
            sentences.append(f"{run.name}: its figures are of step {figure_text(run.metrics.get('step')) or 'unknown'}, "
                             f"and training has gone on since: its checkpoints are of step "
                             f"{' and '.join(map(figure_text, dict.fromkeys(steps)))}. Evaluate it again.")
        if not run.rows:
            sentences.append(f"{run.name}: metrics.jsonl is missing or empty, so there are no learning curves.")
        if run.unread:
            sentences.append(f"{run.name}: {run.unread} lines of metrics.jsonl cannot be read and are left out.")
    return [tag("p", sentence, class_="warning", role="note") for sentence in sentences]
