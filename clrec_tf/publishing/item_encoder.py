"""The candidate tower for items without an id, as a SavedModel in the bundle: what features and dense vector alone say.

It has neither the table of ids nor the dense vectors of the catalogue. features.json beside it says which features the
tower takes, and the number of each value that was seen in training.
"""
import os
import shutil

from absl import logging
import numpy as np
import tensorflow as tf

from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.frequencies import CountsByFeature
from clrec_tf.data.schema import Feature
from clrec_tf.data.schema import Schema
from clrec_tf.errors import DataError
from clrec_tf.models.described import described_items
from clrec_tf.models.described import why_not
from clrec_tf.models.encode import CHUNK_ITEMS
from clrec_tf.retrieval.bundle_files import ENCODER_FOLDER
from clrec_tf.retrieval.bundle_files import FEATURES_FILE
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.system.graphs import graph_function
from clrec_tf.system.json_files import load_json
from clrec_tf.system.json_files import save_json
from clrec_tf.system.pattern_names import readable_name

_CHECKED = 1000  # items of the catalogue, at most, on which the written encoder is compared with the model
_AGREE = 1e-5


class ItemEncoder:
    """The encoder of a bundle, read from its folder.

    Args:
      folder: of the version.

    Attributes:
      features: in the order of the item row.
      numbers: feature -> value -> its number from 1.
      content_width: W of dense vectors, 0 where the tower reads none.
      id_dropout: --id_dropout of the training.
      null_values: words that prepare took for a missing value.
      counts: what features let expect, of models trained with --id_dropout; else None.

    Raises:
      DataError: it is damaged.
    """

    def __init__(self, folder: str):
        facts = load_json(os.path.join(folder, FEATURES_FILE), "export again", "export again")
        try:
            values = {feature["name"]: feature.pop("values") for feature in facts["features"]}
            self.features = tuple(Feature(**feature) for feature in facts["features"])
            self.content_width, self.id_dropout = int(facts["content_width"]), float(facts["id_dropout"])
            self.null_values, expected = tuple(facts["null_values"]), facts.get("expected")
            self.counts = expected and CountsByFeature(float(expected["average"]), tuple(
                np.array(factors, np.float64) for factors in expected["log_factors"]))
            with readable_name(os.path.join(folder, ENCODER_FOLDER)) as readable:
                self._model = tf.saved_model.load(readable)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, tf.errors.OpError) as error:
            raise DataError(f"{folder}/{ENCODER_FOLDER} cannot be loaded ({error}): export again") from error
        self.numbers = {name: {value: number for number, value in enumerate(known, 1)}
                        for name, known in values.items()}

    def __call__(self, rows: np.ndarray, content: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`models.described.described_items`: [N,C] int64 and [N,W] float32 -> (read, compared), float32."""
        parts = [self._model.encode(tf.constant(rows[start:start + CHUNK_ITEMS], tf.int64),
                                    tf.constant(content[start:start + CHUNK_ITEMS], tf.float32))
                 for start in range(0, len(rows), CHUNK_ITEMS)]
        return tuple(np.concatenate([part.numpy() for part in side]) for side in zip(*parts))


def write_item_encoder(folder: str, model, schema: Schema, catalogue: Catalogue, feature_values: dict[str, list[str]],
                       counts: np.ndarray) -> str:
    """Writes the encoder of a model into the folder of a new version, if it has one that gives the model's vectors.

    Args:
      folder: of the version.
      model: a `CLRec` or of its interface.
      schema: of its data.
      catalogue: some of whose items are encoded by both, to compare.
      feature_values: feature -> its values by number from 1.
      counts: [V], of which p̂ is made.

    Returns:
      Why there is none, and the remedy; "" where there is one.
    """
    reason = why_not(model)
    features = getattr(model.item_encoder, "features", ())
    unnumbered = [feature.name for feature in features
                  if len(feature_values.get(feature.name, ())) != feature.vocabulary_size]
    if not reason and unnumbered:
        reason = (f"the data set does not say which value of {unnumbered[0]} has which number, as those of older "
                  "versions: prepare the data again, train and export")
    if reason:
        return reason
    width = 0 if model.item_encoder.content is None else schema.content_width
    _save(os.path.join(folder, ENCODER_FOLDER), model, width)
    expected = None
    if model.id_dropout and features:  # as of the catalogue's cold items, see `evaluation.popularity`
        known = counts if catalogue.cold is None else np.where(catalogue.cold, catalogue.counts, counts)
        by_feature = CountsByFeature.of(known, catalogue.item_rows, features)
        expected = dict(average=by_feature.average, log_factors=[each.tolist() for each in by_feature.log_factors])
    save_json(os.path.join(folder, FEATURES_FILE), dict(
        features=[vars(feature) | dict(values=list(feature_values[feature.name])) for feature in features],
        content_width=width, id_dropout=model.id_dropout, expected=expected,
        null_values=schema.settings.get("null_values", PrepareConfig.null_values)))
    reason = _disagreement(ItemEncoder(folder), model, catalogue.item_rows[:_CHECKED, :model.item_encoder.item_width])
    if reason:
        logging.warning("update_index will not insert items into this bundle by their features: %s", reason)
        shutil.rmtree(os.path.join(folder, ENCODER_FOLDER))
    return reason


def _save(folder, model, content_width):
    rows = tf.TensorSpec([None, model.item_encoder.item_width], tf.int64, "rows")
    content = tf.TensorSpec([None, content_width], tf.float32, "content")
    saved = tf.Module(name="item_encoder")
    saved.encode = graph_function(lambda rows, content: described_items(model, rows, content), [rows, content])
    # Those that it reads alone: the table of ids and the catalogue's dense vectors stay behind.
    saved.read = list(saved.encode.get_concrete_function().graph.variables)
    tf.saved_model.save(saved, folder)


def _disagreement(encoder, model, rows) -> str:
    """In what the written encoder differs from the model on item rows [N,C] whose ids are hidden; "" in nothing."""
    content = np.zeros((len(rows), encoder.content_width), np.float32)
    if encoder.content_width:
        content = tf.gather(model.item_encoder.content, rows[:, 0]).numpy()
    rows = np.concatenate([-rows[:, :1], rows[:, 1:]], axis=1)
    towers = model.history_vectors, model.compared_items
    for tower, mine in zip(towers, encoder(rows, content)):
        theirs = tower(tf.constant(rows, tf.int64)).numpy()
        if mine.shape != theirs.shape or not np.allclose(mine, theirs, rtol=_AGREE, atol=_AGREE):
            return (f"the model's {tower.__name__} gives other vectors than encode_described and candidate_vectors "
                    "(models/described.py): make them agree and export again")
    return ""
