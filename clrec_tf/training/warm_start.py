"""A training that goes on from another run's on grown data (--init_from): rows by what they stand for, all else as is.

The run's latest checkpoint is written anew with tables of the new sizes and restored like any other, so that neither
of the two needs to know how many parameter servers the other has.
"""
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
from clrec_tf.data.catalogue import lacks_values
from clrec_tf.data import query_features as query_lib
from clrec_tf.data import schema as schema_lib
from clrec_tf.data.schema import Schema
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.system import atomic
from clrec_tf.system.pattern_names import readable_name
from clrec_tf.training.checkpoint_names import CONTENT
from clrec_tf.training.checkpoint_names import GRAPH
from clrec_tf.training.checkpoint_names import shapes_in
from clrec_tf.training.checkpoint_names import shapes_of
from clrec_tf.training.checkpoint_names import slots_of
from clrec_tf.training.checkpoint_names import VALUE
from clrec_tf.training import checkpoints as checkpoints_lib
from clrec_tf.training.grown_rows import earlier_rows
from clrec_tf.training.grown_rows import means_of_alike
from clrec_tf.training.grown_rows import moved_contexts
from clrec_tf.training.grown_rows import moved_queue
from clrec_tf.training.grown_rows import Vocabularies
from clrec_tf.training import run_config

_IDS, _FACTORS = (f"model/item_encoder/{name}/table" for name in ("ids", "factors"))


class WarmStart:
    """What a run has learned, for other data.

    Args:
      config: settings of the new run, of which --init_from names the other's folder.
      schema, manifest: of the new data.
      checkpoint: which of the run's; "best" has the model alone, without slots and queues.

    Raises:
      UserError: there is no such run, or it does not fit the data; DataError: it, or its data, is damaged.
    """

    def __init__(self, config: Config, schema: Schema, manifest: schema_lib.Manifest, checkpoint: str = "latest"):
        self._config, self._workdir = config, config.train.init_from
        self._flag = f"--init_from={self._workdir}"
        if os.path.realpath(self._workdir) == os.path.realpath(config.paths.workdir):
            raise UserError(f"{self._flag} is --workdir itself: to go on with that run leave --init_from out")
        self._reads_features = config.model.model != "clrec" or config.tower.use_features
        if not os.path.exists(os.path.join(self._workdir, run_config.CONFIG_FILE)):
            raise UserError(f"{self._flag} holds no run: give the --workdir of an earlier training")
        self._saved = run_config.load(self._workdir)
        self.prefix = checkpoints_lib.find_checkpoint(self._workdir, checkpoint, "init_from")
        self._before, self._now = self._read_before(), Vocabularies.read(config.paths.data_dir, schema, manifest)
        self._check_schemas()
        if 0 < self._now.catalogue.last_click.max() < self._before.catalogue.last_click.max():
            raise UserError(f"--data_dir={config.paths.data_dir} ends before the data that {self._flag} was trained on: "
                            "its tests would be on clicks that are known already; start from an earlier run")
        names = [list(vocabularies.catalogue.original_ids) for vocabularies in (self._now, self._before)]
        learned = [None if cold else name for name, cold in zip(names[1], self._before.catalogue.cold)]
        self._item_rows = earlier_rows(names[0], learned, self._now.item_buckets())

    def _read_before(self) -> Vocabularies:
        data_dir = run_config.data_dir_of(self._saved)
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
        # What a model without features does not read may differ.
        facts = [("hash buckets of items", self._before.item_buckets(), self._now.item_buckets()),
                 ("item ids of type", before.id_type, now.id_type)]
        facts += [("item features", *map(", ".join, names)), ("rows beside the values of features", *buckets),
                  ("dense vectors of the width", before.content_width, now.content_width)] * self._reads_features
        told = [[f"{feature.key} ({feature.kind})" for feature in schema.query_features] for schema in (before, now)]
        bounds = [[f"{feature.key} {feature.bounds}" for feature in schema.query_features if feature.bounds]
                  for schema in (before, now)]
        kinds = [[kind for kind, _ in schema.event_weights] for schema in (before, now)]
        facts += [("features of users and requests", *map(", ".join, told)),
                  ("bounds of numbers", *map(", ".join, bounds))] * self._config.model.use_query_features
        facts += [("behaviours", *map(", ".join, kinds))] * self._config.model.use_events
        for what, old, new in facts:
            if old != new:
                raise UserError(f"{self._flag} was trained on data with {what} {old or 'none'}, --data_dir="
                                f"{self._config.paths.data_dir} has {new or 'none'}: prepare it alike, with "
                                "--vocabulary_from, or leave --init_from out")
        if self._reads_features and any(lacks_values(vocabularies.schema, vocabularies.values)
                                        for vocabularies in (self._before, self._now)):
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
            tables = self._tables(model)
            self._check_shapes(reader, model, tables)
            with atomic.write_errors(self._config.paths.workdir, f"workdir={self._config.paths.workdir}"):
                os.makedirs(self._config.paths.workdir, exist_ok=True)
                scratch = tempfile.mkdtemp(prefix=".init_from-", dir=self._config.paths.workdir)
            try:
                prefix = self._converted(reader, model, tables, os.path.join(scratch, "step-0"))
                parts = dict(model=model, **(dict(optimizer=optimizer) if self._same_optimizer(reader) else {}))
                checkpoints_lib.restore(tf.train.Checkpoint(**parts), prefix, runtime.save_options).expect_partial()
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
            taken = [self._fill_state(reader, name, state) for name, state in states.items()]
        new = int((self._item_rows < 0).sum())
        logging.info("going on from %s: %d items known, %d new", self.prefix, self._now.schema.num_items - new, new)
        return any(taken)

    def _check_shapes(self, reader, model, tables) -> None:
        """`UserError` where the run's variables are not those of the model, tables of rows aside."""
        there, here = {n: s for n, s in shapes_in(reader).items() if n.startswith("model/")}, shapes_of(model)
        width = lambda shapes: {name: shape[1:] if name in tables or name == CONTENT else shape
                                for name, shape in shapes.items()}
        there, here = width(there), width(here)
        if there == here:
            return
        name = sorted(name for name in set(there) | set(here) if there.get(name) != here.get(name))[0]
        sizes = [f"has {shapes[name]}" if name in shapes else "is not" for shapes in (there, here)]
        now, before = json.loads(json.dumps(run_config.record(self._config)["model"])), run_config.of_model(self._saved)
        others = [f"--{setting}={now[setting]} (there {before[setting]})" for setting in now
                  if setting in before and now[setting] != before[setting] and setting not in self._config.unread()]
        raise UserError(f"{self._flag} has another model: {', '.join([*others, ''])}{name} {sizes[0]} there and "
                        f"{sizes[1]} here: give its settings, or leave --init_from out")

    def _tables(self, model) -> dict[str, tuple[object, np.ndarray]]:
        """Name of each table of rows -> (its variable, `earlier_rows`)."""
        of_items = {_IDS: model.item_encoder.ids, _FACTORS: getattr(model.item_encoder, "factors", None)}
        tables = {name: (table.table, self._item_rows) for name, table in of_items.items() if table is not None}
        for number, table in enumerate(getattr(model.item_encoder, "feature_tables", ())):
            feature = model.item_encoder.features[number]
            names = [each.values[feature.name] for each in (self._now, self._before)]
            rows = earlier_rows(*names, feature.rows - 1 - feature.vocabulary_size)
            tables[f"model/item_encoder/feature_tables/{number}/table"] = (table.table, rows)
        for path, owner in {"model": model, "model/user_encoder": model.user_encoder}.items():
            encoder = getattr(owner, "query_encoder", None)
            for number, feature in enumerate(encoder.features if encoder is not None else ()):
                tables[f"{path}/query_encoder/tables/{number}/table"] = (
                    encoder.tables[number].table, self._query_rows(feature))
        return tables

    def _query_rows(self, feature) -> np.ndarray:
        """`earlier_rows` of a feature of users or requests; of numbers the bins are the same."""
        if feature.kind == query_lib.NUMBER:
            return np.arange(feature.rows)
        return earlier_rows(*(vocabularies.values[feature.key] for vocabularies in (self._now, self._before)), 0)

    def _same_optimizer(self, reader) -> bool:
        """Whether the checkpoint has the slots of the new optimizer."""
        return self._saved["train"]["optimizer"] == self._config.train.optimizer and any(
            name.startswith("optimizer/") for name in shapes_in(reader))

    def _converted(self, reader, model, tables, prefix: str) -> str:
        """Writes the run's model and optimizer with tables of the new sizes; returns the checkpoint's prefix."""
        shapes = shapes_in(reader)
        kept = ("model/", "save_counter", *(["optimizer/"] if self._same_optimizer(reader) else []))
        names = [name for name in shapes if name.startswith(kept)]
        slots = slots_of(shapes, tables, model)
        of_key = {name: (variable, rows, False) for name, (variable, rows) in tables.items()}
        for name, (variable, rows) in tables.items():
            of_key |= {f"optimizer/_variables/{slot}": (variable, rows, True) for slot in slots[name]}
        parts = []
        for number, (name, key) in enumerate([(GRAPH, ""), *((key + VALUE, key) for key in names)]):
            value = reader.get_tensor(name)
            if key in of_key:
                value = self._rows(value, *of_key[key], key in (_IDS, _FACTORS))
            elif key == CONTENT:
                value = self._content(model)
            elif key == "optimizer/_iterations":
                value = np.zeros_like(value)
            parts.append(f"{prefix}_part-{number}")
            tf.raw_ops.SaveV2(prefix=parts[-1], tensor_names=[name], shape_and_slices=[""],
                              tensors=[tf.constant(value)])
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
            means, places = means_of_alike(rows, self._now.item_rows[:, 1:], earlier)
            rows[places] = means
        return rows

    def _content(self, model) -> np.ndarray:
        """The new data's dense vectors, as the model has them."""
        table = model.item_encoder.content
        return tf.nn.embedding_lookup(table, tf.range(self._now.schema.item_rows)).numpy()

    def _moved(self, fields: dict, shapes: dict) -> Optional[dict]:
        """`moved_queue`; None too where its entries were told apart by another --debias_context."""
        if (name := getattr(self._config.objective, "debias_context", "")) != run_config.context_of(self._saved):
            return None
        feature = query_lib.context_feature(name, self._now.schema.query_features) if name else None
        return moved_queue(fields, shapes, self._now.item_rows, self._item_rows,
                           moved_contexts(feature, self._before, self._now))

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
        np.savez(archive := io.BytesIO(), **moved)
        state.deserialize(archive.getvalue())
        return True
