"""python -m clrec_tf.evaluate: ranking, diversity and popularity metrics of a trained model beside most-popular."""
from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.training.evaluate_run import evaluate


def main(config: Config):
    """Runs the command."""
    evaluate(config)


if __name__ == "__main__":
    command_line.run(main, uses=("paths", "evaluate", "dial"), usage=__doc__)
