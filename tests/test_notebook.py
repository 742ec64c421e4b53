"""The notebook's cells, run in order in one process, show what its text says; its saved outputs are small."""
import json
import pathlib

import matplotlib.pyplot as plt
import pytest

NOTEBOOK = pathlib.Path(__file__).parents[1] / "docs" / "notebook.ipynb"
MOST_BYTES = 150_000  # with its outputs


@pytest.mark.slow
def test_the_notebook_runs_from_clicks_to_recommendations(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plt.switch_backend("agg")
    names = {"__name__": "notebook"}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)  # pylint: disable=exec-used
    plt.close("all")
    assert "clicks has no column 'user_id': give --user_column as one of customer" in capsys.readouterr().out
    recall, distinct = (dict(zip(names["values"], names["curve"][name])) for name in ("recall", "distinct items"))
    assert recall[0] > 5 * 10 / 1000 and distinct[0] > 2 * distinct[1.25] and recall[1] > recall[0]
    assert names["metrics"]["hr@10/full"] == recall[0]
    assert names["scores"].shape == (1, names["data"].schema.num_items)


def test_its_saved_outputs_are_small_and_whole():
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = notebook["cells"]
    assert 20 <= len(cells) <= 30 and NOTEBOOK.stat().st_size < MOST_BYTES
    assert sum("image/png" in output.get("data", {}) for cell in cells for output in cell.get("outputs", [])) == 2
    assert not any(output["output_type"] == "error" for cell in cells for output in cell.get("outputs", []))
