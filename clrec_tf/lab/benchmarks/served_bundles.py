"""Bundles to be served: models trained briefly on the clicks of a `CatalogueSimulator`, and published as any are.

The item table begins with the simulator's vectors, which training for hours would have to find; the query towers begin
at random, and learn in a few hundred steps to place users among the items of their clusters.
"""
import dataclasses
import os
import time

from absl import logging
import numpy as np
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.config import ExportConfig
from clrec_tf.config import TrainConfig
from clrec_tf.data.schema import save_json
from clrec_tf.lab.benchmarks.served_catalogue import CatalogueSimulator
from clrec_tf.lab.benchmarks.served_catalogue import HELD_OUT
from clrec_tf.lab.benchmarks.served_catalogue import TRAINED
from clrec_tf.lab.benchmarks.workload import in_turn
from clrec_tf.models.build import build_model
from clrec_tf.objectives.base import ObjectiveInputs
from clrec_tf.publishing.export_bundle import export_bundle
from clrec_tf.publishing.export_bundle import TrainingFacts
from clrec_tf.retrieval import bundle as bundle_lib
from clrec_tf.retrieval.export_folder import complete_versions
from clrec_tf.retrieval import manifest as manifest_lib
from clrec_tf.retrieval.retriever import Retriever
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.user_requests import UserRequest
from clrec_tf.system.json_files import load_json
from clrec_tf.training.optimizers import build_optimizer
from clrec_tf.training import run_config
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.step import make_train_call

HISTORY, DIM, INTENTS = 50, 64, 4
# By K, the intents searched, which are all. CLRec reads ids alone: a category's vector would be added to the item's.
MODELS = {1: Config.of(embedding_dim=DIM, max_history=HISTORY, use_features=False),
          4: Config.of(model="multi_clrec", embedding_dim=DIM, max_history=HISTORY, num_intents=INTENTS,
                         queue="cached")}
TRAINING = TrainConfig(batch_size=256)
STEPS, HELD_OUT_USERS = 300, 1000
EXPORT = ExportConfig(recall_k=200, target_recall=0.95, export_users=500)
FACTS_FILE = "served_world.json"


def published(config: Config, intents: int, folder: str, steps: int = STEPS) -> dict:
    """Publishes a model in a folder, unless the same is there.

    Args:
      config: gives the number of items.
      intents: K of `MODELS`.
      folder: of this model's versions; made.
      steps: of training.

    Returns:
      Seconds and losses of training, seconds of export, what the bundle measured, and how near users are to items.
    """
    simulator = CatalogueSimulator(config.benchmark.benchmark_items, DIM)
    asked = dict(items=simulator.items, intents=intents, model=_model_facts(intents), steps=steps,
                 batch=TRAINING.batch_size, export=dataclasses.asdict(EXPORT), format=manifest_lib.FORMAT_VERSION)
    path = os.path.join(folder, FACTS_FILE)
    if os.path.exists(path):
        record = load_json(path, "", "remove it")
        if _same(record["asked"], asked) and complete_versions(folder):
            logging.info("%s holds this model already", folder)
            return record
    started = time.perf_counter()
    model, losses, counts = trained(simulator, MODELS[intents], steps)
    exporting = time.perf_counter()
    facts = TrainingFacts("0" * 64, steps, HISTORY, {"generated": asked})
    held_out = simulator.users(HELD_OUT_USERS, HISTORY, HELD_OUT)
    version = export_bundle(model, simulator.schema(), simulator.catalogue(counts),
                            simulator.evaluation_set(held_out), folder, EXPORT, facts)
    ended = time.perf_counter()
    bundle = bundle_lib.load_bundle(version)
    record = dict(asked=asked, training_s=round(exporting - started, 1), export_s=round(ended - exporting, 1),
                  losses=losses, index=bundle.manifest["index"], measured=bundle.manifest["measured"],
                  **nearness(simulator, bundle, held_out))
    logging.info("K=%d: %s", intents, {name: value for name, value in record.items() if name != "asked"})
    save_json(path, record)
    return record


def _model_facts(intents: int) -> dict:
    """Settings of model and loss, by name."""
    values = run_config.record(MODELS[intents])
    return values["model"] | values["loss"]


def trained(simulator: CatalogueSimulator, settings: Config, steps: int):
    """Trains with the library's own step.

    Returns:
      (model, losses of the first and the last tenth of the steps, training clicks by item [V]).
    """
    model, runtime = build_model(settings, simulator.schema(), seed=0), LocalRuntime()
    model.item_encoder.ids.table.assign(simulator.vectors())
    inputs = ObjectiveInputs(settings, model, runtime.local_variable, schema=simulator.schema())
    objective = settings.loss_class.make(inputs)
    optimizer = build_optimizer(TRAINING, steps)
    optimizer.build(model.trainable_variables)
    call = make_train_call(model, objective, optimizer, TRAINING.clip_norm, runtime)
    users = simulator.users(steps * TRAINING.batch_size, HISTORY, TRAINED)
    iterator = in_turn(batches(simulator, users, model.item_encoder.item_width))
    part, losses = steps // 10, []
    for _ in range(10):
        done = call(iterator, tf.constant(part, tf.int64))
        losses.append(round(float(done["loss"] / done["trained"]), 4))
    clicks = np.append(users.history.ravel(), users.target)
    return model, [losses[0], losses[-1]], np.bincount(clicks, minlength=simulator.items + 1)[1:]


def batches(simulator: CatalogueSimulator, users, width: int) -> dict[str, np.ndarray]:
    """Users [steps·B] as stacked batches, see ``workload``; of item rows the first `width` columns."""
    size = TRAINING.batch_size
    stacked = dict(history=simulator.rows(users.history)[..., :width], target=simulator.rows(users.target)[..., :width],
                   length=np.full(len(users.target), HISTORY, np.int64), user_id=np.arange(len(users.target)),
                   weight=np.ones(len(users.target), np.float32))
    return {name: values.reshape(-1, size, *values.shape[1:]) for name, values in stacked.items()}


def nearness(simulator: CatalogueSimulator, bundle, users) -> dict[str, float]:
    """Whether retrieval with the bundle finds what users click: of `HELD_OUT` users, 100 items each.

    Returns:
      `in_users_clusters`: share of the items that are of one of the user's clusters; `next_cluster_found`: share
      of users with an item of the next click's cluster among theirs; `best_score`: mean cosine of the first item.
    """
    retriever = Retriever(bundle, SearchOptions(k=100, exclude_seen=True))
    results, _ = retriever([UserRequest(None, history.tolist()) for history in users.history])
    retrieved = np.array([result.ids for result in results])
    clusters = simulator.cluster[retrieved - 1]
    own = (clusters[:, :, None] == users.clusters[:, None, :]).any(axis=2)
    following = (clusters == simulator.cluster[users.target - 1][:, None]).any(axis=1)
    return dict(in_users_clusters=round(float(own.mean()), 4), next_cluster_found=round(float(following.mean()), 4),
                best_score=round(float(np.mean([result.scores[0] for result in results])), 4))


def _same(written, asked):
    """Whether both are the same once written as JSON."""
    plain = lambda value: {key: plain(entry) for key, entry in value.items()} if isinstance(value, dict) else (
        list(value) if isinstance(value, tuple) else value)
    return plain(written) == plain(asked)
