"""The metrics of runs beside each other, by what is ranked, with intervals and references."""
import re
from typing import Optional
from typing import Sequence

from clrec_tf.evaluation.report import COLD_REFERENCES
from clrec_tf.evaluation.report import MOST_POPULAR
from clrec_tf.evaluation.report import UNTRAINED
from clrec_tf.reporting.markup import Markup
from clrec_tf.reporting.markup import tag
from clrec_tf.reporting.runs import number
from clrec_tf.reporting.runs import Run
from clrec_tf.reporting.tables import breakable
from clrec_tf.reporting.tables import figure_text
from clrec_tf.reporting.tables import more
from clrec_tf.reporting.tables import table

_REFERENCES = {MOST_POPULAR: "most popular", UNTRAINED: "untrained", **COLD_REFERENCES}
_RANKING = r"(?:(?:hr|ndcg|recall|recall5)@\d+|mrr)"
_LISTS = "aggregate_diversity coverage gini popularity_index arp aplt cold_share".split()
# title, names, whether more is better, whether it is open at once
_PARTS = (
    ("Ranked among all items (/full)", f"{_RANKING}/full", True, True),
    ("Ranked among 100 negatives drawn by popularity (/pop100): no proof of debiasing", f"{_RANKING}/pop100", True,
     True),
    ("Ranked among 100 negatives drawn uniformly (/uniform100)", f"{_RANKING}/uniform100", True, True),
    ("The lists of all users: diversity and popularity", rf"(?:{'|'.join(_LISTS)})@\d+/full", False, True),
    ("AUC against one random item (auc/)", r"auc/.*", True, True),
    ("Groups of users (/new, /repeated, /cold, /warm, /strangers)",
     rf"{_RANKING}(?:/full)?/(?:new|repeated|cold|warm|strangers)", True, False),
    ("Intents", rf"intents/.*|intents_searched|{_RANKING}/full/(?:lse|maximum|heaviest|given_intent.*)", False, False),
)
_LEFT_OUT = r"(?:truth/|.*degree_histogram|.*/popularity=|.*/(?:low|high)$|warnings$|checkpoint_hash$)"


def metric_tables(runs: Sequence[Run], alike: bool) -> list[Markup]:
    """A table for each candidate set, those of groups of users and of intents to be opened, and one of all the rest.

    Args:
      runs: to be compared.
      alike: whether they were evaluated alike, so that the best figure of a row may be marked.
    """
    names = sorted({name for run in runs for name in run.metrics if not _reference_of(name)
                    and not re.match(_LEFT_OUT, name)}, key=_order)
    parts, hidden, taken = [], [], set(same := _same_as_hits(names, runs))
    for title, pattern, better, open_at_once in _PARTS:
        chosen = [name for name in names if re.fullmatch(pattern, name) and name not in same]
        taken |= set(chosen)
        if chosen:
            shown = _table(title, chosen, runs, alike and better and len(runs) > 1)
            (parts if open_at_once else hidden).append(shown if open_at_once else more(title, shown))
    rest = [name for name in names if name not in taken]
    if rest:
        hidden.append(more("Everything else that evaluate says", _table("Everything else", rest, runs, False)))
    said = tag("p", "recall@k is hr@k here, and left out.", class_="soft") if same else None
    return [tag("div", parts, class_="tables"), *filter(None, [said]), *hidden]


def _same_as_hits(names, runs) -> set[str]:
    """recall@k/full where all of them are hr@k/full."""
    recalls = {name for name in names if re.fullmatch(r"recall@\d+/full", name)}
    alike = all(run.metrics.get(name) == run.metrics.get(name.replace("recall", "hr")) for name in recalls
                for run in runs)
    return recalls if alike else set()


def _reference_of(name) -> Optional[str]:
    return next((prefix for prefix in _REFERENCES if name.startswith(prefix)), None)


def _order(name):
    """By metric, then by cut-off as a number."""
    metric, _, rest = name.partition("@")
    cutoff = re.match(r"\d{1,9}", rest)
    return metric in _LISTS and _LISTS.index(metric), metric, int(cutoff[0]) if cutoff else 0, name


def _table(title, names, runs, mark_best):
    references = _references(names, runs)
    head = ["metric", *(run.name for run in runs), *(title for title, _ in references)]
    return table(title, head, [
        (tag("code", breakable(name)), *_cells(name, runs, mark_best),
         *(figure_text(run.metrics.get(prefix + name)) or "" for _, (prefix, run) in references)) for name in names])


def _cells(name, runs, mark_best):
    """A run's figure and its interval; the best in bold print, as it is shown."""
    texts = [figure_text(run.metrics.get(name)) for run in runs]
    values = [number(run.metrics.get(name)) for run in runs]
    known = [value for value in values if value is not None]
    best = figure_text(max(known)) if known else None
    for text, run in zip(texts, runs):
        low, high = (figure_text(run.number(f"{name}/{end}")) for end in ("low", "high"))
        interval = tag("small", f"{low} – {high}", class_="interval") if None not in (low, high) else None
        shown = tag("b", text) if mark_best and text == best else text
        yield None if text is None else [tag("span", shown, class_="figure"), interval]


def _references(names, runs) -> list[tuple[str, tuple[str, Run]]]:
    """(title, (prefix, a run that has it)): one column for each set of runs that agree on a reference, which are named
    unless they are all."""
    columns = []
    for prefix, title in _REFERENCES.items():
        groups = {}
        for run in runs:
            values = tuple(figure_text(run.metrics.get(prefix + name)) for name in names)
            if any(values):
                groups.setdefault(values, []).append(run)
        columns += [(title if len(group) == len(runs) else f"{title}: {', '.join(run.name for run in group)}",
                     (prefix, group[0])) for group in groups.values()]
    return columns
