"""A training that goes on from another run's on grown data (--init_from): rows by what they stand for, all else as is.

The run's latest checkpoint is written anew with tables of the new sizes and restored like any other, so that neither
of the two needs to know how many parameter servers the other has.
"""
import dataclasses
import io
import json
import os
import shutil
import tempfile
from typing import Optional

from absl import logging
import numpy as np
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.catalogue import read_feature_values
from clrec_tf.data import schema as schema_lib
from clrec_tf.data.schema import Schema
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.system import atomic
from clrec_tf.system.pattern_names import readable_name
from clrec_tf.training import checkpoints as checkpoints_lib
from clrec_tf.training import run_config

_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_IDS = "model/item_encoder/ids/table"
_CONTENT = "model/item_encoder/content"
NOBODY = -1


@dataclasses.dataclass(frozen=True)
class Vocabularies:
    """A data set's items and feature values.

    Attributes:
      data_dir: its folder.
      schema: of it.
      catalogue: its items.
      values: feature name -> values by number from 1.
    """
    data_dir: str
    schema: Schema
    catalogue: Catalogue
    values: dict[str, list[str]]

    @classmethod
    def read(cls, data_dir: str, schema: Schema, manifest: schema_lib.Manifest) -> "Vocabularies":
        """Of a data folder."""
        return cls(data_dir, schema, read_catalogue(data_dir, schema, manifest), read_feature_values(data_dir))

    def item_buckets(self) -> int:
        """Hash buckets of items."""
        return self.schema.item_rows - 1 - self.schema.num_items


def earlier_rows(now: list, before: list, buckets: int) -> np.ndarray:
    """Which row of an earlier table each row of a new one continues, −1: none.

    Rows of both: one for what is missing, one for each name in order, then hash buckets.

    Args:
      now, before: names, such as original ids.
      buckets: of both.

    Returns:
      [1 + len(now) + buckets] int64.
    """
    places = {name: number for number, name in enumerate(before, 1)}
    names = [places.get(name, -1) for name in now]
    return np.array([0, *names, *range(len(before) + 1, len(before) + 1 + buckets)], np.int64)


def means_of_alike(rows: np.ndarray, features: np.ndarray, earlier: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What new items begin with: the mean over known items of exactly the same features.

    Args:
      rows: [R,d] a table, of which the known rows count.
      features: [R,F] features of each row's item, 0 = missing.
      earlier: [R], see `earlier_rows`.

    Returns:
      (means [n,d], their rows [n]): of new items that have features, and known items of the same.
    """
    if not features.shape[1]:
        return rows[:0], np.zeros(0, np.int64)
    _, kind = np.unique(features, axis=0, return_inverse=True)
    has = features.any(axis=1)
    known = has & (earlier >= 0)
    sizes = np.bincount(kind[known], minlength=kind.max() + 1)
    new = np.flatnonzero(has & (earlier < 0) & (sizes[kind] > 0))
    order = np.flatnonzero(known)[np.argsort(kind[known], kind="stable")]
    ends = np.cumsum(sizes)
    sums = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows[order], axis=0, dtype=np.float64)])
    totals = sums[ends[kind[new]]] - sums[(ends - sizes)[kind[new]]]
    return (totals / sizes[kind[new]][:, None]).astype(rows.dtype), new


class WarmStart:
    """What a run has learned, for other data.

    Args:
      config: settings of the new run, of which --init_from names the other's folder.
      schema, manifest: of the new data.

    Raises:
      UserError: there is no such run, or it does not fit the data; DataError: it, or its data, is damaged.
    """

    def __init__(self, config: Config, schema: Schema, manifest: schema_lib.Manifest):
        self._config, self._workdir = config, config.train.init_from
        self._flag = f"--init_from={self._workdir}"
        if os.path.realpath(self._workdir) == os.path.realpath(config.paths.workdir):
            raise UserError(f"{self._flag} is --workdir itself: to go on with that run leave --init_from out")
        self._saved = run_config.load(self._workdir)
        self.prefix = checkpoints_lib.find_checkpoint(self._workdir, "latest", "init_from")
        self._before, self._now = self._read_before(), Vocabularies.read(config.paths.data_dir, schema, manifest)
        self._check_schemas()
        now, before = self._now, self._before
        self._item_rows = earlier_rows(list(now.catalogue.original_ids), list(before.catalogue.original_ids),
                                       now.item_buckets())

    def _read_before(self) -> Vocabularies:
        data_dir = self._saved.get("paths", {}).get("data_dir", "")
        remedy = f"{self._flag} was trained on --data_dir={data_dir}, which tells its rows apart"
        if not os.path.exists(os.path.join(data_dir, schema_lib.MANIFEST_FILE)):
            raise UserError(f"{remedy}, and which is not there: restore it, or leave --init_from out")
        schema = schema_lib.load_schema(data_dir)
        if schema.hash() != self._saved["schema_hash"]:
            raise UserError(f"{remedy}, and which has been prepared anew since: restore it, or leave --init_from out")
        return Vocabularies.read(data_dir, schema, schema_lib.load_manifest(data_dir))

    def _check_schemas(self) -> None:
        now, before = self._now.schema, self._before.schema
        names = [[feature.name for feature in schema.features] for schema in (before, now)]
        buckets = [[f.rows - f.vocabulary_size for f in schema.features] for schema in (before, now)]
        facts = (("item ids of type", before.id_type, now.id_type), ("item features", *map(", ".join, names)),
                 ("dense vectors of the width", before.content_width, now.content_width),
                 ("hash buckets of items", self._before.item_buckets(), self._now.item_buckets()),
                 ("rows beside the values of features", *buckets))
        for what, old, new in facts:
            if old != new:
                raise UserError(f"{self._flag} was trained on data with {what} {old or 'none'}, --data_dir="
                                f"{self._config.paths.data_dir} has {new or 'none'}: prepare it alike, with "
                                "--vocabulary_from, or leave --init_from out")
        if any(feature.name not in values for values in (self._before.values, self._now.values)
               for feature in now.features):
            raise DataError(f"{self._flag}: {self._before.data_dir} has no {schema_lib.FEATURE_VALUES_FILE}, which "
                            "tells rows of features apart: prepare it again, and train on it")

    def fill(self, model, optimizer, states: dict, runtime) -> bool:
        """Sets tables and their slots by row, everything dense, and the queues.

        Args:
          model, optimizer: freshly made.
          states: name -> `checkpoints.LocalState`.
          runtime: where they live.

        Returns:
          Whether queues were taken over.

        Raises:
          UserError: the model is another; DataError: the checkpoint is damaged.
        """
        folder, name = os.path.split(self.prefix)
        with readable_name(folder) as readable:
            reader = tf.train.load_checkpoint(os.path.join(readable, name))
            self._check_shapes(reader, model)
            with atomic.write_errors(self._config.paths.workdir, f"workdir={self._config.paths.workdir}"):
                os.makedirs(self._config.paths.workdir, exist_ok=True)
                scratch = tempfile.mkdtemp(prefix=".init_from-", dir=self._config.paths.workdir)
            try:
                prefix = self._converted(reader, model, optimizer, os.path.join(scratch, "step-0"))
                checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
                checkpoints_lib.restore(checkpoint, prefix, runtime.save_options).expect_partial()
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
            taken = [self._fill_state(reader, name, state) for name, state in states.items()]
        new = int((self._item_rows < 0).sum())
        logging.info("going on from %s: %d items known, %d new", self.prefix, self._now.schema.num_items - new, new)
        return any(taken)

    def _check_shapes(self, reader, model) -> None:
        """`UserError` where the run's variables are not those of the model, tables of rows aside."""
        tables = self._tables(model)
        there = {name.removesuffix(_VALUE): shape for name, shape in reader.get_variable_to_shape_map().items()
                 if name.startswith("model/")}
        here = _shapes(model)
        width = lambda shapes: {name: shape[1:] if name in tables or name == _CONTENT else shape
                                for name, shape in shapes.items()}
        there, here = width(there), width(here)
        if there == here:
            return
        name = sorted(name for name in set(there) | set(here) if there.get(name) != here.get(name))[0]
        now, before = json.loads(json.dumps(run_config.record(self._config)["model"])), self._saved["model"]
        others = [f"--{setting}={now[setting]} (there {before[setting]})" for setting in now
                  if setting in before and now[setting] != before[setting]]
        raise UserError(f"{self._flag} has another model: {name} is {there.get(name, 'not there')} there and "
                        f"{here.get(name, 'not there')} here{'; ' if others else ''}{', '.join(others)}: give its "
                        "settings, or leave --init_from out")

    def _tables(self, model) -> dict[str, tuple[object, np.ndarray]]:
        """Name of each table of rows -> (its variable, `earlier_rows`)."""
        tables = {_IDS: (model.item_encoder.ids.table, self._item_rows)}
        for number, table in enumerate(getattr(model.item_encoder, "feature_tables", ())):
            feature = model.item_encoder.features[number]
            names = [vocabularies.values[feature.name] for vocabularies in (self._now, self._before)]
            rows = earlier_rows(*names, feature.rows - 1 - feature.vocabulary_size)
            tables[f"model/item_encoder/feature_tables/{number}/table"] = (table.table, rows)
        return tables

    def _converted(self, reader, model, optimizer, prefix: str) -> str:
        """Writes the run's model and optimizer with tables of the new sizes; returns the checkpoint's prefix."""
        names = [name for name in reader.get_variable_to_shape_map() if name.startswith(("model/", "optimizer/", "save_counter/"))]
        tables, slots = self._tables(model), _slots(model, optimizer)
        of_key = {name: (variable, rows, False) for name, (variable, rows) in tables.items()}
        for name, (variable, rows) in tables.items():
            of_key |= {f"optimizer/_variables/{slot}": (variable, rows, True)
                       for slot in slots.get(id(variable), ())}
        parts = []
        for number, name in enumerate([_GRAPH, *names]):
            value, key = reader.get_tensor(name), name.removesuffix(_VALUE)
            if key in of_key:
                value = self._rows(value, *of_key[key], key == _IDS)
            elif key == _CONTENT:
                value = self._content(model)
            elif key == "optimizer/_iterations":
                value = np.zeros_like(value)
            parts.append(f"{prefix}_part-{number}")
            tf.raw_ops.SaveV2(prefix=parts[-1], tensor_names=[name], shape_and_slices=[""], tensors=[tf.constant(value)])
        tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=prefix, delete_old_dirs=False)
        return prefix

    def _rows(self, value: np.ndarray, variable, earlier: np.ndarray, slot: bool, ids: bool) -> np.ndarray:
        """A table, or one of its slots, of the new size."""
        rows = value[np.maximum(earlier, 0)]
        new = np.flatnonzero(earlier < 0)
        if slot:
            rows[new] = 0.0
            return rows
        if len(new):
            rows[new] = tf.nn.embedding_lookup(variable, tf.constant(new)).numpy()
        if ids:
            features = np.zeros((len(rows), self._now.catalogue.item_rows.shape[1] - 1), np.int64)
            features[1:1 + self._now.schema.num_items] = self._now.catalogue.item_rows[:, 1:]
            means, places = means_of_alike(rows, features, earlier)
            rows[places] = means
        return rows

    def _content(self, model) -> np.ndarray:
        """The new data's dense vectors, as the model has them."""
        table = model.item_encoder.content
        return tf.nn.embedding_lookup(table, tf.range(self._now.schema.item_rows)).numpy()

    def _fill_state(self, reader, name: str, state) -> bool:
        """Takes over a queue; returns whether that was possible."""
        key = f"{name}/.ATTRIBUTES/py_state"
        if not reader.has_tensor(key):
            return False
        with np.load(io.BytesIO(reader.get_tensor(key)), allow_pickle=False) as archive:
            fields = {field: archive[field] for field in archive.files}
        moved = self._moved(fields, state.shapes)
        if moved is None:
            logging.info("the %s of %s is of another form: it begins anew", name, self.prefix)
            return False
        archive = io.BytesIO()
        np.savez(archive, **moved)
        state.deserialize(archive.getvalue())
        return True

    def _moved(self, fields: dict[str, np.ndarray], shapes: dict[str, tuple]) -> Optional[dict[str, np.ndarray]]:
        """A queue's fields, by field/worker, with items as they are numbered now; None where that cannot be.

        Whoever clicked has another number now, so owners are nobody.
        """
        moved, catalogue = {}, self._now.catalogue
        of_before = np.zeros(self._before.schema.item_rows, np.int64)
        known = self._item_rows >= 0
        of_before[self._item_rows[known]] = np.flatnonzero(known)
        for field, values in fields.items():
            kind = field.rpartition("/")[0]
            if kind not in shapes:
                return None
            if kind.endswith("item"):
                ids = of_before[values[:, 0]]
                if ((ids == 0) & (values[:, 0] > 0)).any():  # of an item that has left the vocabulary
                    return None
                rows = np.zeros((self._now.schema.item_rows, shapes[kind][1]), np.int64)
                rows[:, 0] = np.arange(len(rows))
                rows[1:1 + len(catalogue.item_rows)] = catalogue.item_rows[:, :shapes[kind][1]]
                values = rows[ids]
            elif kind.endswith("owner"):
                values = np.full_like(values, NOBODY)
            if values.shape != shapes[kind]:
                return None
            moved[field] = values
        return moved


def _shapes(model) -> dict[str, tuple]:
    """Name of each variable, as a checkpoint has it -> its shape."""
    return {f"model/{path.replace('.', '/')}": list(variable.shape) for path, variable in
            model.get_weight_paths().items()}


def _slots(model, optimizer) -> dict[int, list[int]]:
    """id of each trainable variable -> numbers of its slots among the optimizer's variables."""
    trained = model.trainable_variables
    per_variable = (len(optimizer.variables) - 1) // len(trained)
    return {id(variable): list(range(1 + per_variable * number, 1 + per_variable * (number + 1)))
            for number, variable in enumerate(trained)}
