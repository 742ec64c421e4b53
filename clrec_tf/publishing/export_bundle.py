"""Export: encode the catalogue, write tower and index, load them again, prove them, and only then show them."""
import dataclasses
import datetime
import os
from typing import Optional

from absl import logging
import numpy as np
import polars as pl

from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.data.schema import Schema
from clrec_tf.errors import UserError
from clrec_tf.models.dial import Dial
from clrec_tf.models.dial import grid
from clrec_tf.models.dial import mean_log_count
from clrec_tf.models.encode import Encoder
from clrec_tf.publishing.bundle_checks import check_tower_and_index
from clrec_tf.publishing.candidates import encode_candidates
from clrec_tf.publishing.deletions import without_deleted
from clrec_tf.publishing.held_out import held_out_users
from clrec_tf.publishing.item_encoder import write_item_encoder
from clrec_tf.publishing.list_check import check_lists
from clrec_tf.publishing.one_publisher import new_version
from clrec_tf.publishing.saved_model import UserTower
from clrec_tf.publishing import scann_model
from clrec_tf.publishing.served_recall import recalls_through
from clrec_tf.publishing import tf_serving
from clrec_tf.publishing.tower_parts import TowerParts
from clrec_tf.publishing.tuning import build_index
from clrec_tf.publishing.tuning import usual_head
from clrec_tf.retrieval.attributes import Attributes
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.bundle_files import IDS_FILE
from clrec_tf.retrieval.bundle_files import INDEX_FOLDER
from clrec_tf.retrieval.bundle_files import MODEL_FILE
from clrec_tf.retrieval.bundle_files import TITLES_FILE
from clrec_tf.retrieval.export_folder import taken_versions
from clrec_tf.retrieval.index import Index
from clrec_tf.retrieval.manifest import write_manifest
from clrec_tf.retrieval.query_values import QueryValues
from clrec_tf.retrieval.recall import demand_of
from clrec_tf.retrieval.recall import TUNED_STEP
from clrec_tf.retrieval.saved_index import save_index
from clrec_tf.retrieval.saved_index import save_queries
from clrec_tf.settings.serving import ExportConfig
from clrec_tf.system.json_files import save_json


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
                  max_k: int = 1000, feature_values: Optional[dict[str, list[str]]] = None,
                  query: QueryValues = QueryValues(), encoder: Optional[Encoder] = None,
                  attributes: Optional[pl.DataFrame] = None) -> str:
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
      query: what the model reads beside clicked items and times.
      feature_values: feature -> its values by number from 1, by which items are inserted later; None: not known.
      encoder: of the model, where one is made already.
      attributes: of the items by row of the catalogue, see `item_attributes`, that bundles carry; None: none.

    Returns:
      The version's folder.

    Raises:
      UserError: the version exists, the folder cannot be written, or a check of the bundle fails; nothing is left then.
    """
    _check_before_work(export_dir, config, model_name, schema.num_items)
    dial = dial or Dial(catalogue.counts)
    encoder = encoder or Encoder(model, facts.max_history, catalogue.cold)
    candidates = encode_candidates(encoder, catalogue, dial.counts, model.temperature, config.cold_items)
    if config.cold_items and catalogue.cold is not None and catalogue.cold.any() and not model.id_dropout:
        logging.warning("%d of %d items have no training click, and without --id_dropout nothing was learned of their "
                        "vectors: give --nocold_items, or train with --id_dropout", catalogue.cold.sum(),
                        len(catalogue.cold))
    held_out = held_out_users(encoder, candidates, users, schema.id_type, config.export_users, query)
    check_lists(held_out, candidates.compared, config)
    demand = lambda items: demand_of(int(items), (config.recall_k, max_k), grid(dial.lowest, dial.highest, TUNED_STEP),
                                     config.target_recall)
    of_all, queries = demand(len(candidates.items)), held_out.queries(model.served_intents)
    index = build_index(config.index, candidates.searched, queries, of_all, model.similarity == "cosine",
                        usual_head(len(candidates.items)))
    parts = TowerParts(model, candidates, schema.id_type, facts.max_history, facts.checkpoint_hash,
                       (dial.lowest, dial.highest), query)
    with new_version(export_dir, lambda: _version(export_dir, config.export_version)) as (temporary, version):
        index = without_deleted(export_dir, index, candidates.original_ids, temporary, config.forget_updates)
        of_live = demand(np.count_nonzero(index.live))
        _write(temporary, parts, index, queries)
        if attributes is not None:
            Attributes(attributes[candidates.item_numbers - 1]).save(temporary)
        why_not = write_item_encoder(temporary, model, schema, catalogue, feature_values or {}, dial.counts)
        measured = check_tower_and_index(temporary, candidates, held_out, of_live, config.recall_k)
        tf_serving.write_warmup(temporary, model_name, candidates, held_out, dial.default)
        measured["warmup_requests"] = tf_serving.replay_warmup(temporary)
        about = _manifest(version, parts, schema, dial, index, facts) | dict(no_item_encoder=why_not)
        write_manifest(temporary, about | dict(measured=measured))
        measured |= recalls_through(load_bundle(temporary), held_out, of_live)
        write_manifest(temporary, about | dict(measured=measured))
        if config.scann_export_dir:
            scann_model.export_scann(parts, held_out, config, version, model_name, of_all, dial.default)
        tf_serving.write_configs(export_dir, model_name, config.serving_base_path, f"export_dir={export_dir}")
    folder = os.path.join(export_dir, str(version))
    logging.info("published %s: %d items, %s index, recall@%d at least %.4f at every popularity from %g to %g, %g by "
                 "default%s", folder, len(candidates.items), index.kind, measured["recall_k"], measured["recall"],
                 dial.lowest, dial.highest, dial.default,
                 f" ({dial.chosen_by['at_border']})" if "at_border" in dial.chosen_by else "")
    return folder


def _check_before_work(export_dir, config, model_name, items):
    """`UserError` where the export will evidently fail, before the catalogue is encoded."""
    tf_serving.check_names(model_name, config.serving_base_path)
    version, newest = _version(export_dir, config.export_version), max(taken_versions(export_dir), default=0)
    if version < newest:
        logging.warning("--export_version=%d is lower than version %d of --export_dir=%s, which stays the one that is "
                        "read and served", version, newest, export_dir)
    if config.scann_export_dir:
        scann_model.check_place(config, export_dir, version, items)


def _version(export_dir, asked):
    """The number asked for, or for 0 the next one."""
    if os.path.exists(os.path.join(export_dir, MODEL_FILE)):
        raise UserError(f"--export_dir={export_dir} is itself a version: give the folder that holds it")
    taken = taken_versions(export_dir)
    if asked in taken:
        raise UserError(f"--export_version={asked}: {export_dir}/{asked} exists, and versions are never overwritten; "
                        "choose another, or 0 for the next")
    return asked or max(taken, default=0) + 1


def _write(folder, parts: TowerParts, index: Index, queries):
    """Everything but the manifest and what servers read beside the tower."""
    candidates = parts.candidates
    with parts.ids_file() as ids_file:
        UserTower(parts, ids_file).save(folder)
    np.save(os.path.join(folder, IDS_FILE), candidates.original_ids, allow_pickle=False)
    if candidates.titles is not None:
        save_json(os.path.join(folder, TITLES_FILE), candidates.titles.tolist())
    parts.query.save(folder)
    save_index(os.path.join(folder, INDEX_FOLDER), index, parts.checkpoint_hash)
    save_queries(os.path.join(folder, INDEX_FOLDER), queries)


def _manifest(version, parts: TowerParts, schema: Schema, dial: Dial, index: Index, facts: TrainingFacts) -> dict:
    """What the manifest says, without what was measured."""
    model, candidates = parts.model, parts.candidates
    return dict(
        version=version, created=datetime.datetime.now(datetime.timezone.utc).isoformat(),
        checkpoint_hash=facts.checkpoint_hash, step=facts.step, schema_hash=schema.hash(), id_type=schema.id_type,
        items=len(candidates.items), dimension=int(candidates.compared.shape[1]) - model.intent_coordinates,
        intent_coordinates=model.intent_coordinates, similarity=model.similarity,
        max_history=facts.max_history, uses_time=model.uses_time, uses_dwell=model.uses_dwell,
        uses_events=bool(parts.query.events), query_inputs=list(parts.query.inputs),
        knows_strangers=model.knows_strangers, intents=model.num_intents, served_intents=model.served_intents,
        titles=candidates.titles is not None, popularity=dial.default,
        dial=dict(lowest=dial.lowest, highest=dial.highest, temperature=model.temperature,
                  mean_log_count=mean_log_count(dial.counts), source=dial.source, **dial.chosen_by),
        index=dict(kind=index.kind, is_exact=index.is_exact, **index.parameters), run_config=facts.run_config)
