"""Every private name of TensorFlow and Keras that this package uses, each behind one function or class.

Seen in TensorFlow and tf-keras 2.17 and 2.20, of constraints.txt and constraints-tf220.txt. With another version run
tests/test_private_tensorflow.py first: it names what is gone, and here stands what breaks without it.
"""
import functools
import weakref
from typing import Callable
from typing import Optional

import tensorflow as tf
import tf_keras
from tensorflow.python.distribute.coordinator import coordinator_context
from tensorflow.python.distribute.coordinator.values import PerWorkerValues
from tensorflow.python.framework.ops import gradient_registry


class PerWorkerArgument(PerWorkerValues):
    """An argument of `ClusterCoordinator.schedule` whose value is asked for when a worker takes the call.

    Needs `PerWorkerValues._values`, which the coordinator indexes by the worker's number (`_select_worker_slice`), and
    by 0 when a call is scheduled, for the type by which the function is traced. Without it batches would be tied to
    calls before it is known which worker runs them, and no worker could have its own part of the data.

    Args:
      value_of: (number of a worker) -> its value.
    """

    def __init__(self, value_of: Callable):  # pylint: disable=super-init-not-called
        self._values, self._value_of = self, value_of

    def __getitem__(self, worker):
        return self._value_of(worker)


def dispatching_worker() -> Optional[int]:
    """The number of the worker that the calling thread dispatches to; None on any other thread.

    Needs `coordinator_context.get_current_dispatch_context().worker_index`. Without it the initial value of a
    `per_worker_variable` would be the same for all workers: their queues and samplers would draw alike, and what a
    checkpoint holds for each could not be given back to it.
    """
    context = coordinator_context.get_current_dispatch_context()
    return context.worker_index if context else None


def per_worker_variable(initial: Callable, shape, dtype) -> tf.Variable:
    """A variable that each worker has for itself; in the scope of a `ParameterServerStrategy` with a coordinator.

    Needs the undocumented argument `per_worker_variable` of `tf.Variable`. Without it queues and samplers would be
    variables on parameter servers, shared by all workers and read over the network in every step.
    """
    return tf.Variable(initial, shape=shape, dtype=dtype, trainable=False, per_worker_variable=True)


def values_of_workers(variable) -> list:
    """Of a `per_worker_variable` a `RemoteValue` for each worker, made if there are none yet.

    Needs `_maybe_create_per_worker_vars` and `_per_worker_vars` of `PerWorkerVariable`. Its public `read_all` fails as
    a whole where one worker is down; then no checkpoint could be saved until that worker is back.
    """
    variable._maybe_create_per_worker_vars()  # pylint: disable=protected-access
    return list(variable._per_worker_vars._values)  # pylint: disable=protected-access


def chiefs_own(variable) -> tf.Variable:
    """The chief's own copy of a `per_worker_variable`, on which functions on the chief's thread run.

    Needs `PerWorkerVariable._coordinator_instance`. Without it a queue that the chief has filled before training
    could not be handed to the workers.
    """
    return variable._coordinator_instance  # pylint: disable=protected-access


def has_ended(result) -> bool:
    """Whether a scheduled call is over, well or not; `result` is the `RemoteValue` that `schedule` gave.

    Needs `RemoteValueImpl._status_available_event`. Publicly one can only wait, with `get` or `fetch`; the chief could
    then neither take results in the order in which they come nor notice that none comes.
    """
    return result._status_available_event.is_set()  # pylint: disable=protected-access


def has_failed(result) -> bool:
    """Whether a scheduled call that is over was not well, which the coordinator does not try again.

    Needs `RemoteValueImpl._error`. Without it such a call could not be told from one whose worker was lost before the
    result was copied, which another worker takes; the chief would have to end in both cases.
    """
    return result._error is not None  # pylint: disable=protected-access


class DistinctRows:
    """Mixed into a Keras 2 optimizer whose sparse gradients have no row twice: none is searched for repeats.

    Needs that `Optimizer._deduplicate_sparse_grad` is what `apply_gradients` searches with. If it has another name the
    results are the same and a step is slower, by a `tf.unique` over each table's gradient.
    """

    def _deduplicate_sparse_grad(self, grads):
        return grads


def adam_moments(optimizer, variable) -> tuple[tf.Variable, tf.Variable]:
    """(m, v) of a variable that a Keras 2 Adam was built for.

    Needs `_index_dict`, `_var_key`, `_momentums` and `_velocities` of `tf_keras.optimizers.Adam`. Without them the lazy
    Adam would have to keep moments of its own, and checkpoints would have other names.
    """
    place = optimizer._index_dict[optimizer._var_key(variable)]  # pylint: disable=protected-access
    return optimizer._momentums[place], optimizer._velocities[place]  # pylint: disable=protected-access


def custom_gradient(function: Callable) -> Callable:
    """`tf.custom_gradient`, whose graphs end with the functions that they belong to.

    TensorFlow registers a gradient of its own for every call in a graph, for ever, and that holds the graph. So every
    training would leave its graphs in memory. Here the graph holds the gradient, and the registry only as long as the
    graph is there.

    Needs `ops.gradient_registry._registry`, name -> {"type": gradient}. If it has another form nothing but memory is
    lost: 15 MB with each training of a small model, 45 MB of Multi-CLRec's.
    """
    decorated = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*arguments):
        result = decorated(*arguments)
        if not tf.executing_eagerly():
            _held_by_graph(tf.nest.flatten(result)[0].op)
        return result

    return call


def _held_by_graph(operation):
    registered = gradient_registry._registry  # pylint: disable=protected-access
    name = operation.get_attr("_gradient_op_type").decode()
    gradient = registered[name]["type"]
    graph = operation.graph
    graph.clrec_gradients = [*getattr(graph, "clrec_gradients", ()), gradient]
    held = weakref.ref(gradient, lambda _: registered.pop(name, None))
    registered[name]["type"] = lambda *arguments: held()(*arguments)
