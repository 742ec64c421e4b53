"""JSON logs of a command: printed lines, warnings, errors of threads and uncaught ones, each as one object."""
import json
import sys

import pytest

from clrec_tf.errors import UserError
from clrec_tf.settings.operations import OperationsConfig
from clrec_tf.settings.operations import run_id_of
from tests import forked

COMMAND = """
import logging as std_logging, sys, threading, warnings
import tensorflow as tf
from absl import logging
from clrec_tf import command_line
from clrec_tf.errors import UserError

def main(config):
    logging.warning("two\\nlines of %s", "text")
    print("warning: a", "printed", "line", file=sys.stderr)
    print("a part", end="", file=sys.stderr, flush=True)
    warnings.warn("an old way")
    tf.get_logger().warning("of TensorFlow")
    std_logging.getLogger("other").info("of another package")
    thread = threading.Thread(target=lambda: {}["absent"])
    thread.start()
    thread.join()
    print("a result")
    try:
        1 / 0
    except ZeroDivisionError:
        logging.exception("caught")
    raise {"user": UserError("--x=1: give\\n2"), "other": RuntimeError("broken \\udcff")}[config.paths.workdir]

command_line.run(main, uses=("paths",), usage="")
"""


def run(*flags):
    """(exit code, standard output, standard error) of the command."""
    done = forked.run([sys.executable, "-c", COMMAND, *flags], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("kind, code, severity, message", [
    ("user", 2, "ERROR", "error: --x=1: give\n2"), ("other", 1, "ERROR", "RuntimeError: broken \udcff")])
def test_every_line_is_an_object(kind, code, severity, message):
    ended, printed, log = run("--log_format=json", f"--workdir={kind}", "--run_id=a.b-1")
    lines = [json.loads(line) for line in log.splitlines()]
    assert (ended, printed) == (code, "a result\n")
    told = {line["message"]: line for line in lines}
    severities = {text: line["severity"] for text, line in told.items()}
    assert {"two\nlines of text": "WARNING", "warning: a printed line": "WARNING", "a part": "INFO", "caught": "ERROR",
            "of TensorFlow": "WARNING", "KeyError: 'absent'": "ERROR", message: severity}.items() <= severities.items()
    assert len(told) == len(lines) == 8 and any("an old way" in each for each in told)  # none twice, no other's INFO
    assert all(line["run_id"] == "a.b-1" and line["role"] == "local" and "step" not in line for line in lines)
    assert "1 / 0" in told["caught"]["exception"] or "ZeroDivisionError" in told["caught"]["exception"]
    assert told["two\nlines of text"]["source"] == "<string>:9"
    assert ("exception" in told[message]) == (kind == "other")


def test_flags_that_are_wrong_are_told_in_json_too_and_text_stays_text():
    ended, _, log = run("--log_format=json", "--epochs=x")
    assert ended == 2 and json.loads(log)["message"].startswith("error: flag --epochs=x")
    ended, _, log = run("--workdir=user")
    assert ended == 2 and log.endswith("error: --x=1: give\n2\n") and "] two\nlines of text" in log


def test_the_name_of_a_run_is_that_of_its_folder_wherever_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = run_id_of(dict(workdir="runs/shop", export_dir="exports", data_dir="data"))
    assert name.startswith("shop-") and len(name) == 13
    assert name == run_id_of(dict(workdir=str(tmp_path / "runs" / "shop"))) == run_id_of(dict(data_dir="runs/shop/"))
    assert run_id_of(dict(workdir="", data_dir="x/shop")) not in (name, "") and run_id_of(dict(workdir="")) == ""
    stored = [run_id_of(dict(workdir=f"s3://{path}")) for path in ("bucket/shop", "bucket/shop/", "other/shop")]
    assert stored[0] == stored[1] != stored[2] and stored[0].startswith("shop-")
    OperationsConfig(run_id=run_id_of(dict(workdir="a shop: ä")))  # is one that a person may give
    with pytest.raises(UserError, match="--run_id=a b: give at most 100 letters"):
        OperationsConfig(run_id="a b")
