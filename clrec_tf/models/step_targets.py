"""Which targets of a batch of windows a training step asks for: all, unless the user encoder hides what is asked for."""
import tensorflow as tf

OF_TARGETS = ("target", "row", "weight", "user_id", "query")  # fields of a batch of windows that have one entry each


def with_step_targets(batch: dict, model) -> dict:
    """The batch as a step trains it, see ``two_tower``; losses and queues see nothing of targets that are left out.

    Args:
      batch: of windows, or of single targets, which are never left out.
      model: a `TwoTower`.
    """
    if "row" not in batch or not model.user_encoder.hides_targets:
        return batch
    length = tf.shape(batch["history"], batch["row"].dtype)[1]
    window, place = batch["row"] // length, batch["row"] % length
    kept = model.user_encoder.step_targets(place == tf.gather(batch["length"], window) - 1, batch["seed"])
    return {name: tf.boolean_mask(part, kept) if name in OF_TARGETS else part for name, part in batch.items()}
