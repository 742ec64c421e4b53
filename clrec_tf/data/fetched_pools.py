"""Shards of a data set in a store, fetched a pool at a time inside the input pipeline of one process."""
import contextlib
import os

import tensorflow as tf

from clrec_tf.errors import UserError
from clrec_tf.stores import on_demand


class FetchedPools:
    """Fetches the files of one pool after the other, and lets go of those of the pool before.

    A pool is in memory when the next one is asked for, so its files are needed no longer.

    Args:
      data_dir: folder of the data set.
    """

    def __init__(self, data_dir: str):
        self._source, self._held = on_demand.source_of(data_dir), []

    def files(self, paths):
        """In a pipeline: [G] string, the same paths, when the files are there."""
        if self._source is None:
            return paths
        return tf.ensure_shape(tf.numpy_function(self._fetch, [paths], tf.string), [None])

    def _fetch(self, paths):
        names = [os.path.basename(path.decode()) for path in paths]
        try:
            self._source.take(names)
        except UserError as fault:
            self._source.fault = fault  # TensorFlow passes on its text alone
            raise
        held, self._held = self._held, names
        self._source.give_back(held)
        return paths


@contextlib.contextmanager
def faults_told(data_dir: str):
    """Context in which an error of TensorFlow that came from fetching is raised as the `UserError` that it was."""
    try:
        yield
    except tf.errors.OpError as error:
        source = on_demand.source_of(data_dir)
        if source is not None and source.fault is not None:
            raise source.fault from error
        raise
