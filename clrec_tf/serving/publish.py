"""Export: encode the catalogue, write tower and index, load them again, prove them, and only then show them."""
import dataclasses
import datetime
import os

from absl import logging
import numpy as np
import tensorflow as tf

from clrec_tf.config import ExportConfig
from clrec_tf.data.schema import Schema, save_json
from clrec_tf.errors import DataError, UserError
from clrec_tf.evaluation.encode import Encoder
from clrec_tf.evaluation.evaluation_set import EvaluationSet
from clrec_tf.evaluation.examples import Catalogue
from clrec_tf.serving import bundle as bundle_lib
from clrec_tf.serving import manifest as manifest_lib
from clrec_tf.serving import scann_model, tf_serving
from clrec_tf.serving.candidates import Candidates, encode_candidates
from clrec_tf.serving.graph_checks import foreign_ops
from clrec_tf.serving.held_out import HeldOutUsers, held_out_users
from clrec_tf.serving.index import load_index, save_index, save_queries
from clrec_tf.serving.intents import concatenated, default_count, served
from clrec_tf.serving.publishing import new_version
from clrec_tf.serving.saved_model import TowerParts, UserTower
from clrec_tf.serving.tuning import build_index, recall_at_k
from clrec_tf.serving.withdrawals import carried_over

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
                  config: ExportConfig, facts: TrainingFacts, model_name: str = "clrec") -> str:
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

    Returns:
      The version's folder.

    Raises:
      UserError: the version exists, the folder cannot be written, or a check of the bundle fails; nothing is left then.
    """
    tf_serving.check_names(model_name, config.serving_base_path)
    version = _version(export_dir, config.export_version)
    if config.scann_export_dir:
        scann_model.check_place(config, export_dir, version, schema.num_items)
    encoder = Encoder(model, facts.max_history)
    candidates = encode_candidates(encoder, catalogue)
    held_out = held_out_users(encoder, candidates, users, schema.id_type, model.uses_time, model.uses_dwell,
                              config.export_users)
    queries = held_out.intents.heaviest(default_count(model.num_intents)).queries()
    k = min(config.recall_k, len(candidates.items))
    index = build_index(config.index, candidates.compared, queries, k, config.target_recall,
                        model.similarity == "cosine")
    parts = TowerParts(model, candidates, schema.id_type, facts.max_history, facts.checkpoint_hash)
    with new_version(export_dir, lambda: _version(export_dir, config.export_version)) as (temporary, version):
        folder = os.path.join(export_dir, str(version))
        index = carried_over(export_dir, index, candidates.original_ids, temporary, config.forget_updates)
        _write(temporary, parts, index)
        save_queries(os.path.join(temporary, bundle_lib.INDEX_FOLDER), queries)
        measured = _measure(temporary, candidates, held_out, k, config.target_recall)
        tf_serving.write_warmup(temporary, model_name, candidates, held_out)
        measured["warmup_requests"] = tf_serving.replay_warmup(temporary)
        manifest_lib.write_manifest(temporary, dict(
            version=version, created=datetime.datetime.now(datetime.timezone.utc).isoformat(),
            checkpoint_hash=facts.checkpoint_hash, step=facts.step, schema_hash=schema.hash(), id_type=schema.id_type,
            items=len(candidates.items), dimension=int(candidates.compared.shape[1]), similarity=model.similarity,
            max_history=facts.max_history, uses_time=model.uses_time, uses_dwell=model.uses_dwell,
            intents=model.num_intents, titles=candidates.titles is not None,
            index=dict(kind=index.kind, is_exact=index.is_exact, **index.parameters), measured=measured,
            run_config=facts.run_config))
        bundle_lib.load_bundle(temporary)
        if config.scann_export_dir:
            scann_model.export_scann(parts, held_out, config, version, model_name)
        tf_serving.write_configs(export_dir, model_name, config.serving_base_path, f"export_dir={export_dir}")
    logging.info("published %s: %d items, %s index, %s", folder, len(candidates.items), index.kind, measured)
    return folder


def _version(export_dir, wanted):
    if "://" in export_dir:
        raise UserError(f"--export_dir={export_dir}: bundles are published by renaming a folder, which object stores "
                        "cannot; export to a local folder and upload the version, saved_model.pb last")
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


def _measure(folder, candidates: Candidates, held_out: HeldOutUsers, k, target_recall) -> dict:
    """Checks the tower and the index as loaded from the folder, and says how good they are."""
    foreign = foreign_ops(os.path.join(folder, manifest_lib.MODEL_FILE))
    if foreign:
        raise DataError(f"the tower has ops that stock servers lack: {', '.join(foreign)}")
    predict = tf.saved_model.load(folder).signatures["serving_default"]
    users, count, width = held_out.intents.vectors.shape
    intents = concatenated([served(predict, request, count, count) for request in held_out.requests], count, width)
    pairs = zip(*(dataclasses.astuple(part.by_number()) for part in (intents, held_out.intents)))
    difference = float(np.max([np.abs(mine - live).max() for mine, live in pairs]))
    if not difference <= PARITY:  # NaN compares false
        raise DataError(f"loaded and live user vectors of {users} users differ by up to {difference}, more than "
                        f"{PARITY}: the model cannot be exported as it is")
    index, _ = load_index(os.path.join(folder, bundle_lib.INDEX_FOLDER))
    k = min(k, np.count_nonzero(index.live))  # without what stays withdrawn
    recall = recall_at_k(index, candidates.compared, intents.heaviest(default_count(count)).queries(), k, index.live)
    if recall < target_recall:
        raise DataError(f"the index as loaded has recall@{k} = {recall:.4f}, --target_recall={target_recall} is asked")
    return {"users": users, "parity_difference": difference, "recall": recall, "recall_k": k}
