"""Items that their features and dense vector alone describe, as both towers read them, without the table of ids."""
import tensorflow as tf

from clrec_tf.models.two_tower import TwoTower


def why_not(model: TwoTower) -> str:
    """Why a model cannot encode an item without its id, and what would let it; "" where it can."""
    if not model.candidate_features:
        return "its candidate tower reads ids alone: train with --candidate_features and export again"
    if not model.describes_items:
        return ("it reads neither features nor dense vectors of items: prepare them (--feature_columns, "
                "--dense_features), train with --use_features and export again")
    if not hasattr(model.item_encoder, "encode_described"):
        return (f"its item encoder, {type(model.item_encoder).__name__}, has no method encode_described: add one and "
                "export again")
    return ""


def described_items(model: TwoTower, rows: tf.Tensor, content: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Both towers' vectors of items without an id.

    Args:
      model: of which `why_not` says nothing.
      rows: [N,C] int64 item rows; the ids are negative, whatever they are.
      content: [N,W] float32 dense vectors, zeros where an item has none; W is 0 where the model reads none.

    Returns:
      (what `TwoTower.history_vectors` gives of such items, [N,history_width]; what `TwoTower.compared_items` does,
      [N,D + `intent_coordinates`]).
    """
    read = model.item_encoder.encode_described(rows, content)
    compared = model.candidate_vectors(read)
    gates = model.item_encoder.dim + model.intent_coordinates - compared.shape[1]  # of which every item has a 1
    return read, tf.concat([compared, tf.ones([tf.shape(rows)[0], gates])], axis=1)
