"""Tables of the paper: orders and Markdown by pencil, runs that are done once, also after a kill, and refusals."""
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from clrec_tf.config import Config
from clrec_tf.data.schema import load_schema
from clrec_tf.errors import disk_full
from clrec_tf.errors import DiskFullError
from clrec_tf.errors import UserError
from clrec_tf.lab.paper_tables import data_sets
from clrec_tf.lab.paper_tables import direction
from clrec_tf.lab.paper_tables import measures
from clrec_tf.lab.paper_tables import report
from clrec_tf.lab.paper_tables import runs
from clrec_tf.lab.paper_tables.catalogue import data_of
from clrec_tf.lab.paper_tables.catalogue import TABLES
from clrec_tf.lab.paper_tables.definition import Column
from clrec_tf.lab.paper_tables.definition import On
from clrec_tf.lab.paper_tables.definition import Row
from clrec_tf.lab.paper_tables.definition import Table
from clrec_tf.lab.paper_tables.markdown import markdown
from clrec_tf import tables
from tests import forked

INDEX = "popularity_index@10/full"
SMALL = Table(
    "TX", "Two losses", "The debiased one shows less popular items.",
    (Row("CLRec", dict(debias_beta=1.0)), Row("softmax", dict(debias_beta=0.0)),
     Row("clicks", measure=measures.distinct_next_clicks, needs=("CLRec",))),
    (Column(INDEX, 3, {"generated": {"softmax": .6, "CLRec": .2}}), Column("aggregate_diversity@10/full", 0)),
    {"generated": On(1, dict(epochs=4))},
    dict(user_encoder="mean", embedding_dim=8, batch_size=64, queue_size=256, target_mode="sliding", learning_rate=.02,
         validate_every=0.0, checkpoint_every_steps=5, keep_checkpoints=1000, steps_per_call=5, log_every_steps=5,
         popularity=("0",), candidate_sets=("full",), ks=("10",)), seeds=2, measure=measures.list_figures)
STEP = "checkpoints/step-{}.index"


def config(folder, **settings) -> Config:
    return Config.of(**{**dict(tables_dir=str(folder), world_users=60, world_items=64), **settings})


def changed(folder) -> dict:
    """Path -> time of the last change, of what trainings and evaluations write."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")
            if path.suffix in (".index", ".jsonl") or path.name in ("result.json", "metrics.json", "manifest.json")}


KILLED = """
from tests import test_paper_tables
test_paper_tables.tables.make(test_paper_tables.SMALL, "generated", test_paper_tables.config({!r}))
"""


def killed_in_the_second_run(folder) -> dict:
    """A --tables_dir whose command was killed; files that nothing may change any more, as `changed` has them."""
    done, halfway = (folder / "TX/generated" / name / "seed_0" for name in ("clrec", "softmax"))
    process = forked.Popen([sys.executable, "-c", KILLED.format(str(folder))], stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, cwd=os.getcwd())
    deadline = time.monotonic() + 300
    while not (halfway / STEP.format(15)).exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = changed(folder)
    assert done / "result.json" in left and halfway / "result.json" not in left
    # The last checkpoint may not be listed yet, so that its steps are done again.
    kept = [path for path in left if halfway not in path.parents] + [halfway / STEP.format(step) for step in (5, 10)]
    return {path: left[path] for path in kept}


@pytest.mark.slow
def test_a_table_is_made_once_also_after_a_kill(tmp_path):
    folder, outputs = tmp_path / "T", dict(json=str(tmp_path / "t.json"), markdown=str(tmp_path / "t.md"))
    kept = killed_in_the_second_run(folder)
    made = tables.make(SMALL, "generated", config(folder, **outputs))
    before = changed(folder)
    assert before.items() > kept.items()
    index, diversity = made["columns"]
    for name in ("CLRec", "softmax"):
        cells = index["rows"][name]
        assert cells["seeds"] == 2 and cells["low"] <= cells["mean"] <= cells["high"] and cells["low"] < cells["high"]
        assert cells["ratio"] == pytest.approx(cells["mean"] / cells["paper"])
        # What the table measures of the lists itself is what the evaluation says.
        run = folder / "TX/generated" / name.lower() / "seed_1"
        own, evaluated = (json.loads((run / file).read_text()) for file in ("result.json", "metrics.json"))
        assert own[INDEX] == evaluated[INDEX] and own["clicked@10"] > 0
    # The log's exposure is biased, and the planted direction is found.
    assert (index["agreeing"], index["pairs"], index["differences"]) == (1, 1, [])
    assert index["rows"]["softmax"]["mean"] > 1.2 * index["rows"]["CLRec"]["mean"]
    assert 10 < diversity["rows"]["clicks"]["mean"] <= 60 and diversity["pairs"] == 0
    assert json.loads((tmp_path / "t.json").read_text()) == json.loads(json.dumps(made))
    assert (tmp_path / "t.md").read_text() == markdown(made)
    assert tables.make(SMALL, "generated", config(folder)) == made and changed(folder) == before
    for settings, words in ((dict(table_epochs=2), "epochs=2 differs from 4, with which .*clrec/seed_0"),
                            (dict(world_users=61), "world_users=61 differs from 60, with which .*data/generated")):
        with pytest.raises(UserError, match=words):
            tables.make(SMALL, "generated", config(folder, **settings))


def test_a_row_that_needs_another(tmp_path):
    with pytest.raises(UserError, match="row clicks needs CLRec: train that too"):
        tables.make(SMALL, "generated", config(tmp_path / "T", table_rows=("clicks",)))


PAPER = {"a": .9, "b": .5, "c": .5, "d": .1}


def test_pairs_by_pencil():
    found = direction.pairs(PAPER, {"a": [2., 4.], "b": [4., 5.], "c": [1.], "d": [], "x": [7.]})
    assert [(pair.larger, pair.smaller, pair.gap, pair.apart, pair.neighbours, pair.agrees) for pair in found] == [
        ("a", "b", -1.5, False, True, False), ("a", "c", 2., None, True, True)]  # b = c, d is not run, x is not theirs
    far, = (pair for pair in direction.pairs(PAPER, {"a": [1., 2.], "b": [0.], "d": [3., 3.]})
            if (pair.larger, pair.smaller) == ("a", "d"))
    assert (far.gap, far.apart, far.neighbours) == (-1.5, True, False)
    assert not direction.pairs(PAPER, {"a": [1.], "b": [1.]})[0].agrees


@pytest.mark.parametrize("ours, sentence", [
    ({"a": [1., 2.], "b": [3., 4.]}, "m@1: paper: a > b; ours: b > a by 2.00 (the seeds' ranges do not overlap)."),
    ({"a": [1., 3.], "b": [3., 4.]}, "m@1: paper: a > b; ours: b > a by 1.50 (the seeds' ranges overlap)."),
    ({"a": [1.], "b": [1.25, 1.25]}, "m@1: paper: a > b; ours: b > a by 0.25 (one seed)."),
    ({"a": [1.], "b": [1.]}, "m@1: paper: a > b; ours: equal.")])
def test_sentences_by_pencil(ours, sentence):
    pair, = direction.pairs({"a": 2., "b": 1.}, ours)
    assert not pair.agrees and direction.sentence(pair, "m@1", 2) == sentence


def test_row_entropy_by_pencil():
    labels = np.array([[1, 1, 2, 2], [3, 3, 3, 0], [0, 0, 0, 0], [1, 2, 3, 4], [0, 5, 5, 6]])
    third = -(2 / 3 * np.log(2 / 3) + 1 / 3 * np.log(1 / 3))
    np.testing.assert_allclose(measures.row_entropy(labels), [np.log(2), 0, 0, np.log(4), third], atol=1e-12)


def test_lists_in_turn_by_a_loop():
    rng = np.random.default_rng(0)
    first, second = (np.stack([rng.permutation(12)[:5] for _ in range(50)]) for _ in range(2))  # 0: an empty place
    for row, a, b in zip(measures.in_turn(first, second), first, second):
        taken = list(dict.fromkeys(item for pair in zip(a, b) for item in pair if item))[:5]
        assert row.tolist() == taken + [0] * (5 - len(taken))


def reported(tmp_path, figures: dict, columns) -> dict:
    """The report of results by hand: row -> metrics of each seed."""
    table = Table("T0", "Title", "It says so.", tuple(Row(name) for name in figures), columns, {"ml1m": On(1)})
    planned = runs.plan(table, "ml1m", config(tmp_path / "T", table_seeds=2))
    for run in planned:
        if run.seed < len(figures[run.row.name]):
            os.makedirs(run.workdir)
            with open(os.path.join(run.workdir, "result.json"), "w", encoding="utf-8") as file:
                json.dump(dict(figures[run.row.name][run.seed], seconds=2.0), file)
    return report.report(table, "ml1m", planned)


def test_a_report_and_its_markdown_by_pencil(tmp_path):
    made = reported(tmp_path, {"A + B": [{"m": .25, "n": 1000}, {"m": .75, "n": 2000}], "C": [{"m": .5}], "D": []},
                    (Column("m", 2, {"": {"A + B": .4, "C": .2, "D": .1}}), Column("n", 0, order=("C", "A + B"))))
    assert made["seconds"] == 6.0 and made["not_run"] == ["D"]
    assert markdown(made) == """### T0: Title

It says so.

Data: MovieLens-1M, ids, leave-one-out (`ml1m`); a metric's name states its candidates. Brackets: least and largest of
the seeds. order: of the pairs with other rows, how many have the paper's order.

| row | `m`: paper | ours | ours / paper | order | `n` |
| --- | --- | --- | --- | --- | --- |
| A + B | .40 | .50 (.25–.75; 2 seeds) | 1.25 | 0 of 1 | 1,500 (1,000–2,000; 2 seeds) |
| C | .20 | .50 | 2.50 | 0 of 1 |  |
| D | .10 |  |  |  |  |

* `m`: 0 of 1 pairs of rows have the paper's order.
* m: paper: A + B > C; ours: equal.
* Not run: D.
"""


def test_no_line_begins_as_an_entry_of_a_list(tmp_path):
    made = reported(tmp_path, {"A + B": [{"n": 1}], "C": [{"n": 3}]}, (Column("n" * 85, 0, order=("A + B", "C")),))
    for width in range(60):
        made["columns"][0]["differences"] = ["x" * width + " A + B > C" * 8]
        lines = markdown(made).splitlines()
        assert not any(line.strip().startswith("+") for line in lines) and max(map(len, lines[-4:])) <= 120


def test_an_order_without_figures(tmp_path):
    made = reported(tmp_path, {"A": [{"n": 1}], "B": [{"n": 3}]}, (Column("n", 0, order=("A", "B")),))
    assert made["columns"][0]["differences"] == ["n: paper: A > B; ours: B > A by 2 (one seed)."]
    assert "| A | 1 | 0 of 1 |" in markdown(made)


@pytest.mark.parametrize("name, data", [(name, data) for name, table in TABLES.items() for data in table.data])
def test_settings_of_every_row_are_taken(tmp_path, name, data):
    table = TABLES[name]
    assert data in data_sets.DATA_SETS and data_of(table, "") == next(iter(table.data))
    published = [set(column.published(data)) | set(column.order) for column in table.columns]
    assert published[0] and set(itertools.chain(*published)) <= {row.name for row in table.rows}
    planned = runs.plan(table, data, config(tmp_path / "T", table_seeds=1))
    assert len({run.workdir for run in planned}) == len(planned) == len(table.rows_on(data))
    for run in planned:
        assert run.config.train.target_mode in ("sliding", "all")


def test_a_public_data_set_packed_or_not(tmp_path):
    (tmp_path / "public/ml-1m").mkdir(parents=True)
    (tmp_path / "public/ml-1m/ml-1m.txt").write_text("".join(
        f"{user} {item}\n" for user in range(5) for item in range(user, user + 6)))
    settings = dict(public_dir=str(tmp_path / "public"))
    prepared = data_sets.prepared("ml1m", config(tmp_path / "T", **settings))
    assert load_schema(prepared.paths.data_dir).num_items == 8  # 0 to 7: the last two of 4 to 9 are held out
    assert "share_of_users" in (tmp_path / "T/data/ml1m/prepare.txt").read_text()
    data_sets.prepared("ml1m", config(tmp_path / "T", **settings))
    with pytest.raises(UserError, match="^seed=1 differs from 0, with which .*data/ml1m was made: give the old value"):
        data_sets.prepared("ml1m", config(tmp_path / "T", seed=1, **settings))


@pytest.mark.parametrize("table, settings, words", [
    ("T99", {}, "--table=T99: the tables are T3, .*F6; list shows"),
    ("T12", dict(table_data="beauty"), "--table_data=beauty: T12 is trained on simulator, ml100k, taobao"),
    ("T12", dict(tables_dir=""), "--tables_dir is not set"),
    ("T12", dict(table_rows=("WHA",)), "--table_rows=WHA: the rows of T12 are MeanPooling, "),
    ("T10", {}, "--public_dir is not set: ml-1m/ml-1m.txt.gz is looked for there"),
    ("T10", dict(public_dir="/nowhere"), "--public_dir=/nowhere has no ml-1m/ml-1m.txt.gz: put it there"),
    ("T10", dict(table_data="beauty", public_dir="PUBLIC", table_rows=("full softmax",)), "this data set has none"),
    ("T6", dict(markdown="/nowhere/t.md"), "--markdown=/nowhere/t.md: its folder does not exist"),
    ("T6", dict(tables_dir="OTHERS"), "--tables_dir=OTHERS exists and was not made by this command")])
def test_refusals(tmp_path, monkeypatch, table, settings, words):
    monkeypatch.chdir(tmp_path)
    for file in ("OTHERS/notes.txt", "PUBLIC/beauty/beauty.txt.gz"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text("")
    with pytest.raises(UserError, match=words):
        tables.main(config("T", table=table, **settings))
    assert not (tmp_path / "T/data").exists()


def test_a_full_disk_is_said_and_harms_nothing(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True,
                      check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        with pytest.raises((UserError, OSError)) as caught:
            tables.make(SMALL, "generated", config(disk / "T"))
        assert disk_full(caught.value) or isinstance(caught.value, DiskFullError)
        subprocess.run(["mount", "-o", "remount,size=40M", disk], check=True)
        prepared = data_sets.prepared("generated", config(disk / "T"))
        assert load_schema(prepared.paths.data_dir).num_items > 50
    finally:
        subprocess.run(["umount", disk], check=True)


RESULTS = (pathlib.Path(__file__).parents[1] / "docs" / "results.md").read_text(encoding="utf-8")
DOCUMENTED = re.findall(r"^### (\w+): .*?\(`(\w+)`\).*?(^\|.*?)\n\n", RESULTS, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name, data, shown", DOCUMENTED, ids=[f"{name}-{data}" for name, data, _ in DOCUMENTED])
def test_documented_tables_agree_with_themselves(name, data, shown):
    """The paper's figures are those of the table, and orders and ratios follow from the means that are shown."""
    head, _, *rows = ([cell.strip() for cell in line[2:-2].split(" | ")] for line in shown.splitlines())
    cells = {row[0]: dict(zip(range(1, len(head)), row[1:])) for row in rows}
    place = 1
    for column in TABLES[name].columns:
        published = column.published(data)
        first = head[place]
        assert first.startswith(f"`{column.metric}`")
        ours = place + bool(published)
        means = {row: [float(text.split(" ")[0].replace(",", ""))] for row, of in cells.items() if (text := of[ours])}
        pairs = direction.pairs(published or {row: -rank for rank, row in enumerate(column.order)}, means)
        place = ours + 1
        for row, of in cells.items():
            if published.get(row):
                assert float(of[ours - 1].replace(",", "")) == pytest.approx(published[row], abs=1e-9)
                if row in means:
                    rounded = .0051 + .5 * 10**-column.digits / published[row]
                    assert float(of[place]) == pytest.approx(means[row][0] / published[row], abs=rounded)
        place += bool(published)
        if pairs:
            for row, of in cells.items():
                own = [pair.gap for pair in pairs if row in (pair.larger, pair.smaller)]
                alike, total = map(int, re.findall(r"\d+", of[place]) or (0, 0))
                # Means that are shown as equal were not.
                assert total == len(own) and sum(gap > 0 for gap in own) <= alike <= sum(gap >= 0 for gap in own)
            place += 1
    assert place == len(head)


def test_tables_are_documented():
    assert {name for name, _, _ in DOCUMENTED} >= {"T6", "T9", "T10", "T11", "T12", "F6"}
