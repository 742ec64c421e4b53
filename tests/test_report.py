"""The report: figures of runs made by hand, what is missing, what is refused, and titles that hold HTML."""
import html
import html.parser
import json

import pytest

from clrec_tf.config import Config
from clrec_tf.evaluation.intent_example import load_example
from clrec_tf.reporting import chart
from clrec_tf.reporting.markup import Markup
from clrec_tf.reporting.markup import tag
from clrec_tf.reporting.page import page_of
from clrec_tf.reporting.runs import read_runs
from clrec_tf.reporting.tables import figure_text
from tests.finished_runs import add_intents, HOSTILE, make_run, METRICS


class Tables(html.parser.HTMLParser):
    """Tables by caption: rows of texts; and every element by name."""

    def __init__(self, page):
        super().__init__()
        self.tables, self.elements, self._cell, self._rows = {}, [], None, []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "table":
            self._rows = []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("th", "td", "caption"):
            self._cell = ""

    def handle_data(self, data):
        if self._cell is not None:
            self._cell += data

    def handle_endtag(self, tag):
        if tag == "caption":
            self.tables[self._cell] = self._rows
        elif tag in ("th", "td"):
            self._rows[-1].append(self._cell)
        self._cell = None if tag in ("caption", "th", "td") else self._cell

    def row(self, caption, name):
        """A row's cells by the column's head."""
        rows = self.tables[caption]
        found, = [row for row in rows[1:] if row[0] == name]
        return dict(zip(rows[0][1:], found[1:], strict=True))


def tables_of(*folders):
    return Tables(page_of(read_runs([str(folder) for folder in folders])))


FULL = "Ranked among all items (/full)"


def test_metrics_stand_beside_each_other_with_intervals_and_references(tmp_path):
    page = tables_of(make_run(tmp_path / "a"), make_run(tmp_path / "b", {"hr@10/full": 0.5, "recall@10/full": 0.5}))
    assert page.row(FULL, "hr@10/full") == {"a": "0.25000.1250 – 0.5000", "b": "0.50000.1250 – 0.5000",
                                            "most popular": "0.0625"}
    assert page.row(FULL, "hr@5/full") == {"a": "0.1250", "b": "0.1250", "most popular": ""}
    assert [row[0] for row in page.tables[FULL]] == ["metric", "hr@5/full", "hr@10/full"]  # recall is hr here
    pop100, = [caption for caption in page.tables if "/pop100" in caption]
    assert page.row(pop100, "hr@10/pop100") == {"a": "0.7500", "b": "0.7500"}
    lists = "The lists of all users: diversity and popularity"
    assert page.row(lists, "aggregate_diversity@10/full") == {"a": "40", "b": "40", "most popular": "10"}
    groups, = [caption for caption in page.tables if "/new" in caption]
    assert page.row(groups, "hr@10/full/new")["a"] == "0.3125"


def test_recall_that_is_not_the_hit_rate_is_shown(tmp_path):
    page = tables_of(make_run(tmp_path / "a", {"recall@10/full": 0.125}))
    assert page.row(FULL, "recall@10/full")["a"] == "0.1250"


def test_the_highest_of_a_row_is_bold_and_ties_are_both(tmp_path):
    folders = [str(make_run(tmp_path / name, {"hr@10/full": value, "recall@10/full": value}))
               for name, value in dict(a=0.25, b=0.5, c=0.5).items()]
    text = page_of(read_runs(folders))
    assert text.count("<b>0.5000</b>") == 2 and "<b>0.2500</b>" not in text
    assert "<b>0.2500</b>" not in page_of(read_runs(folders[:1]))  # nothing to compare with


def test_a_reference_of_some_runs_names_them(tmp_path):
    page = tables_of(make_run(tmp_path / "a", {"untrained/hr@10/full": 0.03125}), make_run(tmp_path / "b"))
    assert page.row(FULL, "hr@10/full")["untrained: a"] == "0.0312"
    different = tables_of(tmp_path / "a", make_run(tmp_path / "c", {"most_popular/hr@10/full": 0.125}))
    row = different.row(FULL, "hr@10/full")
    assert (row["most popular: a"], row["most popular: c"]) == ("0.0625", "0.1250")


def test_what_is_missing_is_said_to_be_missing(tmp_path):
    page = tables_of(make_run(tmp_path / "a"), make_run(
        tmp_path / "b", {"hr@5/full": float("nan")}, without=("hr@10/full", "checkpoint_hash")))
    assert page.row(FULL, "hr@10/full")["b"] == page.row(FULL, "hr@5/full")["b"] == "missing"
    assert page.row("What the figures are of", "checkpoint") == {"a": "abcdefabcdef", "b": "missing"}
    (tmp_path / "a" / "metrics.jsonl").unlink()
    text = page_of(read_runs([str(tmp_path / "a")]))
    assert "a: metrics.jsonl is missing or empty" in text and "Missing here: a." in text


def test_the_dial_the_histogram_and_the_curves(tmp_path):
    page = tables_of(make_run(tmp_path / "a"), make_run(tmp_path / "b", without=[
        name for name in METRICS if "popularity=" in name]))
    assert [row for row in page.tables["The dial"][1:] if row[0] == "a"] == [
        ["a", "-0.25", "0.0500", "30"], ["a", "0", "0.2500", "40"], ["a", "1", "0.3750", "20"]]
    assert page.tables["The dial"][-1] == ["most popular", "", "0.0625", "10"]
    assert page.row("Shares by popularity", "1") == {"training clicks": "25.0%", "most popular": "0.0%", "a": "75.0%",
                                                     "b": "75.0%"}
    assert page.tables["loss by step"][1:] == [["10", "3.5000", "3.5000"], ["20", "2.5000", "2.5000"]]
    assert page.row("valid/hr@10/full by step", "20")["a"] == "0.3750"
    assert page.row("The queue at the end of training", "queue_fill")["a"] == "640"
    assert page.row("The queue at the end of training", "queue_age")["a"] == "missing"
    described = [attributes["aria-label"] for name, attributes in page.elements if attributes.get("role") == "img"]
    assert described[0] == ("Recall against diversity. a: 0.0500 with 30 items at popularity -0.25, 0.3750 with 20 "
                            "items at popularity 1.")
    assert "a: from 3.5000 at step 10 to 2.5000 at step 20" in described[2]


def test_an_evaluators_rows_are_validations(tmp_path):
    run = make_run(tmp_path / "a")
    (run / "evaluations.jsonl").write_text('{"step": 30, "metric": "hr@10/full", "value": 0.4375}\nnothing\n'
                                           '{"step": 40, "metric": "mrr/full", "value": 0.9}\n')
    assert tables_of(run).row("valid/hr@10/full by step", "30")["a"] == "0.4375"
    assert "40" not in [row[0] for row in tables_of(run).tables["valid/hr@10/full by step"]]


def test_lines_that_cannot_be_read_are_counted(tmp_path):
    run = make_run(tmp_path / "a")
    with open(run / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 30, "loss": \n\xff\xff\n{"loss": 1}\n{"step": "x"}\n{"step": 30, "loss": "x"}\n')
    text = page_of(read_runs([str(run)]))
    assert "4 lines of metrics.jsonl cannot be read" in text
    assert [row[0] for row in Tables(text).tables["loss by step"]] == ["step", "10", "20"]


def test_settings_that_differ_and_that_are_not_the_defaults(tmp_path):
    first = make_run(tmp_path / "a", seed=1, epochs=7)
    page = tables_of(first, make_run(tmp_path / "b", seed=2, epochs=7, data_dir="ELSEWHERE"))
    assert page.tables["Settings that differ"][1:] == [["--seed", "1", "2"]]
    alike, = [rows for caption, rows in page.tables.items() if "not the defaults" in caption]
    assert [row for row in alike if row[0] == "--epochs"] == [["--epochs", "7", str(Config().train.epochs)]]
    assert "--seed" not in [row[0] for row in alike]
    assert page.row("What the figures are of", "data set") == {"a": "DATA", "b": "ELSEWHERE"}
    older = json.loads((first / "config.json").read_text())
    del older["model"]["similarity"], older["checksum"], older["has_checksum"]
    older["paths"]["seed"] = 2
    (first / "config.json").write_text(json.dumps(older))
    assert "Settings that differ" not in tables_of(first, tmp_path / "b").tables  # it had today's default


def test_runs_evaluated_otherwise_are_warned_of(tmp_path):
    folders = [str(make_run(tmp_path / "a")), str(make_run(tmp_path / "b", {"users": 5, "hr@10/full": 0.5}))]
    text = page_of(read_runs(folders))
    assert "not evaluated alike" in text and "users: a 8, b 5" in text
    assert "<b>0.5000</b>" not in text and "Bold" not in text


def test_warnings_of_an_evaluation_are_shown(tmp_path):
    run = make_run(tmp_path / "a", {"warnings": ["the same list for <everybody>"]})
    assert "a: the same list for &lt;everybody&gt;" in page_of(read_runs([str(run)]))


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path):
    runs = read_runs([str(make_run(tmp_path / one / "run")) for one in ("x", "y")])
    assert [run.name for run in runs] == ["x/run", "y/run"]


def test_texts_are_escaped_everywhere(tmp_path):
    name = "<img src=x onerror=alert(1)>"
    run = make_run(tmp_path / name, {"intents_searched": 2, f"hr@10/full/{HOSTILE}": 1.0, "split": HOSTILE,
                                     "warnings": [HOSTILE]}, data_dir=HOSTILE)
    add_intents(run)
    page = tables_of(run)
    assert {"img", "script"}.isdisjoint(name for name, _ in page.elements)
    assert not [attributes for _, attributes in page.elements if any(key.startswith("on") for key in attributes)]
    text = page_of(read_runs([str(run)]))
    assert html.escape(HOSTILE) in text and HOSTILE not in text
    assert "weight 0.750" in text and "weight &lt; 0.001" in text


def test_elements():
    assert tag("td", "<", Markup("<b>"), None, ["&", 3], class_="a", aria_label='"', hidden=True, id=None) == (
        '<td class="a" aria-label="&quot;" hidden>&lt;<b>&amp;3</td>')


@pytest.mark.parametrize("low, high, expected", [
    (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (0, 5, [0, 1, 2, 3, 4, 5]), (-0.3, 0.31, [-0.2, 0, 0.2]),
    (6.58, 7.6, [6.6, 6.8, 7, 7.2, 7.4, 7.6]), (0, 3e6, [0, 1e6, 2e6, 3e6])])
def test_ticks_are_round(low, high, expected):
    assert chart.ticks(low, high) == pytest.approx(expected)


def test_a_chart_puts_points_where_they_belong():
    drawn = chart.Chart([0, 10], [0, 1], "x", "y", from_zero=(True, True))
    drawn.points([(0, 0), (10, 1), (5, 1)], "s0", 0)
    circles = [(float(one.split('"')[0]), float(one.split('cy="')[1].split('"')[0]))
               for one in drawn.svg("").split('<circle cx="')[1:]]
    (left, bottom), (right, top), (middle, above) = circles
    assert left < middle < right and bottom > top == above and middle == pytest.approx((left + right) / 2, abs=0.1)


@pytest.mark.parametrize("values", [[3.0], [0.0, 0.0], [-2.0, -2.0], [1e-9, 2e-9], [0, 10**15]])
def test_a_chart_of_equal_or_extreme_values_is_drawn(values):
    drawn = chart.Chart(values, values, "x", "y", from_zero=(False, False))
    drawn.points([(value, value) for value in values], "s0", 0)
    assert "nan" not in drawn.svg("")


@pytest.mark.parametrize("value, shown", [
    (0.25, "0.2500"), (1234, "1,234"), (True, "yes"), (0.0, "0.0000"), (0.00004, "4e-05"), (float("inf"), None),
    (None, None), (10**400, None), ([1], None)])
def test_figures_as_text(value, shown):
    assert figure_text(value) == shown


def test_an_example_is_read_as_it_was_written(tmp_path):
    add_intents(tmp_path)
    example = load_example(str(tmp_path))
    assert example.vectors[1].items[1].original_id == "19" and example.next_click == example.history[1]
    assert load_example(str(tmp_path / "absent")) is None


def test_what_a_run_does_not_use_is_not_said_of_it(tmp_path):
    text = page_of(read_runs([str(make_run(tmp_path / "a", {"intents_searched": 4}, model="multi_clrec",
                                           category_feature="genre"))]))
    assert "multi_clrec, contrastive, queue auto, seed 0, step 20" in text and "An example is missing of a" in text
    plain = make_run(tmp_path / "b", loss="sampled_softmax")
    (plain / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    text = page_of(read_runs([str(plain)]))
    assert "clrec, multi_att, sampled_softmax, seed 0, step 20" in text and "Intents" not in text


def test_runs_of_one_colour_have_other_points(tmp_path):
    page = tables_of(*(make_run(tmp_path / str(number)) for number in range(9)))
    marks = [(name, attributes["class"]) for name, attributes in page.elements
             if attributes.get("class", "").startswith("point s")][:9]
    assert len(set(marks)) == 9 and marks[8] == ("polygon", "point s0")


def test_figures_of_an_earlier_checkpoint_are_told(tmp_path):
    """Training has gone on after evaluate, or another was begun in the folder."""
    run = make_run(tmp_path / "run")  # evaluated at step 20
    for folder, step, told in (("checkpoints", 20, False), ("checkpoints", 40, True), ("best", 20, False)):
        (run / folder).mkdir(exist_ok=True)
        for ending in ("index", "data-00000-of-00001"):
            (run / folder / f"step-{step}.{ending}").write_bytes(b"x")
        page = page_of(read_runs([str(run)]))
        assert ("run: its figures are of step 20, and training has gone on since: its checkpoints are of step 40. "
                "Evaluate it again." in page) == told
