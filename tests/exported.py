"""Small bundles of untrained models: an export's correctness does not depend on what was learnt."""
import atexit
import dataclasses
import functools
import tempfile

import numpy as np
import polars as pl

from clrec_tf.config import Config
from clrec_tf.config import ExportConfig
from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.data.schema import Feature
from clrec_tf.data.schema import Schema
from clrec_tf.models.build import build_model
from clrec_tf.publishing.export_bundle import export_bundle
from clrec_tf.publishing.export_bundle import TrainingFacts
from clrec_tf.retrieval.attributes import TEXTS
from clrec_tf.retrieval.bundle import Bundle
from clrec_tf.retrieval.bundle import load_bundle

ITEMS, BUCKETS, HISTORY, NOW, INTENTS = 60, 2, 4, 1_700_000_000, 6
KINDS = ("string", "int")  # with times, features and titles, cosine and attention; ids alone, dot product and mean
MULTI = "multi"  # a kind too: `INTENTS` intents per user, with integer ids, categories, times and dwell times
CONFIGS = {
    "string": Config.of(embedding_dim=8, max_history=HISTORY),
    "int": Config.of(embedding_dim=8, max_history=HISTORY, similarity="dot", user_encoder="mean", position="none"),
    MULTI: Config.of(model="multi_clrec", embedding_dim=8, max_history=HISTORY, num_intents=INTENTS)}
FEATURES = {"string": (Feature("brand", 9, 1, 8), Feature("tags", 7, 2, 6)), "int": (),
            MULTI: (Feature("category", 9, 1, 8),)}


@dataclasses.dataclass(frozen=True)
class World:
    """Arguments of `export_bundle`."""
    schema: Schema
    model: object
    catalogue: Catalogue
    users: EvaluationSet

    def export(self, export_dir, checkpoint_hash="c" * 64, feature_values=None, attributes=None, **settings) -> str:
        """Publishes a version."""
        settings = {"recall_k": 5} | settings
        facts = TrainingFacts(checkpoint_hash, 7, HISTORY, {"note": "untrained"})
        feature_values = feature_values or values_of(self.schema.features)
        return export_bundle(self.model, self.schema, self.catalogue, self.users, str(export_dir),
                             ExportConfig(**settings), facts, feature_values=feature_values, attributes=attributes)


def values_of(features) -> dict[str, list[str]]:
    """What the values of features are called: brand1, brand2, … by number."""
    return {feature.name: [f"{feature.name}{number}" for number in range(1, feature.vocabulary_size + 1)]
            for feature in features}


def original_id(kind: str, number: int):
    """Original id of item `number` ≥ 1."""
    return f"ä {number}" if kind == "string" else 1000 + 7 * number


@functools.cache
def world(kind: str, seed: int = 0) -> World:
    """A data set with popularity in no order, hash buckets in histories, repeated and long histories."""
    rng, text, timed = np.random.default_rng(5), kind == "string", kind != "int"
    schema = Schema(num_items=ITEMS, item_rows=1 + ITEMS + BUCKETS, features=FEATURES[kind], content_width=0,
                    id_type="string" if text else "int", has_timestamps=timed, num_users=50, total_clicks=999, split={},
                    settings={}, has_dwell=kind == MULTI)
    rows = np.arange(ITEMS + BUCKETS + 1)[:, None]
    if timed:
        rows = np.concatenate([rows, rng.integers(0, 7, (len(rows), schema.item_width - 1))], axis=1)
    ids = np.array([original_id(kind, number) for number in range(1, ITEMS + 1)], object if text else np.int64)
    titles = np.array([f"Title {number}" for number in range(1, ITEMS + 1)], object) if text else None
    catalogue = Catalogue(rows[1:ITEMS + 1], rng.integers(1, 20, ITEMS), ids, titles)
    splits = np.append(0, np.cumsum(rng.integers(0, 3 * HISTORY, 50)))
    history = rng.integers(1, len(rows), splits[-1])
    users = EvaluationSet(
        np.arange(50), history, splits, np.ones(50, np.int64), np.arange(51),
        history_features=rows[history, 1:] if timed else None,
        history_times=NOW - rng.integers(0, 10**6, splits[-1]) if timed else None,
        request_times=np.full(50, NOW) if timed else None,
        history_dwell=rng.integers(-1, 600, splits[-1]) if kind == MULTI else None)
    return World(schema, build_model(CONFIGS[kind], schema, seed=seed), catalogue, users)


@functools.cache
def bundle_folder(kind: str) -> str:
    """Folder of a published version; read only."""
    scratch = tempfile.TemporaryDirectory()
    atexit.register(scratch.cleanup)
    return world(kind).export(scratch.name, attributes=attributes() if kind == MULTI else None)


def attributes() -> pl.DataFrame:
    """Of the items 1, 2, … of the bundle `MULTI`: category c0, c1 or c2 by the number, and the number as price."""
    numbers = np.arange(1, ITEMS + 1)
    return pl.DataFrame({"category": [[f"c{number % 3}"] for number in numbers], "price": numbers.astype(float)},
                        {"category": TEXTS, "price": pl.Float64})


@functools.cache
def scann_folder(kind: str) -> str:
    """Folder of a version that searches by ScaNN's operations, of recall 1 on its held-out users; read only."""
    scratch = tempfile.TemporaryDirectory()
    atexit.register(scratch.cleanup)
    world(kind).export(f"{scratch.name}/stock", scann_export_dir=f"{scratch.name}/scann", target_recall=1.0)
    return f"{scratch.name}/scann/1"


@functools.cache
def loaded(kind: str) -> Bundle:
    """The same, loaded."""
    return load_bundle(bundle_folder(kind))
