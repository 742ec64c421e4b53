"""Every flag that is a path: each command takes it from stores, or refuses addresses for a reason that stands here."""
import ast
import dataclasses
import importlib
import pathlib

import pytest

from clrec_tf import command_line
from clrec_tf.errors import UserError

COMMANDS = ("prepare", "train", "evaluate", "report", "export", "update_index", "retrieve", "serve", "daily")
# Flags that take no addresses, and why.
LOCAL = {
    "cache_dir": "it is where copies of what is in stores are kept",
    "scratch_dir": "what does not fit in memory is kept there while prepare runs",
    "scann_export_dir": "its folder has no manifest by which half a copy would be found out: copy it afterwards",
    "token_file": "a secret is mounted as a file",
}
# Of single commands.
LOCAL_OF = {
    ("daily", "vocabulary_from"): "daily sets it", ("daily", "init_from"): "daily sets it",
    ("daily", "eval_checkpoint"): "daily trains the run: best or latest",
    ("daily", "export_checkpoint"): "daily trains the run: best or latest",
    **{("train", flag): "its stage show asks for single histories" for flag in ("users", "output", "vectors",
                                                                                "embeddings")},
}
# Commands that measure and prove take addresses nowhere: what they read and write belongs to a person's machine.
MEASURING = ("benchmark", "tables", "debias_proof", "exposure_world", "randomised_exposure")


def call_of(name):
    """The module of a command, and the arguments of its `command_line.run` by keyword."""
    module = importlib.import_module(f"clrec_tf.{name}")
    tree = ast.parse(pathlib.Path(module.__file__).read_text())
    [call] = [node for node in ast.walk(tree) if isinstance(node, ast.Call)
              and ast.unparse(node.func) == "command_line.run"]
    given = {each.arg: each.value for each in call.keywords}
    return {arg: eval(compile(ast.Expression(given[arg]), name, "eval"), vars(module))  # pylint: disable=eval-used
            for arg in ("uses", "stores") if arg in given}


def paths_read(uses):
    """Names of the settings that are paths, of those that a command reads."""
    return {field.name for key, section in command_line.all_sections().items() for field in dataclasses.fields(section)
            if field.metadata["path"] and command_line._reads(uses, key, field)}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_takes_every_path_that_it_reads_from_stores_or_says_why_not(name):
    call = call_of(name)
    stores, read = set(call["stores"]) - {command_line.WORDS}, paths_read(call["uses"])
    refused = set(LOCAL) | {flag for command, flag in LOCAL_OF if command == name}
    assert read - stores - refused == set(), "neither taken from stores nor refused for a reason"
    assert not stores & refused and "stores" in call["uses"]


def test_every_path_is_decided():
    taken = set().union(*(call_of(name)["stores"] for name in COMMANDS)) - {command_line.WORDS}
    measuring = set().union(*(paths_read(call_of(name)["uses"]) for name in MEASURING))
    all_paths = {field.name for section in command_line.all_sections().values() for field in dataclasses.fields(section)
                 if field.metadata["path"]}
    assert all_paths - taken - set(LOCAL) - measuring == set()
    assert not taken & set(LOCAL)
    assert not [name for name in MEASURING if call_of(name).get("stores")]
    with pytest.raises(UserError, match="--scann_export_dir=s3://b/x: .*copy the data here first.*saved_model.pb last"):
        command_line.config_lib.ExportConfig(scann_export_dir="s3://b/x")
