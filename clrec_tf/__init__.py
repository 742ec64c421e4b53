"""clrec_tf: contrastive training of candidate generators with a queue of clicked items as negatives.

Reading order: ``losses/contrastive.py`` (the equation), ``objectives/fifo_queue.py`` (where negatives come
from), ``models/clrec.py`` (encode -> enqueue -> loss), ``training/loop.py`` (one loop), ``train.py``.
"""
import os
import sys

__version__ = "0.1.0"

_REMEDY = (
    "clrec_tf needs Keras 2 (tf-keras), because Keras 3 does not support ParameterServerStrategy. "
    "Import clrec_tf before tensorflow, or set TF_USE_LEGACY_KERAS=1 in the environment."
)
if "tensorflow" in sys.modules and os.environ.get("TF_USE_LEGACY_KERAS") not in ("1", "True", "true"):
    raise ImportError(_REMEDY)
os.environ["TF_USE_LEGACY_KERAS"] = "1"
# TensorFlow's C++ side reports the plugins that its own wheel registers twice as errors; Python exceptions still come.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
