"""The command that turns a trained run into a serving bundle."""
from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.publishing.export_run import export

USAGE = """python -m clrec_tf.export: exports a trained run: encodes items, builds an index, checks and publishes both.

  python -m clrec_tf.export --data_dir=DATA --workdir=RUN --export_dir=DIR"""


def main(config: Config) -> None:
    """Runs the command."""
    print(export(config))


if __name__ == "__main__":
    command_line.run(main, uses=("paths", "export", "dial", "serve.model_name", "serve.max_k",
                                 "evaluate.filter_seen", "evaluate.list_length"), usage=USAGE)
