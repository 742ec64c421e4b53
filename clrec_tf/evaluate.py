"""python -m clrec_tf.evaluate: ranking, diversity and popularity metrics of a trained model beside most-popular."""
from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.data.stored_data import reads_data_set
from clrec_tf.stores.files import reads_files
from clrec_tf.training.evaluate_run import evaluate
from clrec_tf.training.stored_run import reads_checkpoint
from clrec_tf.training.stored_run import reads_run


def main(config: Config):
    """Runs the command."""
    evaluate(config)


STORES = dict(data_dir=reads_data_set, workdir=reads_run, eval_checkpoint=reads_checkpoint, curve_points=reads_files)

if __name__ == "__main__":
    command_line.run(main, uses=("paths.data_dir", "paths.workdir", "paths.seed", "paths.plugins", "evaluate", "dial",
                                 "stores"), usage=__doc__, stores=STORES)
