"""`import clrec_tf`: cheap, callable in every order of imports, and beside a TensorFlow that is there already."""
import inspect
import os
import pathlib
import re
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


TRAINED = """
import clrec_tf as clrec
users = [number // 10 for number in range(600)]
clicks = {"user_id": users, "item_id": [7 * number % 40 for number in range(600)],
          "timestamp": [1700000000 + number for number in range(600)]}
import polars
data = clrec.prepare(polars.DataFrame(clicks))
run = clrec.train(data, epochs=1, user_encoder="gru4rec", batch_size=32, queue_size=64)
model = clrec.load(run.export())
print(run.history["loss"].to_list(), model.recommend([[3, 10]], k=3)["item"].to_list())
"""


@pytest.mark.slow
def test_a_keras_3_in_use_changes_nothing():
    """Trained, exported and served beside it, by the package's own name of Keras 2."""
    keras_3 = "import tensorflow as tf; assert tf.keras.layers.Dense(2)(tf.ones([1, 3])).shape == (1, 2)\n"
    is_3 = "assert 'tf_keras' not in tf.keras.layers.Layer.__module__"
    assert printed(keras_3 + TRAINED + is_3) == printed(TRAINED) != ""


def test_keras_2_is_used_by_name():
    """`tf.keras` is whatever the process chose."""
    for path in (ROOT / "clrec_tf").rglob("*.py"):
        if path.name not in ("doctor.py", "tfrs.py"):  # which look at it, and stand beside a library that uses it
            assert "tf.keras" not in re.sub("#.*", "", path.read_text(encoding="utf-8")), path
