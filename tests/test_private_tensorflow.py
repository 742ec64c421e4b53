"""Every private name of TensorFlow and Keras that is used: that it is there, and does what is relied upon."""
import ast
import gc
import inspect
import pathlib
import re
import types

from clrec_tf.system import private_tensorflow
import numpy as np
import tensorflow as tf
import tf_keras
from tensorflow.python.distribute import parameter_server_strategy_v2
from tensorflow.python.distribute import ps_values
from tensorflow.python.distribute.coordinator import cluster_coordinator
from tensorflow.python.distribute.coordinator import coordinator_context
from tensorflow.python.distribute.coordinator import values
from tensorflow.python.framework.ops import gradient_registry

PACKAGE = pathlib.Path(private_tensorflow.__file__).parents[1]
DEFINITIONS = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
OF_OTHERS = {"_unset_keepalive_if_required", "_cython"}  # of uvicorn and gRPC, in files of their own
GONE = f"TensorFlow {tf.__version__} has it no more; see clrec_tf/system/private_tensorflow.py for what breaks: "


def remote(value) -> values.RemoteValueImpl:
    """What a call that has ended gave."""
    result = values.RemoteValueImpl(None, None)
    result._set_values(value)
    return result


def variable_of(initial, workers):
    """A per-worker variable over workers that are no processes: each runs `initial` on this machine."""
    def make(creator):
        made = []
        for number in range(workers):
            with coordinator_context.with_dispatch_context(types.SimpleNamespace(worker_index=number)):
                made.append(remote(creator()))
        return values.PerWorkerValues(made)

    strategy = types.SimpleNamespace(_cluster_coordinator=types.SimpleNamespace(_create_per_worker_variables=make))
    return ps_values.PerWorkerVariable(strategy, tf.Variable, initial_value=initial, dtype=tf.int64)


def test_the_coordinator_asks_an_argument_for_its_value_at_the_worker_that_takes_it():
    argument = private_tensorflow.PerWorkerArgument(lambda worker: f"work of {worker}")
    select = getattr(cluster_coordinator, "_select_worker_slice", None)
    assert select, GONE + "coordinator/cluster_coordinator.py::_select_worker_slice"
    assert select(3, (argument, "plain")) == ("work of 3", "plain"), GONE + "PerWorkerValues._values"
    assert re.search(r"self\._values\[0\]", inspect.getsource(values.PerWorkerValues)), (
        GONE + "the type of PerWorkerValues, which is that of _values[0]")


def test_a_thread_knows_which_worker_it_dispatches_to():
    assert hasattr(coordinator_context, "get_current_dispatch_context"), GONE + "get_current_dispatch_context"
    assert private_tensorflow.dispatching_worker() is None
    context = coordinator_context.DispatchContext(types.SimpleNamespace(worker_index=2))
    assert hasattr(context, "worker_index"), GONE + "DispatchContext.worker_index"
    with coordinator_context.with_dispatch_context(types.SimpleNamespace(worker_index=2)):
        assert private_tensorflow.dispatching_worker() == 2


def test_a_variable_of_each_worker_is_made_by_an_argument_of_tf_variable():
    made, extended = [], parameter_server_strategy_v2.ParameterServerStrategyV2Extended
    strategy = types.SimpleNamespace(_create_per_worker_variable=lambda creator, **arguments: made.append(arguments))

    def creator(next_creator, **arguments):
        extended._create_variable(strategy, next_creator, **arguments)
        return tf.constant(0)

    with tf.variable_creator_scope(creator):
        private_tensorflow.per_worker_variable(lambda: tf.constant(1), (), tf.int32)
    assert len(made) == 1 and "per_worker_variable" not in made[0], GONE + "tf.Variable(per_worker_variable=True)"


def test_values_of_workers_and_the_chiefs_own_are_apart():
    worker = lambda: tf.constant(-1 if (number := private_tensorflow.dispatching_worker()) is None else number, tf.int64)
    variable = variable_of(worker, workers=3)
    for name in ("_maybe_create_per_worker_vars", "_per_worker_vars", "_coordinator_instance"):
        assert hasattr(variable, name), GONE + f"PerWorkerVariable.{name}"
    assert private_tensorflow.chiefs_own(variable).numpy() == -1
    assert [int(value._get_values()) for value in private_tensorflow.values_of_workers(variable)] == [0, 1, 2]


def test_a_call_says_whether_it_has_ended():
    result = values.RemoteValueImpl(None, None)
    assert hasattr(result, "_status_available_event"), GONE + "RemoteValueImpl._status_available_event"
    assert not private_tensorflow.has_ended(result)
    result._set_error(ValueError())
    assert private_tensorflow.has_ended(result) and private_tensorflow.has_ended(remote(1))
    assert hasattr(result, "_error"), GONE + "RemoteValueImpl._error"
    assert private_tensorflow.has_failed(result) and not private_tensorflow.has_failed(remote(1))


def test_keras_searches_sparse_gradients_for_repeated_rows_by_the_name_that_is_overridden():
    optimizer = tf_keras.optimizers.SGD(jit_compile=False)
    assert hasattr(optimizer, "_deduplicate_sparse_grad"), GONE + "Optimizer._deduplicate_sparse_grad"
    called = []
    optimizer._deduplicate_sparse_grad = lambda gradients: called.append(len(gradients)) or gradients
    table = tf.Variable([[1.0], [2.0]])
    optimizer.apply_gradients([(tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([1]), (2, 1)), table)])
    assert called == [1], GONE + "Optimizer._deduplicate_sparse_grad is called by apply_gradients"
    assert private_tensorflow.DistinctRows()._deduplicate_sparse_grad(called) is called


def test_adams_moments_are_those_of_the_variable():
    optimizer, tables = tf_keras.optimizers.Adam(jit_compile=False), [tf.Variable([0.0]), tf.Variable([0.0, 0.0])]
    optimizer.build(tables)
    for name in ("_index_dict", "_var_key", "_momentums", "_velocities"):
        assert hasattr(optimizer, name), GONE + f"Adam.{name}"
    gradients = [tf.constant([1.0]), tf.constant([3.0, 5.0])]
    optimizer.apply_gradients(zip(gradients, tables))
    for gradient, table in zip(gradients, tables):
        first, second = private_tensorflow.adam_moments(optimizer, table)
        np.testing.assert_allclose(first, 0.1 * gradient)
        np.testing.assert_allclose(second, 0.001 * gradient ** 2, rtol=1e-4)


@private_tensorflow.custom_gradient
def doubled(values):
    """Its own gradient is 7 and no 2."""
    return 2.0 * values, lambda upstream: 7.0 * upstream


def registered_gradients() -> set[str]:
    assert hasattr(gradient_registry, "_registry"), GONE + "ops.gradient_registry._registry"
    return set(gradient_registry._registry)


def test_a_custom_gradient_is_known_as_long_as_its_graph():
    before, values = registered_gradients(), tf.constant([1.0, 3.0])
    compiled = tf.function(doubled)
    loops = tf.function(lambda values: tf.while_loop(lambda i, _: i < 2, lambda i, x: (i + 1, doubled(x)),
                                                     [0, values])[1])

    @tf.function
    def within(values):
        with tf.GradientTape() as tape:
            tape.watch(values)
            result = doubled(values)
        return tape.gradient(result, values)

    for function, factor, gradient in ((compiled, 2, 7), (loops, 4, 49), (doubled, 2, 7)):
        with tf.GradientTape() as tape:
            tape.watch(values)
            result = function(values)
        assert result.numpy().tolist() == [factor, 3 * factor]
        assert tape.gradient(result, values).numpy().tolist() == [gradient] * 2
    assert within(values).numpy().tolist() == [7.0, 7.0]
    assert len(registered_gradients() - before) >= 3
    del function, compiled, loops, within, tape
    gc.collect()
    assert not registered_gradients() - before, GONE + "a gradient that tf.custom_gradient registers, of name in its op"


def own_names(path) -> set[str]:
    """Names that a file binds: functions, variables, and attributes of `self`."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return {node.name for node in nodes if isinstance(node, DEFINITIONS)} | {
        getattr(node, "id", getattr(node, "attr", "")) for node in nodes
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store)}


def private_names(path, own: set[str]) -> set[str]:
    """Private modules that a file imports, and private attributes that are not our own."""
    text = path.read_text(encoding="utf-8")
    modules = re.findall(r"\btensorflow\.python\b|\btf_keras\.src\b|__internal__", text)
    return set(modules) | set(re.findall(r"\.(_[a-z]\w*)", text)) - own - {"_exit"}


def test_no_other_module_uses_private_names():
    paths = [path for path in PACKAGE.rglob("*.py") if path.name != "private_tensorflow.py"]
    own = set().union(*map(own_names, paths))
    for path in paths:
        assert not private_names(path, own) - OF_OTHERS, path


def test_the_names_that_are_looked_for_are_found(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("import tensorflow.python.eager\nslots = optimizer._momentums[self._var_key(variable)]\n"
                    "self._own = 3\nprint(self._own, os._exit)\n")
    assert own_names(path) == {"slots", "_own"}
    assert private_names(path, own_names(path)) == {"tensorflow.python", "_momentums", "_var_key"}
