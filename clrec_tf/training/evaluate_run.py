"""The stage evaluate: restores the model of a run and evaluates it."""
from typing import Optional

from clrec_tf.config import Config
from clrec_tf.evaluation import curve
from clrec_tf.evaluation.curve_figure import read_points
from clrec_tf.evaluation.evaluate_model import evaluate_model
from clrec_tf.evaluation.report import check_settings
from clrec_tf.models.trained import Trained
from clrec_tf.training.restore import load_trained


def evaluate(config: Config, trained: Optional[Trained] = None) -> dict:
    """Evaluates the model of --workdir on --data_dir; writes metrics.json and pictures, prints the tables.

    Args:
      config: of the command.
      trained: the model, where it is restored already.

    Returns:
      The metrics, flat.

    Raises:
      UserError: no run, no data, or flags that do not fit.
    """
    check_settings(config.evaluate.ks, config.evaluate.candidate_sets)
    curve.check_settings(config.dial)
    points = read_points(config.dial.curve_points)
    return evaluate_model(trained or load_trained(config, config.evaluate.eval_checkpoint), config, points)
