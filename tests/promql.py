"""The metrics and labels that PromQL expressions name: those of the dashboard and the alerts in launch/."""
import json
import pathlib
import re

import yaml

LAUNCH = pathlib.Path(__file__).parents[1] / "launch"
FROM_PROMETHEUS = {"instance", "job"}  # labels that it adds to what it scrapes
_WORDS = {"and", "or", "unless", "bool"}
_LISTS = r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)"


def metrics_in(expression: str) -> tuple[set[str], set[str]]:
    """(names of the metrics, names of the labels) in an expression."""
    text = re.sub(r'"[^"]*"', '""', expression)
    text = re.sub(r"\[[^]]*\]|\boffset \w+", "", text)
    labels = {label.strip() for labels in re.findall(_LISTS, text) for label in labels.split(",") if label.strip()}
    text = re.sub(_LISTS, " ", text)
    labels |= {label for braces in re.findall(r"{([^}]*)}", text) for label in re.findall(r'(\w+)\s*[=!]', braces)}
    text = re.sub(r"{[^}]*}", "", text)
    names = {name for name in re.findall(r"(?<![\w.])([a-zA-Z_:][\w:]*)(?!\s*\()\b", text) if name not in _WORDS}
    return names, labels


def dashboard(row: str) -> list[str]:
    """The expressions of a row of the dashboard."""
    found, inside = [], False
    for panel in json.loads((LAUNCH / "grafana" / "clrec.json").read_text(encoding="utf-8"))["panels"]:
        if panel["type"] == "row":
            inside = panel["title"] == row
        elif inside:
            found += [target["expr"] for target in panel["targets"]]
    return found


def alerts(group: str) -> list[str]:
    """The expressions of a group of alerts."""
    groups = yaml.safe_load((LAUNCH / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    [rules] = [one["rules"] for one in groups if one["name"] == group]
    return [rule["expr"] for rule in rules]


def missing(expressions: list[str], series: dict[str, set[str]]) -> set[str]:
    """Of what expressions name, the metrics that are no series, and the labels that none of an expression's has.

    Args:
      expressions: in PromQL.
      series: name of each series that is served -> its labels.
    """
    found = set()
    for expression in expressions:
        names, labels = metrics_in(expression)
        known = set().union(*(series.get(name, set()) for name in names), FROM_PROMETHEUS)
        found |= {name for name in names if name not in series} | {f"{{{label}}}" for label in labels - known}
    return found
