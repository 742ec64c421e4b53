"""`import clrec_tf`: cheap, callable in every order of imports, and beside a TensorFlow that is there already."""
import inspect
import os
import pathlib
import subprocess
import sys

import pytest

import clrec_tf as clrec
from clrec_tf.api import data
from clrec_tf.api import model
from clrec_tf.api import run
from clrec_tf import prepare
from clrec_tf import train
from clrec_tf.config import Config
from clrec_tf.errors import UserError

ROOT = pathlib.Path(__file__).parents[1]


def printed(code: str) -> str:
    """What a fresh interpreter prints, to which nobody has said which Keras to use."""
    environ = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    return subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, env=environ, stderr=subprocess.DEVNULL,
                                   text=True).strip()


def test_importing_the_package_is_cheap():
    assert printed("import sys, clrec_tf; print({'tensorflow', 'polars', 'absl'} & {*sys.modules}, "
                   "{'prepare', 'train', 'load'} <= {*dir(clrec_tf)})") == "set() True"


def test_commands_modules_are_functions_of_the_library_too():
    for module, function in ((prepare, data.prepare), (train, run.train)):
        assert inspect.signature(module) == inspect.signature(function)
    assert clrec.prepare is prepare and clrec.train is train and clrec.load is model.load
    with pytest.raises(UserError, match="^clicks is of type int"):
        clrec.prepare(1)
    with pytest.raises(UserError, match="--stages=fly: choose from"):  # the command's own function
        train.run_stages(Config().but(stages=("fly",)))
    with pytest.raises(AttributeError, match="has no attribute 'fit'"):
        clrec.fit()


def test_tensorflow_may_be_imported_before():
    assert printed("import tensorflow as tf, clrec_tf; print(tf.keras.layers.Layer.__module__.split('.')[0])"
                   ) == "tf_keras"


def test_a_keras_3_that_is_in_use_is_refused_with_the_remedy():
    assert printed("import tensorflow as tf\nfrom_3 = tf.keras.layers.Layer\n"
                   "try:\n    import clrec_tf\nexcept ImportError as error:\n    print(error)").endswith(
        "Import clrec_tf before the first use of tf.keras, or set TF_USE_LEGACY_KERAS=1 in the environment")
