"""Export: encode the catalogue, write tower and index, load them again, prove them, and only then show them."""
import dataclasses
import datetime
import os
from typing import Optional

from absl import logging
import numpy as np
import tensorflow as tf

from clrec_tf.config import ExportConfig
from clrec_tf.data.schema import Schema, save_json
from clrec_tf.errors import DataError, UserError
from clrec_tf.models.dial import Dial, grid, mean_log_count, with_coordinate
from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.models.encode import Encoder
from clrec_tf.publishing import scann_model
from clrec_tf.publishing import tf_serving
from clrec_tf.retrieval import bundle as bundle_lib
from clrec_tf.retrieval import manifest as manifest_lib
from clrec_tf.system.pattern_names import readable_name
from clrec_tf.publishing.candidates import Candidates, encode_candidates
from clrec_tf.publishing.graph_checks import foreign_ops
from clrec_tf.publishing.held_out import HeldOutUsers, held_out_users
from clrec_tf.retrieval.index import load_index, save_index, save_queries
from clrec_tf.retrieval.search_vectors import concatenated, default_count, served
from clrec_tf.publishing.list_check import check_lists
from clrec_tf.publishing.one_publisher import new_version
from clrec_tf.retrieval.recall import TUNED_STEP, Demand, demand_of, gated, measured
from clrec_tf.publishing.saved_model import UserTower
from clrec_tf.publishing.served_recall import recalls_through
from clrec_tf.publishing.tower_parts import TowerParts
from clrec_tf.publishing.tuning import build_index, usual_head
from clrec_tf.publishing.withdrawals import carried_over

PARITY = 1e-5  # largest difference between a loaded and a live user vector, or the weight of one


@dataclasses.dataclass(frozen=True)
class TrainingFacts:
    """Where the model comes from.

    Attributes:
      checkpoint_hash: sha256 over the checkpoint's files.
      step: training steps done.
      max_history: T.
      run_config: settings of the training run.
    """
    checkpoint_hash: str
    step: int
    max_history: int
    run_config: dict


def export_bundle(model, schema: Schema, catalogue: Catalogue, users: EvaluationSet, export_dir: str,
                  config: ExportConfig, facts: TrainingFacts, model_name: str = "clrec", dial: Optional[Dial] = None,
                  max_k: int = 1000) -> str:
    """Publishes a new version atomically.

    Args:
      model: a `CLRec`, or of its interface, with trained weights.
      schema: of its data.
      catalogue: of its data.
      users: held-out users, on whom parity and recall are measured.
      export_dir: folder of versions.
      config: version, kind of index, recall demanded.
      facts: about the training run.
      model_name: by which servers offer it.
      dial: popularities offered, and the default; None: of the catalogue's clicks, 0 by default.
      max_k: most results that a service gives a user, up to which the index is tuned.

    Returns:
      The version's folder.

    Raises:
      UserError: the version exists, the folder cannot be written, or a check of the bundle fails; nothing is left then.
    """
    tf_serving.check_names(model_name, config.serving_base_path)
    version = _version(export_dir, config.export_version)
    if config.scann_export_dir:
        scann_model.check_place(config, export_dir, version, schema.num_items)
    dial = dial or Dial(catalogue.counts)
    encoder = Encoder(model, facts.max_history)
    candidates = encode_candidates(encoder, catalogue, dial.counts, model.temperature)
    held_out = held_out_users(encoder, candidates, users, schema.id_type, model.uses_time, model.uses_dwell,
                              config.export_users)
    check_lists(held_out, candidates.compared, config)
    queries = held_out.queries(default_count(model.num_intents))
    popularities = grid(dial.lowest, dial.highest, TUNED_STEP)
    demand = demand_of(len(candidates.items), (config.recall_k, max_k), popularities, config.target_recall)
    index = build_index(config.index, candidates.searched, queries, demand, model.similarity == "cosine",
                        usual_head(len(candidates.items)))
    parts = TowerParts(model, candidates, schema.id_type, facts.max_history, facts.checkpoint_hash,
                       (dial.lowest, dial.highest))
    with new_version(export_dir, lambda: _version(export_dir, config.export_version)) as (temporary, version):
        folder = os.path.join(export_dir, str(version))
        index = carried_over(export_dir, index, candidates.original_ids, temporary, config.forget_updates)
        live = demand_of(int(np.count_nonzero(index.live)), (config.recall_k, max_k), popularities, config.target_recall)
        _write(temporary, parts, index)
        save_queries(os.path.join(temporary, bundle_lib.INDEX_FOLDER), queries)
        found = _measure(temporary, candidates, held_out, live, config.recall_k)
        tf_serving.write_warmup(temporary, model_name, candidates, held_out, dial.default)
        found["warmup_requests"] = tf_serving.replay_warmup(temporary)
        manifest = dict(
            version=version, created=datetime.datetime.now(datetime.timezone.utc).isoformat(),
            checkpoint_hash=facts.checkpoint_hash, step=facts.step, schema_hash=schema.hash(), id_type=schema.id_type,
            items=len(candidates.items), dimension=int(candidates.compared.shape[1]), similarity=model.similarity,
            max_history=facts.max_history, uses_time=model.uses_time, uses_dwell=model.uses_dwell,
            intents=model.num_intents, titles=candidates.titles is not None, popularity=dial.default,
            dial=dict(lowest=dial.lowest, highest=dial.highest, temperature=model.temperature,
                      mean_log_count=mean_log_count(dial.counts), source=dial.source, **dial.chosen_by),
            index=dict(kind=index.kind, is_exact=index.is_exact, **index.parameters), measured=found,
            run_config=facts.run_config)
        manifest_lib.write_manifest(temporary, manifest)
        found |= recalls_through(bundle_lib.load_bundle(temporary), held_out, live)
        manifest_lib.write_manifest(temporary, manifest)
        if config.scann_export_dir:
            scann_model.export_scann(parts, held_out, config, version, model_name, demand, dial.default)
        tf_serving.write_configs(export_dir, model_name, config.serving_base_path, f"export_dir={export_dir}")
    logging.info("published %s: %d items, %s index, recall@%d at least %.4f at every popularity from %g to %g, %g by "
                 "default", folder, len(candidates.items), index.kind, found["recall_k"], found["recall"], dial.lowest,
                 dial.highest, dial.default)
    return folder


def _version(export_dir, wanted):
    if os.path.exists(os.path.join(export_dir, manifest_lib.MODEL_FILE)):
        raise UserError(f"--export_dir={export_dir} is itself a version: give the folder that holds it")
    names = os.listdir(export_dir) if os.path.isdir(export_dir) else []
    taken = [int(name) for name in names if manifest_lib.is_number(name)]
    if wanted in taken:
        raise UserError(f"--export_version={wanted}: {export_dir}/{wanted} exists, and versions are never overwritten; "
                        "choose another, or 0 for the next")
    return wanted or max(taken, default=0) + 1


def _write(folder, parts: TowerParts, index):
    """Everything but the manifest."""
    candidates = parts.candidates
    with parts.ids_file() as ids_file:
        UserTower(parts, ids_file).save(folder)
    np.save(os.path.join(folder, manifest_lib.IDS_FILE), candidates.original_ids, allow_pickle=False)
    if candidates.titles is not None:
        save_json(os.path.join(folder, bundle_lib.TITLES_FILE), candidates.titles.tolist())
    save_index(os.path.join(folder, bundle_lib.INDEX_FOLDER), index, parts.checkpoint_hash)


def _measure(folder, candidates: Candidates, held_out: HeldOutUsers, demand: Demand, recall_k: int) -> dict:
    """Checks the tower and the index as loaded from the folder, and says how good they are."""
    foreign = foreign_ops(os.path.join(folder, manifest_lib.MODEL_FILE))
    if foreign:
        raise DataError(f"the tower has ops that stock servers lack: {', '.join(foreign)}")
    with readable_name(folder) as readable:
        predict = tf.saved_model.load(readable).signatures["serving_default"]
    users, count, width = held_out.intents.vectors.shape
    intents = concatenated([served(predict, request, count, count) for request in held_out.requests], count, width + 1)
    live = dataclasses.replace(held_out.intents, vectors=with_coordinate(held_out.intents.vectors, 0.0))
    pairs = zip(*(dataclasses.astuple(part.by_number()) for part in (intents, live)))
    difference = float(np.max([np.abs(mine - theirs).max() for mine, theirs in pairs]))
    if not difference <= PARITY:  # NaN compares false
        raise DataError(f"loaded and live user vectors of {users} users differ by up to {difference}, more than "
                        f"{PARITY}: the model cannot be exported as it is")
    index, _ = load_index(os.path.join(folder, bundle_lib.INDEX_FOLDER))
    found = measured(index, candidates.searched, intents.heaviest(default_count(count)).queries(), demand, index.live)
    return {"users": users, "parity_difference": difference} | gated(found, demand, recall_k, "the index as loaded")
