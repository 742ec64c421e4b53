"""From finished runs to a table: the paper's figure beside ours, and whether both order the rows alike."""
import os

import numpy as np

from clrec_tf.evaluation.figures import draw_degree_histogram
from clrec_tf.lab.paper_tables.data_sets import DATA_SETS
from clrec_tf.lab.paper_tables.definition import Column
from clrec_tf.lab.paper_tables.definition import Table
from clrec_tf.lab.paper_tables import direction
from clrec_tf.lab.paper_tables.runs import Run

PICTURE_FILE, MOST_SERIES = "degree_histogram.png", 3  # beside the truth


def report(table: Table, data: str, runs: list[Run]) -> dict:
    """The table as JSON has it.

    Args:
      table: see there.
      data: name of the data set.
      runs: of `runs.plan`.

    Returns:
      `columns`: one dict per metric with `rows` (name -> `paper`, `mean`, `low`, `high`, `seeds`, `ratio`, `agreeing`
      of `pairs`), `agreeing` of `pairs`, and `differences`, a sentence for each pair of neighbours in the paper's order
      that is ordered otherwise. `not_run`: names of rows without a figure. What has no value is left out.
    """
    names = [row.name for row in table.rows_on(data)]
    results = {name: [run.result for run in runs if run.row.name == name and run.result] for name in names}
    return dict(table=table.name, title=table.title, says=table.says, data=data,
                data_description=DATA_SETS[data].description,
                columns=[_column(column, data, results) for column in table.columns],
                seconds=round(sum(result["seconds"] for made in results.values() for result in made), 1),
                settings={run.row.name: {name: value for name, value in run.settings.items() if name != "seed"}
                          for run in runs},
                not_run=[name for name in names if not results[name]])


def _column(column: Column, data, results) -> dict:
    paper = column.published(data)
    ours = {name: [result[column.metric] for result in made if column.metric in result]
            for name, made in results.items()}
    # An order without figures is one of ranks.
    ranks = {name: -place for place, name in enumerate(column.order)}
    pairs = direction.pairs(paper or ranks, ours)
    rows = {}
    for name, values in ours.items():
        cells = dict(paper=paper[name]) if name in paper else {}
        if values:
            cells |= dict(mean=float(np.mean(values)), low=min(values), high=max(values), seeds=len(values))
            cells |= dict(ratio=cells["mean"] / paper[name]) if name in paper else {}
        own = [pair for pair in pairs if name in (pair.larger, pair.smaller)]
        cells |= dict(agreeing=sum(pair.agrees for pair in own), pairs=len(own)) if own else {}
        rows[name] = cells
    return dict(metric=column.metric, digits=column.digits, rows=rows, pairs=len(pairs),
                agreeing=sum(pair.agrees for pair in pairs),
                differences=[direction.sentence(pair, column.metric, column.digits)
                             for pair in pairs if pair.neighbours and not pair.agrees])


def draw(table: Table, data: str, runs: list[Run], folder: str) -> str:
    """Draws the degree histograms of the first seed's trained rows, at most `MOST_SERIES`, beside the training clicks.

    Returns:
      The path of the picture, or "" where there is none.
    """
    first = {run.row.name: run.result for run in runs
             if run.seed == runs[0].seed and not run.row.measure and run.result} if table.picture else {}
    if not first:
        return ""
    shown = dict(list(first.items())[-MOST_SERIES:])
    one = next(iter(shown.values()))
    prefix = next(name for name in one if name.startswith("degree_histogram@")).rpartition("/")[0]
    series = {"training clicks": (one, "truth/degree_histogram/")}
    series |= {name: (result, f"{prefix}/") for name, result in shown.items()}
    return draw_degree_histogram(os.path.join(folder, PICTURE_FILE), series, f"{table.title}: {data}")
