"""README, docs/ and the flagfiles speak of commands, flags and functions that exist."""
import ast
import dataclasses
import importlib
import json
import pathlib
import re
import shlex

import pytest

from clrec_tf.command_line import ALIASES
from clrec_tf.command_line import all_sections
from clrec_tf.settings.registry import ENCODERS
from clrec_tf.settings.registry import LOSSES
from clrec_tf.settings.registry import PRETEXTS
from clrec_tf.settings.registry import TOWERS
from clrec_tf.settings.setting import choices_of

ROOT = pathlib.Path(__file__).parents[1]
FIELDS = {ALIASES.get(f.name, f.name): (key.partition(":")[0], f) for key, section in all_sections().items()
          for f in dataclasses.fields(section)}
FLAGS = set(FIELDS)
SWITCHES = {f"no{name}" for name, (_, field) in FIELDS.items() if isinstance(field.default, bool)}
INCLUDED = {"sasrec.flags", "authors_public.flags"}  # settings without data, of which there is no record
RECORDED = {"train": "hr@10/full", "randomised_exposure": "ndcg@5"}  # what a command's record must at least hold
TAKE_WORDS = {"report"}  # commands with arguments beside their flags
PAGES = [ROOT / "README.md", ROOT / "BUILD_NOTES.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {path: path.read_text(encoding="utf-8") for path in PAGES}
README = "\n".join(TEXTS.values())
FOLDERS = "|".join(path.parent.name for path in (ROOT / "clrec_tf").glob("*/__init__.py"))


# Flags and choices of the files that pages show.
OWN_FLAGS = {name for text in TEXTS.values() for name in re.findall(r"^    (\w+): \w+ = setting\(", text, re.MULTILINE)}
OWN_CHOICES = {name for text in TEXTS.values() for name in re.findall(r'^@\w+\.register\("(\w+)"\)', text, re.MULTILINE)}


def commands(text) -> list[list[str]]:
    """Command lines of a page's blocks of code, as words: those of this package and of the local cluster."""
    lines = []
    for block in re.findall(r"^```(?:bash)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            where = re.search(r"python -m clrec_tf\.|launch/local_cluster\.sh", line)
            lines += [shlex.split(line[where.start():], comments=True)] if where else []
    return lines


def sections_of(module) -> tuple[str, ...]:
    """Sections, or single settings as "section.setting", that a command reads, as its last line says."""
    tree = ast.parse((ROOT / "clrec_tf" / f"{module}.py").read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree)
             if isinstance(node, ast.Call) and ast.unparse(node.func) == "command_line.run"]
    uses = next(word.value for word in calls[-1].keywords if word.arg == "uses")
    return eval(ast.unparse(uses), vars(importlib.import_module(f"clrec_tf.{module}")))  # pylint: disable=eval-used


def test_commands_and_flags_exist():
    named = re.findall(r"-m (clrec_tf\.\w+)((?:[^`\n]|\\\n)*)", README)
    assert {module.split(".")[1] for module, _ in named} >= {"prepare", "train", "evaluate", "export", "retrieve"}
    for module, arguments in named:
        assert hasattr(importlib.import_module(module), "main")
        for flag in re.findall(r"--(\w+)", arguments):
            assert flag in FLAGS | SWITCHES | OWN_FLAGS | {"flagfile", "help"}, flag
    for flag in re.findall(r"`--(\w+)", README):
        assert flag in FLAGS | SWITCHES | {"flagfile", "help"}, flag


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_of_a_page_takes_its_flags(path):
    for words in commands(TEXTS[path]):
        module = words[2].removeprefix("clrec_tf.") if words[0] == "python" else "train"
        uses = sections_of(module)
        for word in words[3 if words[0] == "python" else 1:]:
            if module in TAKE_WORDS and not word.startswith("--"):
                continue
            name, _, value = word.removeprefix("--").partition("=")
            assert word.startswith("--"), word
            if name == "flagfile":
                assert value == "FLAGS" or (ROOT / value).is_file(), word
                continue
            if name in OWN_FLAGS:
                continue
            key, field = FIELDS[name]
            assert key in uses or f"{key}.{field.name}" in uses, f"{module} does not read {word}"
            assert not choices_of(field) or value in {*choices_of(field), *OWN_CHOICES}, word
            if isinstance(field.default, (int, float)) and not isinstance(field.default, bool):
                float(value)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_json_of_requests_is_json(path):
    for body in re.findall(r"curl -d '(.*?)' ", TEXTS[path].replace("\\\n", " ")):
        assert json.loads(body)["instances"]


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.flags")), ids=lambda path: path.name)
def test_flagfiles_hold_known_flags_and_a_record(path):
    """Or, where they name no data, settings to include and no record."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        if line.startswith("--flagfile="):
            assert (ROOT / line.partition("=")[2]).is_file(), line
            continue
        assert line.startswith("#") or not line or line[2:].split("=")[0].removeprefix("no") in FLAGS, line
    if path.name in INCLUDED:
        assert not any(re.match("--(input|data_dir|workdir|stages|world_)", line) for line in lines)
        return
    header = "\n".join(line for line in lines if line.startswith("#"))
    command = re.search(rf"python -m clrec_tf\.(\w+) --flagfile=configs/{re.escape(path.name)}", header)
    assert command and hasattr(importlib.import_module(f"clrec_tf.{command[1]}"), "main")
    assert RECORDED.get(command[1], "") in header and "seed" in "\n".join(lines)


def test_functions_of_the_equation_table_exist():
    rows = re.findall(r"^\|.*\| (`.*`) \|$", README, re.MULTILINE)
    names = [name for row in rows for name in re.findall(rf"`((?:{FOLDERS})\.[\w.]+)`", row)]
    assert len(names) >= 25
    for name in names:
        module, _, attribute = f"clrec_tf.{name}".rpartition(".")
        try:
            importlib.import_module(f"clrec_tf.{name}")
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), attribute), name


def test_second_names_of_a_row_are_in_the_module_of_the_first():
    for row in re.findall(r"^\|.*\| (`.*`) \|$", TEXTS[ROOT / "docs" / "method.md"], re.MULTILINE):
        first, *others = re.findall(r"`([\w.]+)`", row) or [""]
        if not others:
            continue
        module = importlib.import_module(f"clrec_tf.{first.rpartition('.')[0]}")
        assert all("." in name or hasattr(module, name) for name in others), row


def test_every_loss_and_queue_has_a_row():
    pages = "\n".join(TEXTS[ROOT / "docs" / f"{name}.md"] for name in ("training", "method"))
    tables = "\n".join(line for line in pages.splitlines() if line.startswith("|"))
    for flag in ("loss", "queue"):
        for choice in choices_of(FIELDS[flag][1]):
            assert choice == "auto" or re.search(rf"`(--{flag}=)?{choice}[` ]", tables), choice


def test_the_registries_give_the_table_of_flags():
    rows = []
    for registry in (TOWERS, ENCODERS, LOSSES, PRETEXTS):
        for (name, tower), cls in registry.classes().items():
            choice = f"--{registry.flag}={name}" + (f" --model={tower}" if tower else "")
            flags = ", ".join(f"`--{field.name}`" for field in dataclasses.fields(cls.Settings))
            rows.append(f"| `{choice}` | {cls.summary.rstrip('.')} | {flags} |".replace("|  |", "| |"))
    training = TEXTS[ROOT / "docs" / "training.md"]
    assert re.findall(r"^\| `--(?:model|user_encoder|loss|pretext)=.*", training, re.MULTILINE) == rows


def test_nothing_is_left_to_fill_in():
    assert "@@" not in README
