"""python -m clrec_tf.benchmark: measures parts of the program against each other and prints ratios.

  python -m clrec_tf.benchmark --suite=training --json=speed.json
  python -m clrec_tf.benchmark --suite=tfrs,memory --data_dir=DATA
  python -m clrec_tf.benchmark --suite=serve --workdir=BUNDLES

Each ratio is of things that took turns in one process, so that what else the machine does meets all of them alike."""
from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.data.schema import save_json
from clrec_tf.lab.benchmarks.suites import run_suites
from clrec_tf.lab.benchmarks.suites import SHOWN_FIRST


def show(name: str, value) -> None:
    """Prints a figure; of what is nested only the JSON has everything."""
    if isinstance(value, (int, float, str)):
        print(f"{name}: {value:,}" if isinstance(value, int) else f"{name}: {value}")
    elif isinstance(value, dict):
        for key, inner in value.items():
            show(f"{name}.{key}" if name else str(key), inner)


def main(config: Config):
    """Runs the command."""
    results = run_suites(config)
    for name, value in results.items():
        show("" if name in SHOWN_FIRST else name, value)
    if config.benchmark.json:
        save_json(config.benchmark.json, results)


if __name__ == "__main__":
    command_line.run(main, usage=__doc__, uses=("benchmark", "paths", "model", "train", "cluster", "serve",
                                                "export.target_recall"))
