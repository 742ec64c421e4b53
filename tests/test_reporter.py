"""Rows of metrics.jsonl say how many steps they are the mean of."""
import json

from clrec_tf.training.monitoring.exporter import NoMetrics
from clrec_tf.training.monitoring.training_metrics import TrainingMetrics
from clrec_tf.training.reporter import METRICS_LOG
from clrec_tf.training.reporter import Reporter
from clrec_tf.training.step import SUMS
from clrec_tf.training.step import TIMES
from clrec_tf.training.trackers import Tracker


def test_a_row_after_a_stop_covers_fewer_steps_and_says_so(tmp_path):
    (tmp_path / METRICS_LOG).write_text(json.dumps({"step": 10, "steps": 10}) + "\n")
    reporter = Reporter(str(tmp_path), 17, 40, 10, Tracker(None), TrainingMetrics(NoMetrics()))  # stopped at step 17
    for step, steps in ((20, 3), (25, 5), (30, 5), (40, 10)):
        reporter.add(step, steps, 0, 0, {name: float(steps) for name in (*SUMS, *TIMES)})
    reporter.close(True)
    rows = [json.loads(line) for line in (tmp_path / METRICS_LOG).read_text().splitlines()]
    assert [(row["step"], row["steps"]) for row in rows] == [(10, 10), (20, 3), (30, 10), (40, 10)]
    assert {row["loss"] for row in rows[1:]} == {1.0}
