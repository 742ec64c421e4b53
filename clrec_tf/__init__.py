"""clrec_tf: contrastive training of candidate generators with a queue of clicked items as negatives.

As a library: `import clrec_tf as clrec`, then `clrec.prepare`, `clrec.train` and `clrec.load` (docs/python.md). Their
work begins when they are called: importing the package imports neither TensorFlow nor polars.

Reading order: ``losses/contrastive.py`` (the equation), ``objectives/fifo_queue.py`` (where negatives come
from), ``models/clrec.py`` (encode -> enqueue -> loss), ``training/loop.py`` (one loop), ``train.py``.
"""
import importlib
import os
import typing

if typing.TYPE_CHECKING:
    from clrec_tf.api.data import prepare
    from clrec_tf.api.model import load
    from clrec_tf.api.run import train

__version__ = "0.1.0"

# What the library offers -> the module that has it; prepare and train are commands too, whose modules can be called.
_OFFERED = dict(prepare="clrec_tf.prepare", train="clrec_tf.train", load="clrec_tf.api.model")

# The package's layers are tf_keras', whatever tf.keras is; TensorFlow Recommenders' are tf.keras', and must be the same.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
# TensorFlow's C++ side reports the plugins that its own wheel registers twice as errors; Python exceptions still come.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def __getattr__(name):
    if name not in _OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_OFFERED[name])
    return module if module.__name__ == f"{__name__}.{name}" else getattr(module, name)


def __dir__():
    return sorted({*globals(), *_OFFERED})
