"""`clrec.prepare`: a click log in memory or on disk becomes a data set to train on."""
import contextlib
import dataclasses
import os
import tempfile
from typing import Any, Mapping, Optional, Union
import warnings

from clrec_tf.api import flags as flags_lib
from clrec_tf.api import stores
from clrec_tf.api import tables
from clrec_tf.api.calls import long_call
from clrec_tf.config import Config
from clrec_tf.data import schema as schema_lib
from clrec_tf.data.schema import Schema
from clrec_tf.errors import UserError
from clrec_tf.preparation.prepare_folder import prepare_folder
from clrec_tf.preparation.stored_inputs import STORES
from clrec_tf.settings.stores import StoresConfig
from clrec_tf.stores.files import reads_files
from clrec_tf.system import own_log
from clrec_tf.system.json_files import load_json

_TABLES = ("impressions", "user_features")  # flags that name a file of rows, for which a frame may be given too


@dataclasses.dataclass(frozen=True)
class Data:
    """A prepared data set.

    Attributes:
      folder: its --data_dir, an absolute path or an address in a store; a temporary one goes with this object.
      schema: what is in it.
      pandas: whether it was made of a DataFrame of pandas, so that results are such, too.
    """
    folder: str
    schema: Schema = dataclasses.field(repr=False)
    pandas: bool = False
    _stores: StoresConfig = dataclasses.field(default=StoresConfig(), repr=False)
    _temporary: Optional[tempfile.TemporaryDirectory] = dataclasses.field(default=None, repr=False)

    @property
    def report(self) -> dict[str, Any]:
        """report.json: what prepare has found in the log, left out, and warns of."""
        path = dict(data_dir=os.path.join(self.folder, schema_lib.REPORT_FILE))
        with stores.opened(path | dataclasses.asdict(self._stores), dict(data_dir=reads_files)) as local:
            return load_json(local["data_dir"], f"{self.folder} has no {schema_lib.REPORT_FILE}",
                             "prepare the data again")


def prepare(clicks: Any, items: Any = None, **flags) -> Data:
    """Prepares a data set as ``python -m clrec_tf.prepare`` does; what its report warns of comes as Python warnings.

    Args:
      clicks: the log: a DataFrame of polars or pandas, an Arrow table, or a path as of --input, which may be in a
        store, such as "s3://shop/clicks.parquet". Its columns are named by `user_column`, `item_column` and
        `timestamp_column`.
      items: titles and features by item id, in the same forms (--item_features).
      **flags: of prepare, such as `feature_columns=["category"]`; `data_dir` is by default a temporary folder, and may
        be in a store, where the data set is complete when this returns. `impressions` and `user_features` may be
        frames too.

    Returns:
      The data set.

    Raises:
      UserError: a flag that does not fit; its subclass DataError: a column that is missing or of mixed types, bad rows;
        BusyError: another prepares in the same folder of a store.
    """
    given = dict(input=clicks, item_features=items) | {name: flags.pop(name) for name in _TABLES if name in flags}
    settings = flags_lib.settings("prepare", flags)
    temporary = None if settings.get("data_dir") else tempfile.TemporaryDirectory(prefix="clrec-data-")
    settings["data_dir"] = os.path.join(temporary.name, "data") if temporary else stores.lasting(
        settings["data_dir"], "data_dir")
    with long_call(), _files({name: table for name, table in given.items() if table is not None}) as files:
        settings |= files
        kept = Config.of(**stores.without_addresses(settings, STORES))
        with stores.opened(settings, STORES) as local:
            config = kept.but(**local)
            schema = prepare_folder(config.paths, config.prepare, tell=lambda report: None)
    data = Data(kept.paths.data_dir or settings["data_dir"], schema, tables.is_pandas(clicks), kept.stores, temporary)
    for text in data.report.get("warnings", ()):  # which older data folders lack
        warnings.warn(text, stacklevel=3)  # above the module that is called: the caller's line
    return data


def folder_of(data: Union[Data, str, os.PathLike]) -> str:
    """The folder, or address, of a data set; `UserError` where it is of another type."""
    if isinstance(data, Data):
        return data.folder
    if not isinstance(data, (str, os.PathLike)):
        raise UserError(f"data is of type {type(data).__name__}: give what clrec_tf.prepare returned, or a data folder")
    return stores.lasting(os.fspath(data), "data_dir")


@contextlib.contextmanager
def _files(given: Mapping[str, Any]):
    """Context with a file for each flag: frames are Parquet meanwhile, which messages call by their argument."""
    called = dict(input="clicks", item_features="items")
    with tempfile.TemporaryDirectory(prefix="clrec-tables-") as folder:
        paths, names = {}, {}
        for flag, table in given.items():
            if isinstance(table, (str, os.PathLike)):
                paths[flag] = os.fspath(table)
                continue
            name = called.get(flag, flag)
            paths[flag] = os.path.join(folder, f"{name}.parquet")
            tables.as_polars(table, name).write_parquet(paths[flag])
            names |= {f"--{flag}={paths[flag]}": name, paths[flag]: name}
        try:
            with own_log.rewritten(lambda text: _called(text, names)):
                yield paths
        except UserError as error:
            raise type(error)(_called(str(error), names)) from error


def _called(text: str, names: Mapping[str, str]) -> str:
    """A message in which each key of `names` is replaced by its value, in their order."""
    for path, name in names.items():
        text = text.replace(path, name)
    return text
