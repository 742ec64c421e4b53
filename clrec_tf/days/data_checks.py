"""Whether a day's data can follow yesterday's, before anything is trained on them."""
from typing import Sequence

from clrec_tf.config import Config
from clrec_tf.data import schema as schema_lib
from clrec_tf.days import data_report
from clrec_tf.days import history
from clrec_tf.days.folders import DayFolders
from clrec_tf.days.gate import GateError
from clrec_tf.errors import DataError


def check_data(config: Config, folders: DayFolders, before: DayFolders, entry: dict) -> None:
    """Prints what changed, and keeps it in the day's entry.

    Args:
      config: of the day.
      folders, before: of the day, and of the one that it follows.
      entry: of the history, to be filled.

    Raises:
      DataError: it is the same log again, or of another kind than yesterday's. GateError: a feature is lost, or the
      clicks drifted too far.
    """
    schemas = [schema_lib.load_schema(folder.data) for folder in (before, folders)]
    if _clicks_of(schemas[0]) == _clicks_of(schemas[1]) or _records(before.data) == _records(folders.data):
        raise DataError(f"--input={config.prepare.input} is the log of day {entry['yesterday']}, or has its clicks: give "
                        f"the log of day {entry['day']}, and remove {folders.root}")
    _check_kinds(config, *schemas, entry)
    entry["data"] = report = data_report.between(before.data, folders.data)
    print(f"data of {entry['day']} beside {entry['yesterday']}:")
    for name, value in report.items():
        print(f"  {name}: {value}")
    if report["lost_features"]:
        entry["status"] = history.STOPPED
        raise GateError(f"day {entry['day']} lacks the features {', '.join(report['lost_features'])} of day "
                        f"{entry['yesterday']}, on which its model rests: name them in "
                        f"{flags_of(report['lost_features'])}, or begin anew in another --days_dir")
    if report["drift"] >= config.days.max_drift < 1.0:
        entry["status"] = history.STOPPED
        raise GateError(
            f"the clicks of day {entry['day']} have a total variation of {report['drift']:.3f} from those of day "
            f"{entry['yesterday']} (--max_drift={config.days.max_drift:g}): is the log whole and of the same source? "
            f"If it is right, raise --max_drift; nothing was trained, and the model of {entry['yesterday']} stays")


def _check_kinds(config: Config, before: schema_lib.Schema, now: schema_lib.Schema, entry: dict) -> None:
    """`DataError` where the log is of another kind than yesterday's, which no model can go on from."""
    day, yesterday, settings = entry["day"], entry["yesterday"], config.prepare
    remedy = f"correct the log and remove the folder of day {day}, or begin anew in another --days_dir"
    if before.has_timestamps != now.has_timestamps:
        raise DataError(f"day {day}: --input={settings.input} with --timestamp_column={settings.timestamp_column} has "
                        f"{'' if now.has_timestamps else 'no '}time stamps, day {yesterday} "
                        f"{'had them' if before.has_timestamps else 'had none'}: give the column of day {yesterday}; "
                        f"{remedy}")
    if before.id_type != now.id_type:
        raise DataError(f"day {day}: --input={settings.input} has item ids of type {now.id_type}, day {yesterday} of "
                        f"type {before.id_type}: --id_type={before.id_type} says which rows are at fault; {remedy}")


def _clicks_of(schema: schema_lib.Schema) -> tuple:
    """What decides which clicks a data set has: files of the log, and where they were cut."""
    beside = ("vocabulary_from", "item_features", "dense_features", "impressions")
    files = {name: digest for name, digest in schema.settings["sha256"].items() if name not in beside}
    return files, schema.settings["from_time"], schema.settings["to_time"]


def _records(data_dir: str) -> list[str]:
    """Digests of what is trained and tested on. Numbers are kept from day to day, so equal clicks make equal records,
    whatever the file that they came in, such as one that was packed anew."""
    shards = schema_lib.load_manifest(data_dir).shards
    return [shard.sha256 for split in ("train", "valid", "test") for shard in shards.get(split, ())]


def flags_of(features: Sequence[str]) -> str:
    """The flags that name such features: of items, u:<of users> and c:<of requests>."""
    flags = {"u:": "--user_features with --user_feature_columns", "c:": "--context_columns"}
    return ", ".join(dict.fromkeys(flags.get(name[:2], "--feature_columns or --multi_feature_columns")
                                   for name in features))
