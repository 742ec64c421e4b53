"""Finished runs made by hand, small enough to know every figure of a report about them."""
import json
import pathlib

from clrec_tf.config import Config
from clrec_tf.evaluation.intent_example import IntentExample
from clrec_tf.evaluation.intent_example import save_example
from clrec_tf.evaluation.intent_example import ShownItem
from clrec_tf.evaluation.intent_example import ShownVector
from clrec_tf.system.json_files import save_json
from clrec_tf.training import run_config

HOSTILE = "</td></table><img src=x onerror=\"window.hacked=1\"><script>window.hacked=2</script> & 'more'"
DIAL = {-0.25: (0.05, 30), 0: (0.25, 40), 1: (0.375, 20)}  # hit rate, distinct items
METRICS = {
    "split": "test", "users": 8, "items": 50, "filter_seen": True, "popularity": 1.0, "step": 20,
    "checkpoint_hash": "abcdef" * 8, "popularity_of": "clicks", "warnings": [],
    "hr@10/full": 0.25, "hr@10/full/low": 0.125, "hr@10/full/high": 0.5, "most_popular/hr@10/full": 0.0625,
    "recall@10/full": 0.25, "hr@5/full": 0.125, "hr@10/pop100": 0.75, "hr@10/full/new": 0.3125,
    "aggregate_diversity@10/full": 40, "most_popular/aggregate_diversity@10/full": 10,
    "degree_histogram@10/full/0": 0, "degree_histogram@10/full/1": 60, "degree_histogram@10/full/2": 20,
    "most_popular/degree_histogram@10/full/2": 80, "truth/degree_histogram/1": 10, "truth/degree_histogram/2": 30,
    **{f"hr@10/full/popularity={value:g}": hits for value, (hits, _) in DIAL.items()},
    **{f"aggregate_diversity@10/full/popularity={value:g}": items for value, (_, items) in DIAL.items()}}
ROWS = [{"step": 10, "steps": 10, "loss": 3.5, "queue_fill": 320.0, "queue_duplicate_rate": 0.5},
        {"step": 10, "valid/hr@10/full": 0.125},
        {"step": 20, "steps": 10, "loss": 2.5, "queue_fill": 640.0, "queue_duplicate_rate": 0.75},
        {"step": 20, "valid/hr@10/full": 0.375}]


def make_run(folder: pathlib.Path, changes=(), without=(), schema_hash: str = "d" * 64, data_dir: str = "DATA",
             **settings) -> pathlib.Path:
    """A run with `METRICS`, but for `changes` and the names in `without`, and `ROWS`."""
    folder.mkdir(parents=True, exist_ok=True)
    run_config.save(str(folder), Config().but(data_dir=data_dir, workdir=str(folder), **settings), schema_hash)
    metrics = METRICS | dict(changes)
    save_json(str(folder / "metrics.json"), {name: value for name, value in metrics.items() if name not in without})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return folder


def add_intents(folder: pathlib.Path) -> None:
    """An example with hostile titles."""
    item, other = ShownItem(HOSTILE, "17", HOSTILE, 3), ShownItem("A film", "18", "drama", 1)
    save_example(str(folder), IntentExample(7, 20, [item, other], other, [
        ShownVector(3, 0.75, [item]), ShownVector(1, 0.0001, [other, ShownItem("", "19", "", None)])], "genre"))
