"""The README and the flagfiles speak of commands, flags and functions that exist."""
import dataclasses
import importlib
import pathlib
import re

import pytest

from clrec_tf.command_line import ALIASES
from clrec_tf import config

ROOT = pathlib.Path(__file__).parents[1]
FLAGS = {ALIASES.get(f.name, f.name) for section in config.SECTIONS.values() for f in dataclasses.fields(section)}
RECORDED = {"train": "hr@10/full", "randomised_exposure": "ndcg@5"}  # what a command's record must at least hold
README = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))))


def test_commands_and_flags_exist():
    commands = re.findall(r"-m (clrec_tf\.\w+)((?:[^`\n]|\\\n)*)", README)
    assert {module.split(".")[1] for module, _ in commands} >= {"prepare", "train", "evaluate", "export", "retrieve"}
    for module, arguments in commands:
        assert hasattr(importlib.import_module(module), "main")
        for flag in re.findall(r"--(\w+)", arguments):
            assert flag in FLAGS | {"flagfile", "help"}, flag
    for flag in re.findall(r"`--(\w+)", README):
        assert flag in FLAGS | {"flagfile", "help"}, flag


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.flags")), ids=lambda path: path.name)
def test_flagfiles_hold_known_flags_and_a_record(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        assert line.startswith("#") or not line or line[2:].split("=")[0].removeprefix("no") in FLAGS, line
    header = "\n".join(line for line in lines if line.startswith("#"))
    command = re.search(rf"python -m clrec_tf\.(\w+) --flagfile=configs/{re.escape(path.name)}", header)
    assert command and hasattr(importlib.import_module(f"clrec_tf.{command[1]}"), "main")
    assert RECORDED.get(command[1], "") in header and "seed" in "\n".join(lines)


def test_functions_of_the_equation_table_exist():
    rows = re.findall(r"^\|.*\| (`.*`) \|$", README, re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`((?:losses|models|negatives|encoders|evaluation)\.[\w.]+)`", row)]
    assert len(names) >= 8
    for name in names:
        module, _, attribute = f"clrec_tf.{name}".rpartition(".")
        try:
            importlib.import_module(f"clrec_tf.{name}")
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), attribute), name


def test_nothing_is_left_to_fill_in():
    assert "@@" not in README
