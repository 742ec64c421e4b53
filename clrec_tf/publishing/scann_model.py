"""A second SavedModel, whose `retrieve` searches by ScaNN's operations: for servers that were built with them.

It has the signatures of the first (see `saved_model`) and answers alike, but for what the approximate search misses. A
stock server loads it but cannot run `retrieve` ("Op type not registered"), which the warm-up requests bring to light.
So it lies in a folder of its own, and `needs.json` says there what it needs. Nothing in it names a path.
"""
import os

from absl import logging
import numpy as np
import tensorflow as tf

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.models.dial import at_popularity
from clrec_tf.models.top_k import top_k
from clrec_tf.publishing.candidates import Candidates
from clrec_tf.publishing.graph_checks import foreign_ops
from clrec_tf.publishing.held_out import HeldOutUsers
from clrec_tf.publishing.saved_model import UserTower
from clrec_tf.publishing.scann_ops_index import among
from clrec_tf.publishing.scann_ops_index import best_of_each
from clrec_tf.publishing.scann_ops_index import nearest
from clrec_tf.publishing.scann_ops_index import OpsIndex
from clrec_tf.publishing.scann_ops_index import scann_ops
from clrec_tf.publishing.scann_ops_index import with_head
from clrec_tf.publishing import tf_serving
from clrec_tf.publishing.tower_parts import TowerParts
from clrec_tf.publishing.tuning import cheapest
from clrec_tf.publishing.tuning import usual_head
from clrec_tf.retrieval.bundle_files import MODEL_FILE
from clrec_tf.retrieval.bundle_files import NEEDS_FILE
from clrec_tf.retrieval.recall import as_good_as
from clrec_tf.retrieval.recall import Demand
from clrec_tf.retrieval.scann_index import SMALLEST_SCANN
from clrec_tf.settings.serving import ExportConfig
from clrec_tf.system.atomic import new_folder
from clrec_tf.system.json_files import save_json
from clrec_tf.system.pattern_names import readable_name
from clrec_tf.system.versions import versions

_SCORE_BYTES = 128 * 2**20


class ScannTower(UserTower):
    """A `UserTower` with a ScaNN index.

    Args:
      parts, ids_file: see `UserTower`.
      index: over the candidates.
    """

    def __init__(self, parts: TowerParts, ids_file: str, index: OpsIndex):
        super().__init__(parts, ids_file)
        self.index, self._parameters = index.searcher.serialize_to_module(), index.parameters
        self.head = tf.Variable(index.head.astype(np.int32), trainable=False, name="head")
        self.head_vectors = tf.Variable(index.head_vectors, trainable=False, name="head_vectors")

    def search(self, vectors, used, excluded, count):
        """One search for all intents of all users, see `UserTower`."""
        users, intents = tf.shape(used)[0], tf.shape(used)[1]
        # What is to be left out is fetched too, and more: then enough remain, and the merge by maximum is exact.
        wanted = tf.minimum(count + tf.shape(excluded)[1], self.items.shape[0])
        flat = tf.reshape(vectors, [-1, vectors.shape[2]])
        rows, scores = nearest(scann_ops().searcher_from_module(self.index), flat, wanted, self._parameters)
        rows, scores = with_head(rows, scores, flat, self.head, self.head_vectors)
        each = tf.shape(rows)[1]
        rows, scores = (tf.reshape(part, [users, intents * each]) for part in (rows, scores))
        columns = tf.repeat(tf.range(intents), each)[None] + tf.zeros_like(rows)
        counts = tf.repeat(used, each, axis=1) & (rows >= 0) & ~among(rows, tf.cast(excluded, tf.int32))
        return best_of_each(tf.where(counts, scores, float("-inf")), rows, columns, count)


def check_place(config: ExportConfig, export_dir: str, version: int, items: int) -> None:
    """`UserError` where `export_scann` will evidently fail, before the work that precedes it."""
    place = f"--scann_export_dir={config.scann_export_dir}"
    if items < SMALLEST_SCANN:
        raise UserError(f"{place}: ScaNN needs at least {SMALLEST_SCANN} items, the catalogue has {items}; leave the "
                        "flag out and serve the SavedModel of --export_dir, whose search is exact")
    if os.path.abspath(config.scann_export_dir) == os.path.abspath(export_dir):
        raise UserError(f"{place} is --export_dir: stock servers would take this version and fail; give another folder")
    if os.path.exists(os.path.join(config.scann_export_dir, str(version))):
        raise UserError(f"{place}: {version} exists there, and versions are never overwritten; choose another folder, "
                        "or another --export_version")
    scann_ops()


def export_scann(parts: TowerParts, held_out: HeldOutUsers, config: ExportConfig, version: int,
                 model_name: str, demand: Demand, default: float) -> dict:
    """Publishes the version into `scann_export_dir`, with all that a server reads, when it has proved itself.

    Args:
      parts: of the tower.
      held_out: users that recall is measured on.
      config: folder and recall demanded.
      version, model_name: as of the first SavedModel.
      demand: what the index has to hold.
      default: α of warm-up requests.

    Returns:
      What needs.json says.

    Raises:
      UserError: the recall is not reached, or the folder cannot be written; nothing is left then.
    """
    searched, count = parts.candidates.searched, held_out.served
    k = min(config.recall_k, len(searched))
    index = OpsIndex.build(searched, parts.model.similarity == "cosine", usual_head(len(searched)))
    index = cheapest(index, searched, held_out.queries(count), demand)
    folder, flag = os.path.join(config.scann_export_dir, str(version)), f"scann_export_dir={config.scann_export_dir}"
    with new_folder(folder, flag) as temporary:
        with parts.ids_file() as ids_file:
            ScannTower(parts, ids_file, index).save(temporary)
        recall = min(measured_recall(temporary, parts.candidates, held_out, count, k, popularity)
                     for popularity in demand.popularities)
        if recall < config.target_recall:
            raise DataError(f"the SavedModel of --scann_export_dir has recall@{k} = {recall:.4f}, --target_recall="
                            f"{config.target_recall} is asked; ask for less, or leave the flag out")
        tf_serving.write_warmup(temporary, model_name, parts.candidates, held_out, default)
        tf_serving.replay_warmup(temporary)
        needs = _needs(temporary, version, parts.checkpoint_hash, dict(recall=recall, recall_k=k))
        save_json(os.path.join(temporary, NEEDS_FILE), needs)
        tf_serving.write_configs(config.scann_export_dir, model_name, config.serving_base_path, flag)
    logging.info("published %s for servers with ScaNN's operations: recall@%d %.4f", folder, k, recall)
    return needs


def _needs(folder, version, checkpoint_hash, measured):
    have = versions()
    return dict(
        needs=f"TensorFlow Serving of TensorFlow {have['tensorflow']}, built with the operations of ScaNN "
              f"{have['scann']} (below); a stock server says \"Op type not registered\"",
        operations=foreign_ops(os.path.join(folder, MODEL_FILE)), version=version, checkpoint_hash=checkpoint_hash,
        measured=measured, versions=have)


def measured_recall(folder: str, candidates: Candidates, held_out: HeldOutUsers, count: int, k: int,
                    popularity: float = 0.0) -> float:
    """Share of the k best items that `retrieve`, loaded from the folder, finds for held-out users at a popularity.

    The best are those by the live model's vectors of the `count` heaviest intents and by NumPy; of equal scores at rank
    k any will do.
    """
    with readable_name(folder) as readable:
        retrieve = tf.saved_model.load(readable).signatures["retrieve"]
    place_of = {item: place for place, item in enumerate(candidates.original_ids.tolist())}
    items, start, hits = candidates.searched, 0, 0
    vectors = at_popularity(held_out.queries(count), popularity).reshape(-1, count, items.shape[1])
    step = max(1, _SCORE_BYTES // (4 * count * len(items)))
    for request in held_out.requests:
        history = request["history"]
        several = {"intents": np.full(len(history), count, np.int32)} if held_out.intents.vectors.shape[1] > 1 else {}
        inputs = request | several | dict(k=np.full(len(history), k, np.int32), exclude=history[:, :0],
                                          popularity=np.full(len(history), popularity, np.float32))
        ids = retrieve(**{name: tf.constant(value) for name, value in inputs.items()})["ids"].numpy()
        for first in range(0, len(history), step):
            rows = slice(start + first, start + min(first + step, len(history)))
            scores = (vectors[rows] @ items.T).max(axis=1)
            worst = top_k(scores, k)[1][:, -1]
            for user, bound, given in zip(scores, worst, ids[first:first + step].tolist()):
                places = {place_of.get(item.decode() if isinstance(item, bytes) else item, -1) for item in given} - {-1}
                hits += np.count_nonzero(as_good_as(user[list(places)], bound))
        start += len(history)
    return hits / (k * start)
