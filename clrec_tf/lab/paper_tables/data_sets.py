"""The data sets that tables are trained on, prepared once each under --tables_dir."""
import contextlib
import dataclasses
import os

from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.errors import DataError
from clrec_tf.lab.paper_tables import record
from clrec_tf.lab.simulator import end_to_end
from clrec_tf.preparation.generate import generate_log
from clrec_tf.preparation.prepare_folder import prepare_folder

PUBLIC, GENERATED, SIMULATED = "public", "generated", "simulated"
# Section of the flags, and those that say how much is drawn.
_SIZES = {GENERATED: ("world", ("world_users", "world_items", "world_intents", "world_clicks_per_user")),
          SIMULATED: ("exposure_world", ("exposure_size", "exposure_users", "exposure_items", "exposure_visits",
                                         "exposure_weeks")),
          PUBLIC: ("world", ())}
_BY_USER = dict(split="by_user", max_sequence_length=100, min_train_length=2)
_TAOBAO = dict(utc_offset=8.0, from_time="2017-11-25", to_time="2017-12-04", max_bad_rows=1)
_SIMULATOR = dict(exposure_policy="pop", intent_bonus=3.0)


@dataclasses.dataclass(frozen=True)
class DataSet:
    """One data set.

    Attributes:
      description: what it is.
      settings: of prepare, and of the simulator, by flag.
      source: `PUBLIC`, `GENERATED` or `SIMULATED`; the sizes of the latter are those of the flags.
      log, items: files within --public_dir.
    """
    description: str
    settings: dict
    source: str = PUBLIC
    log: str = ""
    items: str = ""


_ML1M = "ml-1m/ml-1m.txt.gz"
_BEAUTY5 = "amazon-beauty-5core/Beauty"
DATA_SETS = {
    "ml1m": DataSet("MovieLens-1M, ids, leave-one-out", dict(format="sequence", min_train_length=1), log=_ML1M),
    "ml1m_genres": DataSet(
        "MovieLens-1M with genres, leave-one-out",
        dict(format="sequence", min_train_length=1, multi_feature_columns=("genres",)), log=_ML1M,
        items="ml-1m/ml-1m_items.tsv"),
    "beauty": DataSet("Amazon Beauty of SASRec and BERT4Rec, ids, leave-one-out",
                      dict(format="sequence", min_train_length=1, vocabulary="all"), log="beauty/beauty.txt.gz"),
    "beauty5": DataSet("Amazon Beauty 5-core with categories and brands, leave-one-out",
                       dict(format="sequence_per_user", min_train_length=1), log=f"{_BEAUTY5}.txt.gz",
                       items=f"{_BEAUTY5}_item2attributes.json.gz"),
    "ml100k": DataSet("MovieLens-100k with time stamps, leave-one-out", dict(format="recbole", min_train_length=1),
                      log="ml-100k/ml-100k.inter"),
    "taobao": DataSet("Taobao UserBehavior, the last day tested", dict(format="taobao", split="last_days", **_TAOBAO),
                      log="taobao-sample/UserBehavior.csv.gz"),
    "taobao_categories": DataSet(
        "Taobao UserBehavior, categories as items, split by users",
        dict(format="columns", columns=("user_id", "product", "item_id", "behaviour", "timestamp"),
             feature_columns=("item_id",), **_TAOBAO, **_BY_USER), log="taobao-sample/UserBehavior.csv.gz"),
    "generated": DataSet("generated log with categories and sellers, leave-one-out", {}, GENERATED),
    "generated_by_user": DataSet("generated log with categories and sellers, split by users", _BY_USER, GENERATED),
    "simulator": DataSet("sequential simulator, exposure by popularity, leave-one-out", _SIMULATOR, SIMULATED),
    "simulator_days": DataSet("sequential simulator, exposure by popularity, the last three days tested",
                              dict(_SIMULATOR, split="last_days", test_days=3), SIMULATED),
}


def check_files(name: str, config: Config) -> None:
    """`DataError`, naming file and flag, where a public data set is not there."""
    data = DATA_SETS[name]
    for file in filter(None, (data.log, data.items)):
        _found(config, file)


def prepared(name: str, config: Config) -> Config:
    """Prepares a data set unless that is done.

    Args:
      name: of `DATA_SETS`.
      config: of the command: folders, seed, and what says how much is drawn.

    Returns:
      The settings of the data set, with --data_dir and, of a simulation, --world_dir.

    Raises:
      UserError: the folder was made with other settings; DataError: a file is missing or bad.
    """
    data = DATA_SETS[name]
    folder = os.path.join(config.tables.tables_dir, "data", name)
    section, sizes = _SIZES[data.source]
    drawn = {size: getattr(getattr(config, section), size) for size in sizes}
    record.keep(folder, dict(seed=config.paths.seed, **drawn, **data.settings))
    made = Config.of(seed=config.paths.seed, data_dir=os.path.join(folder, "data"), **drawn, **data.settings)
    with quietly(os.path.join(folder, "prepare.txt")):
        if data.source == SIMULATED:
            return end_to_end.prepared(made, folder)
        if data.source == GENERATED:
            settings = generate_log(made.paths, made.world, made.prepare)
        else:
            items = dict(item_features=_found(config, data.items)) if data.items else {}
            settings = made.but(input=_found(config, data.log), **items).prepare
        prepare_folder(made.paths, settings)
    return made


@contextlib.contextmanager
def quietly(path: str):
    """Standard output goes to a file: tables of many runs would hide the one that is asked for."""
    with open(path, "a", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        yield


def _found(config, file):
    """The path of a file of --public_dir, packed or not."""
    folder = require(config.tables.public_dir, "public_dir", f"{file} is looked for there")
    packed = os.path.join(folder, file)
    for path in (packed, packed.removesuffix(".gz")):
        if os.path.exists(path):
            return path
    raise DataError(f"--public_dir={folder} has no {file}: put it there, or choose another --table_data")
