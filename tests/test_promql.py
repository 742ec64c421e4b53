"""The parser of PromQL that checks dashboard and alerts, which other tests do against what processes serve."""
import json
import re

import pytest

from tests import promql


@pytest.mark.parametrize("expression, names, labels", [
    ("a_total", {"a_total"}, set()),
    ('sum by (le, x) (rate(a_bucket{y=~"b|{}c", z!="d"}[5m])) / 2', {"a_bucket"}, {"le", "x", "y", "z"}),
    ("time() - a > 900 and on (i) b < c", {"a", "b", "c"}, {"i"}),
    ("histogram_quantile(0.5, sum(rate(a[$__rate_interval])))", {"a"}, set()),
    ("60 * a offset 5m unless ignoring(x) group_left (y) b:c", {"a", "b:c"}, {"x", "y"})])
def test_names_and_labels_are_found(expression, names, labels):
    found, of_selectors = promql.metrics_in(expression)
    assert found == names and of_selectors == labels


def test_what_is_not_served_is_named():
    series = {"a": {"x"}, "b": set()}
    assert promql.missing(["rate(a[1m]) / b", 'a{x="1", instance="2"}'], series) == set()
    assert promql.missing(["a / c", 'b{x="1"}', "sum by (z) (a)"], series) == {"c", "{x}", "{z}"}


def test_legends_name_labels_of_their_expressions():
    board = json.loads((promql.LAUNCH / "grafana" / "clrec.json").read_text(encoding="utf-8"))
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len(panels) > 30 and len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for target in (target for panel in panels for target in panel["targets"]):
        aggregated = re.match(r"[^(]*\bsum by \(([^)]*)\)|histogram_quantile\([\d.]+, sum by \(([^)]*)\)", target["expr"])
        for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
            kept = re.split(r",\s*", aggregated[1] or aggregated[2]) if aggregated else None
            assert kept is None or label in kept, target
