"""python -m clrec_tf.daily: one day of a model's life, from its log to what is served.

  python -m clrec_tf.daily --flagfile=configs/daily.flags --days_dir=DAYS --day=2026-11-29 --input=clicks-2026-11-29.csv

Prepares the day's log with yesterday's numbers, trains on from yesterday's model, evaluates both on the same next
clicks, and publishes today's if it passes --gate; a service that watches --export_dir (default: DAYS/export) swaps to
it. Killed at any moment, the same command finishes the day. Exit codes: those of train, and 3 where today's data or
model is refused: then nothing was replaced, and DAYS/history.jsonl says why."""
from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.days.day import run_day
from clrec_tf.days.stored_days import keeps_days
from clrec_tf.preparation.stored_inputs import INPUTS
from clrec_tf.publishing.stored_exports import exports_to
from clrec_tf.stores.files import reads_files


def main(config: Config) -> int:
    """Runs the command."""
    return run_day(config)


STORES = INPUTS | dict(attribute_items=reads_files, curve_points=reads_files, export_dir=exports_to,
                       days_dir=keeps_days)

if __name__ == "__main__":
    command_line.run(main, usage=__doc__, uses=(
        "paths.seed", "paths.plugins", "paths.export_dir", "days", "prepare", "model", "loss", "train",
        "operations", "evaluate", "dial", "export", "serve.model_name", "serve.max_k",
        "stores"), stores=STORES)
