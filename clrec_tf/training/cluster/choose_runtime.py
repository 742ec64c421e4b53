"""Where a training runs: on this machine, or from the chief of the cluster that TF_CONFIG describes."""
from clrec_tf.config import Config
from clrec_tf.training.cluster import roles
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.threads import set_threads


def choose_runtime(config: Config):
    """A `LocalRuntime`, or where TF_CONFIG is set the chief's `ClusterRuntime`; TensorFlow's threads are set first.

    Raises:
      UserError: TF_CONFIG is not what it should be.
      ClusterError: roles of the cluster are absent or do not answer.
    """
    set_threads(config.train)
    task = roles.task_from_environment()
    if task is None:
        return LocalRuntime()
    from clrec_tf.training.cluster.cluster_runtime import ClusterRuntime  # pylint: disable=import-outside-toplevel
    return ClusterRuntime(task, config)
