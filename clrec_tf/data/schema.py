"""What a prepared data set looks like on disk: names, dtypes and facts, for writer and reader alike.

A data folder holds::

    schema.json                     this module's `Schema`: decides the facts of the data for every later command
    manifest.json                   this module's `Manifest`: every file with records, bytes and sha256, and a checksum
                                    of itself; written last
    train-00000-of-00004.tfrecord   one tf.train.Example per user: the training part of its click sequence
    valid-….tfrecord, test-….tfrecord   one Example per evaluated user: history, then `target_count` targets
    catalogue-….tfrecord            one Example per item of the vocabulary, in id order 1..V
    content.npy                     float32 [V+1, width] dense vectors by item id, row 0 zero (only with dense features)
    impressions.npy                 int32 [N, 2] in order of time: item id of the user's last click before (0: none),
                                    item id shown (only with an impression log; training part)
    feature_values.json             feature name (with u: or c: of users and requests) -> its values by number from 1
    report.json                     what prepare read, dropped and kept

A sequence Example (train, valid, test) has int64 features::

    user_id       1       number of the user, from 0, the same in every part
    weight        float 1 importance of the sequence; 0 = ignored
    target_count  1       how many of the last events are targets (train: 1; valid and test: ≥ 1)
    item_id       [n]     1..item_rows-1, oldest first; 0 only for a target outside the vocabulary
    timestamp     [n]     seconds, ≤ 0 = unknown; only if schema.has_timestamps
    event         [n]     number of the behaviour in schema.event_weights, from 1; 0 = none; only if there are weights
    dwell         [n]     whole seconds that the user stayed, −1 = unknown; only if schema.has_dwell
    f:<feature>   [n] or [n·width]   categorical (0 = missing) or several-valued, each event padded with 0 to `width`;
                          0 for hash buckets and unknown targets, so that equal ids have equal features
    u:<feature>   [width] of the user, 0 = missing or unknown; see ``query_features``
    c:<feature>   [n] or [n·width]   of the request that each event answered, likewise

A catalogue Example has item_id [1], count [1] (training clicks), original_id (bytes), optional title (bytes), optional
last_click [1] (seconds, of any part) and cold [1] (1: no training part, of this data set or one before, has a click),
and the item's f:<feature> values ([1] or [width]).
"""
import dataclasses
import hashlib
import json
import os
from typing import Optional

from clrec_tf.data import features as feature_lib
from clrec_tf.data.features import Feature
from clrec_tf.data.file_checks import check_shard
from clrec_tf.data.query_features import QueryFeature
from clrec_tf.errors import DataError
from clrec_tf.system.declared import check_declared
from clrec_tf.system.inner_path import check_name
from clrec_tf.system import json_files
from clrec_tf.system.json_files import load_json
from clrec_tf.system.json_files import save_json

FORMAT_VERSION = 1
SCHEMA_FILE = "schema.json"
MANIFEST_FILE = "manifest.json"
CONTENT_FILE = "content.npy"
IMPRESSIONS_FILE = "impressions.npy"
FEATURE_VALUES_FILE = "feature_values.json"
REPORT_FILE = "report.json"
SPLITS = ("train", "valid", "test", "catalogue")


@dataclasses.dataclass(frozen=True)
class Schema:
    """Facts of a prepared data set.

    Attributes:
      num_items: V, items of the vocabulary, ids 1..V; these are the candidates.
      item_rows: V + 1 + oov_buckets: ids in examples are below this.
      features: categorical item features in the order of the item row.
      content_width: width of the dense vectors of content.npy, 0 = none.
      id_type: "int" or "string", the type of original item ids.
      has_timestamps: whether examples carry `timestamp`.
      num_users: users of the log after filtering.
      total_clicks: training clicks, the sum of the catalogue's counts.
      split: the split rule and its parameters.
      settings: prepare's settings that decided the content.
      format_version: of this layout.
      versions: of the packages that wrote it.
      has_dwell: whether examples carry `dwell`; folders older than this entry have none.
      event_weights: (behaviour, what its targets count in the loss) in the order of the numbers in `event`; () where
        examples have no behaviours.
      query_features: of users, then of requests; folders older than this entry have none.
    """
    num_items: int
    item_rows: int
    features: tuple[Feature, ...]
    content_width: int
    id_type: str
    has_timestamps: bool
    num_users: int
    total_clicks: int
    split: dict
    settings: dict
    format_version: int = FORMAT_VERSION
    versions: dict = dataclasses.field(default_factory=dict)
    has_dwell: bool = False
    event_weights: tuple[tuple[str, float], ...] = ()
    query_features: tuple[QueryFeature, ...] = ()

    @property
    def item_width(self) -> int:
        """Columns C of an item row: the id, then each feature's `width` values."""
        return feature_lib.item_width(self.features)

    @property
    def feature_columns(self) -> dict[str, slice]:
        """Name of each feature -> its columns of an item row."""
        return feature_lib.feature_columns(self.features)

    def hash(self) -> str:
        """sha256 of the facts that a model depends on (not of package versions)."""
        # Without what these say the hash is that of folders older than the entry.
        later = ("has_dwell", "event_weights", "query_features")
        left_out = {"versions", *(name for name in later if not getattr(self, name))}
        facts = {k: v for k, v in dataclasses.asdict(self).items() if k not in left_out}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file: name relative to the data folder, records, events (clicks in it), bytes and sha256."""
    name: str
    records: int
    events: int
    bytes: int
    sha256: str

    def __post_init__(self):
        check_name(self.name)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Every file of a data set; written last, so a folder without one is incomplete.

    Attributes:
      schema_hash: `Schema.hash()` of the schema beside it.
      shards: split name ("train", "valid", "test", "catalogue") to its shards, in order.
      content: the shard entry of content.npy, or None.
      impressions: that of impressions.npy, or None.
      others: those of report.json and feature_values.json; folders older than this entry have none.
    """
    schema_hash: str
    shards: dict[str, tuple[Shard, ...]]
    content: Optional[Shard] = None
    impressions: Optional[Shard] = None
    others: tuple[Shard, ...] = ()

    def paths(self, data_dir: str, split: str) -> list[str]:
        """Full paths of one split's shards."""
        return [os.path.join(data_dir, shard.name) for shard in self.shards[split]]

    def checked_at_start(self) -> list[Shard]:
        """All but `others`, which are checked when they are read."""
        return [*sum(self.shards.values(), ()), *filter(None, (self.content, self.impressions))]

    def records(self, split: str) -> int:
        """Records of one split."""
        return sum(shard.records for shard in self.shards[split])


def save_schema(data_dir: str, schema: Schema) -> None:
    """Writes schema.json."""
    save_json(os.path.join(data_dir, SCHEMA_FILE), dataclasses.asdict(schema))


def save_manifest(data_dir: str, manifest: Manifest) -> None:
    """Writes manifest.json; the last act of prepare."""
    save_json(os.path.join(data_dir, MANIFEST_FILE), json_files.sealed(dataclasses.asdict(manifest)))


def _load_json(data_dir: str, name: str) -> dict:
    return load_json(os.path.join(data_dir, name), f"--data_dir={data_dir} holds no complete data set; run python -m "
                     "clrec_tf.prepare first", "prepare the data again")


def load_schema(data_dir: str) -> Schema:
    """Reads schema.json; `DataError` where it is missing, damaged or of another format version."""
    values = _load_json(data_dir, SCHEMA_FILE)
    if values.get("format_version") != FORMAT_VERSION:
        raise DataError(f"{data_dir}/{SCHEMA_FILE} has format_version={values.get('format_version')}, this program "
                        f"reads {FORMAT_VERSION}: prepare the data again")
    try:
        values["features"] = tuple(Feature(**feature) for feature in values["features"])
        values["event_weights"] = tuple((kind, weight) for kind, weight in values.get("event_weights", ()))
        values["query_features"] = tuple(QueryFeature(**feature | dict(bounds=tuple(feature["bounds"])))
                                         for feature in values.get("query_features", ()))
        schema = Schema(**values)
        check_declared(schema)
        return schema
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise DataError(f"{data_dir}/{SCHEMA_FILE} has missing, unknown or wrong entries ({error}): prepare the data again"
                        ) from error


def load_manifest(data_dir: str, verify: str = "size") -> Manifest:
    """Reads manifest.json and checks the files it lists.

    Args:
      data_dir: folder of the data set.
      verify: "size" compares file sizes, "sha256" contents too; "" looks at no file.

    Raises:
      DataError: naming the file that is missing or differs.
    """
    values = _load_json(data_dir, MANIFEST_FILE)
    try:
        values = json_files.unsealed(values)
        values |= {name: Shard(**values[name]) if values.get(name) else None for name in ("content", "impressions")}
        values["shards"] = {split: _entries(shards) for split, shards in values["shards"].items()}
        values["others"] = _entries(values.get("others", ()))
        manifest = Manifest(**values)
        check_declared(manifest)
    except ValueError as error:
        raise DataError(f"{data_dir}/{MANIFEST_FILE} is damaged ({error}): restore it or prepare the data again"
                        ) from error
    except (TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{data_dir}/{MANIFEST_FILE} has missing or unknown entries ({error}): prepare the data again"
                        ) from error
    schema = load_schema(data_dir)
    schema_hash = schema.hash()
    if schema_hash != manifest.schema_hash:
        raise DataError(f"{data_dir}/{SCHEMA_FILE} was changed after the data was written (hash {schema_hash[:12]}, "
                        f"manifest {manifest.schema_hash[:12]}): prepare the data again")
    if "catalogue" in manifest.shards and manifest.records("catalogue") != schema.num_items:
        raise DataError(f"{data_dir}: the catalogue has {manifest.records('catalogue')} items, schema.json says "
                        f"{schema.num_items}: prepare the data again")
    for shard in manifest.checked_at_start() if verify else ():
        check_shard(data_dir, shard, verify)
    return manifest


def _entries(values):
    return tuple(Shard(**value) for value in values)


def check_file(data_dir: str, name: str) -> None:
    """Compares a file that is about to be read with the manifest, content too; `DataError` where it differs.

    Records of shards have checksums of their own, which whoever reads them checks; arrays and JSON have none.
    """
    manifest = load_manifest(data_dir)
    for entry in (*manifest.checked_at_start(), *manifest.others):
        if entry.name == name:
            check_shard(data_dir, entry, "sha256")
