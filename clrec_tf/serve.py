"""The command that serves a folder of bundles over HTTP and gRPC."""
import signal

from absl import logging
import tensorflow as tf

from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.errors import UserError
from clrec_tf.retrieval.export_folder import checked_export_dir
from clrec_tf.retrieval.export_folder import export_dir_of
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.signatures import check_model_name
from clrec_tf.server.stored_folder import follows_versions
from clrec_tf.server.stored_folder import follows_versions_of_run
from clrec_tf.stores.outbox import collects_files
from clrec_tf.system import atomic

USAGE = """python -m clrec_tf.serve: serves the newest version in a folder of bundles, and newer ones as they appear.

  python -m clrec_tf.serve --export_dir=DIR --port=8501 --page
  curl -d '{"signature_name": "retrieve", "instances": [{"history": ["a", "b"], "k": 10}]}' \\
       http://127.0.0.1:8501/v1/models/clrec:predict

A bundle is code: TensorFlow runs the graph that it holds. Serve only what you made, from a folder that only you can
write to. With --poll_s=0 the folder is looked at only at the start and at SIGHUP."""


def main(config: Config) -> None:
    """Runs the command."""
    settings, retrieve = config.serve, config.retrieve
    export_dir = require(export_dir_of(config.paths), "export_dir",
                         "the folder of bundles that python -m clrec_tf.export wrote")
    export_dir = checked_export_dir(export_dir, may_be_version=False)
    check_model_name(settings.model_name)
    if retrieve.k > settings.max_k:
        raise UserError(f"--k={retrieve.k} is more than --max_k={settings.max_k}: raise the latter, or lower --k")
    if settings.impression_log:
        atomic.check_folder_place(settings.impression_log, "impression_log")
    try:
        from clrec_tf.server.engine import Engine  # pylint: disable=import-outside-toplevel
        from clrec_tf.server import metrics as metrics_lib  # pylint: disable=import-outside-toplevel
        from clrec_tf.server import server  # pylint: disable=import-outside-toplevel
        from clrec_tf.server.versions import Versions  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise UserError(f"the service needs packages that do not load ({error}): pip install "
                        "'clrec_tf[serve]'") from error
    # Threads that hand over to each other cost more than they save on batches this small.
    tf.config.threading.set_intra_op_parallelism_threads(settings.serve_threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    defaults = SearchOptions(retrieve.k, retrieve.exclude_seen, retrieve.intents, retrieve.merge,
                             popularity=config.dial.one)
    metrics = metrics_lib.Metrics()
    versions = Versions(export_dir, settings.serve_version, lambda bundle: Engine(bundle, defaults, metrics.observe),
                        metrics.swapped, metrics.refused, metrics.unreachable)
    logging.info("loading from %s", export_dir)
    versions.start()
    server.serve(settings, versions, metrics)


STORES = dict(export_dir=follows_versions, workdir=follows_versions_of_run, impression_log=collects_files)

if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a version beside which another can be looked for
    command_line.run(main, uses=(
        "serve", "paths.export_dir", "paths.workdir", "dial.popularity", "stores",
        *(f"retrieve.{name}" for name in ("k", "exclude_seen", "intents", "merge"))), usage=USAGE, stores=STORES)
