"""The command that turns a trained run into a serving bundle."""
import functools

from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.data.stored_data import reads_data_set
from clrec_tf.publishing.export_run import export
from clrec_tf.publishing.stored_exports import exports_run
from clrec_tf.publishing.stored_exports import exports_to
from clrec_tf.stores import names
from clrec_tf.stores.files import reads_files
from clrec_tf.training.stored_run import reads_checkpoint
from clrec_tf.training.stored_run import reads_run

USAGE = """python -m clrec_tf.export: exports a trained run: encodes items, builds an index, checks and publishes both.

  python -m clrec_tf.export --data_dir=DATA --workdir=RUN --export_dir=DIR"""


def main(config: Config) -> None:
    """Runs the command."""
    print(names.address_of(export(config)))


STORES = dict(data_dir=reads_data_set, export_dir=exports_to, workdir=functools.partial(exports_run, reads_run),
              export_checkpoint=reads_checkpoint, attribute_items=reads_files, curve_points=reads_files)

if __name__ == "__main__":
    command_line.run(main, uses=("paths", "export", "dial", "stores", "serve.model_name", "serve.max_k",
                                 "evaluate.filter_seen", "evaluate.list_length"), usage=USAGE, stores=STORES)
