"""What a checkpoint calls the variables of a model and of its optimizer."""
import tensorflow as tf

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
CONTENT = "model/item_encoder/content"


def shapes_in(reader) -> dict[str, list[int]]:
    """Name of each variable of a checkpoint -> its shape, of tables in shards the whole."""
    return {name.removesuffix(VALUE): shape for name, shape in reader.get_variable_to_shape_map().items()}


def shapes_of(model) -> dict[str, list[int]]:
    """Name of each variable, in shards or not, as a checkpoint has it -> its shape."""
    view, shapes, seen = tf.train.TrackableView(model), {}, set()

    def walk(path, node):
        if id(node) in seen:
            return
        seen.add(id(node))
        if hasattr(node, "assign") and hasattr(node, "shape"):
            shapes[path] = list(node.shape)
            return
        for name, child in view.children(node).items():
            walk(f"{path}/{name}", child)

    walk("model", model)
    return shapes


def slots_of(shapes: dict, tables: dict, model) -> dict[str, list[int]]:
    """Name of each table -> the numbers of its slots among the variables of a checkpoint's optimizer.

    Args:
      shapes: of the checkpoint's variables by name.
      tables: name -> (variable, …).
      model: whose trainable variables are in the optimizer's order; shards of one follow each other.
    """
    trained = [name for name in shapes if name.startswith("model/") and name != CONTENT]
    per_variable = sum(name.startswith("optimizer/_variables/") for name in shapes) // len(trained)
    owners = {id(part): name for name, (variable, _) in tables.items()
              for part in getattr(variable, "variables", [variable])}
    order = list(dict.fromkeys(owners.get(id(variable), id(variable)) for variable in model.trainable_variables))
    return {name: list(range(1 + per_variable * order.index(name), 1 + per_variable * (order.index(name) + 1)))
            for name in tables}
