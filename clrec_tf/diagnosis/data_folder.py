"""A prepared data folder against its manifest and schema."""
import os
from typing import Iterator

import numpy as np

from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.exposures import read_exposures
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data.record_faults import record_faults
from clrec_tf.data import schema as schema_lib
from clrec_tf.diagnosis.findings import About
from clrec_tf.diagnosis.findings import Finding
from clrec_tf.diagnosis.sizes import shown
from clrec_tf.errors import DataError

REMEDY = "restore the files from a copy, or prepare the data again"
_MOST = 20  # files named; more are counted
_ROWS = 65_536


def check_data(about: About, data_dir: str, full: bool) -> Iterator[Finding]:
    """Compares every file with the manifest; in full their contents and every record with the schema too."""
    manifest = schema_lib.load_manifest(data_dir, verify="")
    files = [*manifest.checked_at_start(), *manifest.others]
    wrong = [error for shard in files if (error := _wrong(data_dir, shard, "sha256" if full else "size"))]
    for error in wrong[:_MOST]:
        yield about.fault(str(error), REMEDY)
    if len(wrong) > _MOST:
        yield about.fault(f"{len(wrong)} of {len(files)} files differ from the manifest, of which {_MOST} are named",
                          REMEDY)
    if wrong:
        return
    yield about.ok(f"{len(files)} files, {shown(sum(shard.bytes for shard in files))}, agree with the manifest by "
                   + ("sha256" if full else "size"))
    if full:
        yield from _records(about, data_dir, manifest)


def _wrong(data_dir, shard, verify):
    """The `DataError` of a file, None where it is as the manifest says."""
    try:
        schema_lib.check_shard(data_dir, shard, verify)
        return None
    except DataError as error:
        return error


def _records(about: About, data_dir: str, manifest: schema_lib.Manifest) -> Iterator[Finding]:
    """Reads everything as training, evaluation and export read it."""
    schema, sound = schema_lib.load_schema(data_dir), True
    for path, why in record_faults(data_dir, manifest, schema):
        sound = False
        yield about.fault(f"{path}: {why[:300]}", REMEDY)
    read_catalogue(data_dir, schema, manifest)
    for split in ("valid", "test"):
        if manifest.shards.get(split) and manifest.records(split):
            read_evaluation_set(data_dir, split, schema, manifest)
    if manifest.impressions:
        read_exposures(data_dir, manifest, "")
    if manifest.content:
        yield from _vectors(about, os.path.join(data_dir, manifest.content.name), schema)
    if sound:
        count = sum(manifest.records(split) for split in manifest.shards)
        yield about.ok(f"{count} records agree with the schema")


def _vectors(about: About, path: str, schema: schema_lib.Schema) -> Iterator[Finding]:
    """Whether the dense vectors of items have the schema's shape, and every number is finite."""
    vectors, expected = np.load(path, mmap_mode="r", allow_pickle=False), (schema.num_items + 1, schema.content_width)
    if vectors.shape != expected:
        yield about.fault(f"{path} has shape {vectors.shape}, the schema says {expected}", REMEDY)
    elif not all(np.isfinite(vectors[row:row + _ROWS]).all() for row in range(0, len(vectors), _ROWS)):
        yield about.fault(f"{path} holds numbers that are not finite", "correct --dense_features, and prepare again")
