"""The console command: its list of commands, their help, words and exit codes, as by python -m."""
import pathlib
import re
import subprocess
import sys

import pytest

from clrec_tf import console
from tests import forked

ROOT = pathlib.Path(__file__).parents[1]


def run(*arguments):
    done = forked.run([sys.executable, "-m", *arguments], capture_output=True, text=True, cwd=ROOT, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_help_lists_every_command_with_a_line():
    runnable = {path.stem for path in (ROOT / "clrec_tf").glob("*.py")
                if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")} - {"console"}
    code, shown, _ = run("clrec_tf.console", "--help")
    lines = dict(re.findall(r"^  (\w+) +(.+)$", shown, re.MULTILINE))
    assert code == 0 and lines.keys() == runnable == console.commands().keys() and max(map(len, lines.values())) < 100
    assert lines["train"] == "trains CLRec on a prepared data set, or with --stages the whole way from log to index."
    assert run("clrec_tf.console")[1] == shown


@pytest.mark.parametrize("words", [("train", "--help"), ("report", "nowhere", "--html=page.html"),
                                   ("train", "--flagfile=nowhere.flags"), ("prepare", "stray")])
def test_a_command_does_what_it_does_by_python_m(words):
    name, *flags = words
    assert run("clrec_tf.console", *words) == run(f"clrec_tf.{name}", *flags)


def test_an_unknown_command_is_refused_with_the_one_that_was_meant():
    code, _, error = run("clrec_tf.console", "trian", "--help")
    assert code == 2 and error == "error: clrec has no command 'trian': did you mean train?\n"


def test_nothing_heavy_is_imported_to_list_the_commands():
    code = "import sys; from clrec_tf import console; console.usage(); print({'tensorflow', 'polars'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
                          check=True).stdout == "set()\n"


def test_setup_installs_it(tmp_path):
    subprocess.run([sys.executable, "setup.py", "-q", "egg_info", f"--egg-base={tmp_path}"], cwd=ROOT, check=True,
                   capture_output=True)
    points = (tmp_path / "clrec_tf.egg-info" / "entry_points.txt").read_text()
    assert points.split() == ["[console_scripts]", "clrec", "=", "clrec_tf.console:main"] and callable(console.main)
