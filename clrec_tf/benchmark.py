"""python -m clrec_tf.benchmark --suite=NAME: measures one part of the program and prints what it found."""
import os

from clrec_tf import command_line
from clrec_tf.benchmarks import prepare
from clrec_tf.config import BenchmarkConfig
from clrec_tf.config import Config
from clrec_tf.data.schema import save_json
from clrec_tf.errors import UserError

# Each takes the settings and returns names and figures, units in the names.
SUITES = {
    "prepare": lambda settings: prepare.run(settings.events),
}


def benchmark(settings: BenchmarkConfig) -> dict:
    """Runs --suite; `UserError` where there is none of that name."""
    if settings.suite not in SUITES:
        raise UserError(f"--suite={settings.suite}: must be one of {', '.join(SUITES)}")
    return dict(suite=settings.suite, cpus=os.cpu_count(), **SUITES[settings.suite](settings))


def main(config: Config):
    """Runs the command."""
    found = benchmark(config.benchmark)
    for name, value in found.items():
        print(f"{name}: {value:,}" if isinstance(value, int) else f"{name}: {value}")
    if config.benchmark.json:
        save_json(config.benchmark.json, found)


if __name__ == "__main__":
    command_line.run(main, uses=("benchmark",), usage=__doc__)
