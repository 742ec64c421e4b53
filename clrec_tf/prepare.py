"""python -m clrec_tf.prepare: a click log becomes a data folder of TFRecords, or with --dry_run a report."""
from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.data.schema import Schema
from clrec_tf.preparation.prepare_folder import prepare_folder
from clrec_tf.preparation.stored_inputs import STORES
from clrec_tf.system.callable_module import make_callable


def prepare(config: Config) -> Schema:
    """Prepares --data_dir from --input and prints the report; returns and raises as `prepare_folder`."""
    return prepare_folder(config.paths, config.prepare)


def main(config: Config):
    """Runs the command."""
    prepare(config)


make_callable(__name__, "clrec_tf.api.data", "prepare")  # clrec_tf.prepare(clicks)

if __name__ == "__main__":
    command_line.run(main, uses=("paths.data_dir", "paths.seed", "paths.plugins", "prepare", "stores"), usage=__doc__,
                     stores=STORES)
