"""Keeps a collapsed model from being published: one that gives everybody the same list."""
from absl import logging
import numpy as np

from clrec_tf.errors import UserError
from clrec_tf.evaluation import constant_lists
from clrec_tf.publishing.held_out import HeldOutUsers
from clrec_tf.settings.serving import ExportConfig


def check_lists(held_out: HeldOutUsers, item_vectors: np.ndarray, config: ExportConfig) -> None:
    """`UserError` where all held-out users tried get the same list, unless --allow_constant_lists; then a warning.

    Args:
      held_out: with the intents of the live model.
      item_vectors: float [V,d], as users are compared with them.
      config: of the export.
    """
    vectors = held_out.intents.vectors
    rows = constant_lists.sample_rows(len(vectors))
    histories = [tuple(item for item in row if item not in ("", -1))
                 for request in held_out.requests for row in request["history"].tolist()]
    same = constant_lists.same_for_everybody(
        vectors[rows][:, :held_out.served], item_vectors, [histories[row] for row in rows])
    if not same:
        return
    message = f"the model gives the same list to everybody: {same}"
    if not config.allow_constant_lists:
        raise UserError(f"{message}. It has collapsed, and nothing is exported: train again with a lower "
                        "--learning_rate or without extreme features, choose another --export_checkpoint, or give "
                        "--allow_constant_lists if that is what you want")
    logging.warning("%s, which --allow_constant_lists allows", message)
