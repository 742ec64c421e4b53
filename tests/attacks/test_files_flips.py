"""One bit of one file is flipped: it is found when the file is read, mended, or proved to change nothing.

Files take turns, so that small ones are tried as often as large ones; byte and bit are drawn.
"""
import hashlib
import json
import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.catalogue import read_feature_values
from clrec_tf.data.catalogue import read_log_items
from clrec_tf.data.exposures import read_exposures
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import UserError
from clrec_tf.models.build import load_content
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.training.checkpoints import find_checkpoint
from clrec_tf.training.checkpoints import restore
from clrec_tf.training import run_config
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import set_up
from tests.attacks.outcomes import FULL
from tests.attacks.outcomes import Outcomes
from tests import exported
from tests import small_run
from tests.test_loss_training import impression_log

pytestmark = pytest.mark.attack
FLIPS = dict(data=80, checkpoint=50, bundle=70) if FULL else dict(data=30, checkpoint=14, bundle=26)
DAMAGED = (UserError, tf.errors.DataLossError)  # the latter becomes a `DataError` in the loop, which names the shard


def files(folder) -> list[pathlib.Path]:
    return sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file())


def flips(paths, count, seed):
    """`count` times (path, its content, the content with one bit flipped); the file holds the latter meanwhile."""
    rng = np.random.default_rng(seed)
    paths = [path for path in paths if path.stat().st_size]
    for number in range(count):
        path = paths[number % len(paths)]
        content = path.read_bytes()
        changed = bytearray(content)
        place, bit = int(rng.integers(len(content))), int(rng.integers(8))
        changed[place] ^= 1 << bit
        path.unlink()  # not written into: it may be a link's other name, or mapped
        path.write_bytes(changed)
        yield f"bit {bit} of byte {place} of {path.name}"
        path.unlink()
        path.write_bytes(content)


def attack(outcomes, paths, count, read, seed=0):
    """Flips bits; `read`() gives what counts of what the files say, and raises where they are damaged."""
    sound = read()
    for what in flips(paths, count, seed):
        try:
            outcomes.add("harmless" if read() == sound else "lost", what)
        except DAMAGED:
            outcomes.add("found")
        except Exception as error:  # pylint: disable=broad-exception-caught
            outcomes.add("lost", f"{what}: {error!r}")
    assert read() == sound


def digest(*values) -> str:
    """sha256 of arrays and of whatever else has a repr."""
    found = hashlib.sha256()
    for value in values:
        if isinstance(value, np.ndarray) and value.dtype != object:
            found.update(repr((value.shape, value.dtype)).encode() + np.ascontiguousarray(value).tobytes())
        else:
            found.update(repr(value.tolist() if isinstance(value, np.ndarray) else value).encode())
    return found.hexdigest()


@pytest.fixture(name="data_dir", scope="module")
def fixture_data_dir(tmp_path_factory):
    """With everything that a data folder may hold."""
    folder = tmp_path_factory.mktemp("flips")
    (folder / "shown.csv").write_text(impression_log(small_run.click_log()))
    vectors = np.random.default_rng(0).standard_normal((small_run.ITEMS, 6)).astype(np.float32)
    np.savez(folder / "v.npz", ids=np.arange(1, small_run.ITEMS + 1), vectors=vectors)
    return small_run.prepared(folder, impressions=str(folder / "shown.csv"), dense_features=str(folder / "v.npz"),
                              shard_records=32)


def test_data_folders(request, data_dir):
    def read():
        """All that training and evaluation take from the folder, by the functions they take it with."""
        schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
        records = [record for path in manifest.paths(data_dir, "train")
                   for record in tf.data.TFRecordDataset(path).as_numpy_iterator()]
        parts = [read_catalogue(data_dir, schema, manifest), *(read_evaluation_set(data_dir, split, schema, manifest)
                                                               for split in ("valid", "test"))]
        return digest(schema.hash(), json.dumps([manifest.schema_hash, repr(manifest)]), records, *(
            value for part in parts for value in vars(part).values()), load_content(data_dir, schema), np.array(
                read_exposures(data_dir, manifest, "")), read_feature_values(data_dir), read_log_items(data_dir, schema))

    with Outcomes(request, "bit flips in data folders") as outcomes:
        attack(outcomes, files(data_dir), FLIPS["data"], read)
    assert len(files(data_dir)) >= 12 and outcomes.counts["found"] > outcomes.counts["harmless"]


def test_checkpoints(request, data_dir, tmp_path):
    """A flaw of the latest checkpoint means the one before; nothing is restored that was not saved."""
    settings = small_run.config(data_dir, tmp_path / "run", epochs=1, validate_every=1.0)
    assert small_run.run(settings) == 0
    run, other = set_up(settings, LocalRuntime()), set_up(settings, LocalRuntime())
    folder = tmp_path / "run"

    def read():
        """The step that training goes on from and the state that it then has; the best model; and the settings."""
        prefix = run.checkpoints.restore_latest()
        best = find_checkpoint(str(folder), "best")
        restore(tf.train.Checkpoint(model=other.model), best).expect_partial().assert_existing_objects_matched()
        return ((prefix, digest(*(variable.numpy() for variable in run.model.variables + run.optimizer.variables),
                                vars(run.progress))),
                best, digest(*(variable.numpy() for variable in other.model.variables)),
                json.dumps(run_config.load(str(folder))))

    latest = find_checkpoint(str(folder), "latest")
    sound = read()
    os.rename(f"{latest}.index", f"{latest}.away")
    before = read()
    os.rename(f"{latest}.away", f"{latest}.index")
    assert before[0][0] != sound[0][0] == latest and before[1:] == sound[1:] and read() == sound
    paths = [path for path in files(folder) if path.parent.name in ("checkpoints", "best")]
    with Outcomes(request, "bit flips in checkpoints") as outcomes:
        for what in flips([*paths, folder / "config.json"], FLIPS["checkpoint"], 1):
            try:
                outcomes.add({sound: "harmless", before: "recovered"}.get(read(), "lost"), what)
            except DAMAGED:
                outcomes.add("found")
            except Exception as error:  # pylint: disable=broad-exception-caught
                outcomes.add("lost", f"{what}: {error!r}")
    assert read() == sound


def test_bundles(request, tmp_path):
    folder = tmp_path / "1"
    shutil.copytree(exported.bundle_folder("string"), folder)
    requests = np.array([[exported.original_id("string", number) for number in (3, 14, 15)]])
    times = dict(timestamps=np.full((1, 3), exported.NOW - 60), request_time=np.array([exported.NOW]))

    def read():
        """What the bundle answers, and what it says of itself."""
        bundle = load_bundle(str(folder))
        vectors = bundle.user_intents(requests, **times).vectors
        return digest(vectors, *bundle.index.search(vectors[0], 9), bundle.item_ids, bundle.titles, bundle.item_vectors(),
                      json.dumps(bundle.manifest, sort_keys=True))

    with Outcomes(request, "bit flips in bundles") as outcomes:
        attack(outcomes, files(folder), FLIPS["bundle"], read, seed=2)
    assert outcomes.counts["found"] >= FLIPS["bundle"] - 2
