"""Figures that stand in several documents agree: README, docs/results.md, the flagfiles' records, the picture's points."""
import json
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


def row(text, begin) -> list[str]:
    """The cells of the table row whose first cell begins so, without marks of bold."""
    line = next(line for line in text.splitlines() if re.match(rf"\|\s*\**{re.escape(begin)}", line))
    return [cell.strip().replace("*", "") for cell in line.strip("|").split("|")]


def record(name, metric) -> tuple[str, ...]:
    """The value of a metric in a flagfile's header, and what stands in brackets behind it."""
    found = re.search(rf"{re.escape(metric)} ([\d.,]+)(?: of [\d,]+)? \(([^)]*)\)",
                      (ROOT / "configs" / name).read_text(encoding="utf-8"))
    return found.groups()


def number(text) -> float:
    return float(text.replace(",", "").split(" ")[0])


def section(title) -> str:
    """docs/results.md from a heading to the next one of its level."""
    return RESULTS.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("popularity, begin", [
    ("0 ", "CLRec, Transformer, popularity 0"), (".5", "the same model, popularity .5"),
    ("1.25", "the same model, popularity 1.25")])
def test_the_first_table_rounds_the_curve_of_the_transformer(popularity, begin):
    _, hits, gains, distinct = row(README, begin)
    curve = row(section("MovieLens-1M with a Transformer"), popularity)
    assert [number(cell) for cell in curve[1:3]] == pytest.approx([number(hits), number(gains)], abs=5.01e-4)
    assert curve[3] == distinct


@pytest.mark.parametrize("place, popularity", [(0, "0** "), (1, "1** ")])
def test_the_first_table_rounds_the_curve_of_attention(place, popularity):
    cells = [cell.split(" / ")[place] for cell in row(README, "CLRec, attention, popularity")[1:]]
    curve = row(section("MovieLens-1M"), popularity)
    assert [number(cell) for cell in curve[1:3]] == pytest.approx([number(cell) for cell in cells[:2]], abs=5.01e-4)
    assert curve[4] == cells[2]


def test_the_transformers_record_is_that_of_the_page():
    header = (ROOT / "configs" / "ml1m_sasrec.flags").read_text(encoding="utf-8")
    page = section("MovieLens-1M with a Transformer")
    for metric, place in (("hr@10/full", 1), ("ndcg@10/full", 2), ("aggregate_diversity@10/full", 3)):
        found = re.search(rf"{metric} ([\d.,]+) ([\d.,]+) ([\d.,]+)", header).groups()
        for value, popularity in zip(found, ("1.25", "1 ", "0 ")):
            assert number(value) == number(row(page, popularity)[place]), (metric, popularity)


@pytest.mark.parametrize("begin", ["RecTools SASRec", "most popular"])
def test_other_systems_are_the_same_on_both_pages(begin):
    assert row(README, begin)[1:] == row(RESULTS, begin)[1:]


def test_points_of_the_picture():
    points = json.loads((ROOT / "configs" / "ml1m_other_systems.json").read_text(encoding="utf-8"))
    names = {"RecTools SASRec": "RecTools SASRec", "TFRS, GRU, logQ": "TFRS GRU with logQ", "implicit ALS": "implicit ALS",
             "TFRS, GRU, in-batch": "TFRS GRU, in-batch", "TFRS, mean of 50, logQ": "TFRS mean of 50 with logQ",
             "TFRS, mean of 50, in-batch": "TFRS mean of 50, in-batch"}
    for point, name in names.items():
        _, hits, _, distinct = row(RESULTS, name)
        assert points[point]["hr@10/full"] == number(hits), name
        assert points[point]["aggregate_diversity@10/full"] == number(distinct), name


@pytest.mark.parametrize("metric", ["hr@10/full", "ndcg@10/full", "hr@50/full", "hr@10/pop100", "ndcg@10/pop100",
                                    "hr@10/uniform100", "aggregate_diversity@10/full", "popularity_index@10/full"])
def test_ml1m_and_taobao_are_the_flagfiles_records(metric):
    _, ours, popular, *taobao = row(RESULTS, f"`{metric}`")
    for shown, reference, name in ((ours, popular, "ml1m.flags"), (taobao[0], taobao[1], "taobao.flags")):
        if name == "taobao.flags" and metric == "ndcg@10/pop100":
            continue  # not in its record
        value, brackets = record(name, metric)
        assert number(value) == pytest.approx(number(shown), abs=5.01e-4)
        assert number(brackets) == number(reference)


@pytest.mark.parametrize("metric", ["hr@10/full", "hr@10/pop100", "aggregate_diversity@10/full", "popularity_index@10/full"])
def test_the_quickstarts_table_is_its_record(metric):
    line = re.search(rf"^{re.escape(metric)} +([\d.,]+) +([\d.,]+)", README, re.MULTILINE)
    value, brackets = record("quickstart.flags", metric)
    assert number(value) == pytest.approx(number(line[1]), abs=5e-4)
    assert number(brackets.split(";")[0]) == number(line[2])
