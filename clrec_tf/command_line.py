"""Runs a command: flags from the dataclasses of ``config``, errors to exit codes. The only reader of FLAGS."""
import contextlib
import dataclasses
import importlib
import re
import sys
import textwrap
import typing

from absl import app
from absl import flags
from absl import logging

from clrec_tf import config as config_lib
from clrec_tf.errors import disk_full
from clrec_tf.errors import DiskFullError
from clrec_tf.errors import UserError
from clrec_tf.errors import write_error
from clrec_tf.settings.operations import run_id_of
from clrec_tf.settings.setting import choices_of
from clrec_tf.settings.setting import help_of
from clrec_tf.settings.stores import StoresConfig
from clrec_tf.stores import door
from clrec_tf.stores import names
from clrec_tf.system import json_log
from clrec_tf.system import own_log
from clrec_tf.system import process_exit
from clrec_tf.system import termination

WORDS = "RUN"  # how openers and messages call words that are no flags
ALIASES = {"from_time": "from", "to_time": "to"}


def define_flags():
    """Defines one flag per setting of every section, so that all commands take the same flagfile."""
    for section in all_sections().values():
        for field in dataclasses.fields(section):
            if _flag(field) not in flags.FLAGS:
                _define(_flag(field), field, typing.get_type_hints(section)[field.name], section.__doc__.strip())


def _define(name, field, hint, title):
    """One flag of a setting."""
    default, text, group = field.default, help_of(field), dict(module_name=f"clrec_tf: {title}")
    if hint is bool:
        flags.DEFINE_bool(name, default, text, **group)
    elif hint is int:
        flags.DEFINE_integer(name, default, text, **group)
    elif hint is float:
        flags.DEFINE_float(name, default, text, **group)
    elif choices_of(field):
        flags.DEFINE_enum(name, default, choices_of(field), text, **group)
    elif hint is str:
        flags.DEFINE_string(name, default, text, **group)
    else:
        flags.DEFINE_list(name, list(default), text, **group)


def all_sections() -> dict[str, type]:
    """Sections of ``config`` by key, and behind each the settings beside the code that belong to it, as "key: flag"."""
    sections = {}
    for key, section in config_lib.SECTIONS.items():
        sections[key] = section
        sections |= {f"{key}: {flag}": settings for flag, settings in config_lib.plug_sections(key).items()}
    return sections


def _flag(field) -> str:
    return ALIASES.get(field.name, field.name)


def read_flags(values: typing.Optional[dict] = None) -> config_lib.Config:
    """All sections, and the settings beside the code, from the parsed flags or other `values` of them."""
    values = flag_values() if values is None else values
    sections = {key: _section(section, values) for key, section in config_lib.SECTIONS.items()}
    return config_lib.Config(**sections, plugs={name: values[name] for name in config_lib.plug_fields()})


def flag_values() -> dict:
    """Name of each setting -> what its flag was given."""
    fields = [field for section in config_lib.SECTIONS.values() for field in dataclasses.fields(section)]
    values = {field.name: flags.FLAGS[_flag(field)].value for field in (*fields, *config_lib.plug_fields().values())}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _section(section, values):
    return section(**{field.name: values[field.name] for field in dataclasses.fields(section)})


@contextlib.contextmanager
def _stores_opened(stores, words, uses):
    """Settings and words of the command, with local paths for what lies in stores."""
    unread = [field.name for key, section in all_sections().items() for field in dataclasses.fields(section)
              if field.metadata["path"] and field.name not in stores and not _reads(uses, key, field)]
    values = flag_values() | {WORDS: words}
    values["run_id"] = values["run_id"] or run_id_of(values)
    json_log.note(run_id=values["run_id"])
    with door.opened(values, stores, _section(StoresConfig, values), unread) as local, own_log.rewritten(names.shown):
        yield read_flags(local), list(local[WORDS])


def _log_unused(used: typing.Sequence[str]):
    """Says once which flags given by the user this command does not use."""
    unused = [f"--{_flag(field)}" for key, section in all_sections().items() for field in dataclasses.fields(section)
              if not _reads(used, key, field) and flags.FLAGS[_flag(field)].present]
    if unused:
        logging.info("flags given that this command does not use: %s", " ".join(unused))


def _given() -> frozenset[str]:
    """Names of the settings whose flags the user gave."""
    return frozenset(field.name for section in all_sections().values() for field in dataclasses.fields(section)
                     if flags.FLAGS[_flag(field)].present)


def _reads(uses, key, field) -> bool:
    """Whether a command that `uses` sections, or single settings as "section.setting", reads this field."""
    section = key.partition(":")[0]
    return section in uses or f"{section}.{field.name}" in uses


def run(main: typing.Callable[..., typing.Optional[int]], uses: typing.Sequence[str], usage: str,
        takes_words: bool = False, takes_given: bool = False,
        stores: typing.Optional[typing.Mapping[str, door.Opener]] = None):
    """Runs one command.

    Args:
      main: takes the configuration and returns an exit code or None.
      uses: sections (keys of ``config.SECTIONS``) the command reads; "section.setting" for one setting of another.
      usage: its help text.
      takes_words: whether words that are no flags, which stand among them in any order, are given to `main` as well,
        as a list; others refuse them.
      takes_given: whether the names of the settings that the user gave are given to `main` as well, as a frozenset.
      stores: name of each setting that may be an address of a store -> its opener (``stores/door``); `WORDS`: of words.
    """
    uses = (*uses, "operations.log_format", "operations.run_id")
    if _last_word(sys.argv, "log_format") == "json":
        json_log.begin(sys.argv[0])
    _import_plugins(sys.argv)
    define_flags()

    def guarded(argv):
        logging.use_absl_handler()
        logging.set_verbosity(logging.INFO)
        logging.get_absl_handler().addFilter(own_log.is_shown)
        try:
            termination.install()
            if len(argv) > 1 and not takes_words:
                raise UserError(f"unexpected argument {argv[1]!r}; settings are given as --flag=value")
            _log_unused(uses)
            with _stores_opened(stores or {}, argv[1:], uses) as (config, words):
                code = main(config, *([words] if takes_words else []), *([_given()] if takes_given else []))
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            code = error.exit_code
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            code = 130
        except termination.Terminated:
            print("stopped by SIGTERM: run the same command again", file=sys.stderr)
            code = termination.EXIT_TERMINATED
        except BrokenPipeError:  # the reader of our standard output (head, less) has gone
            code = 141
        except OSError as error:
            print(f"error: {error.strerror or error}: {error.filename or ''}", file=sys.stderr)
            code = write_error(error).exit_code
        except Exception as error:  # pylint: disable=broad-exception-caught
            if not disk_full(error):
                raise
            print(f"error: {str(error).splitlines()[0][:500]}: free space, and run again", file=sys.stderr)
            code = DiskFullError.exit_code
        process_exit.end(code or 0)

    app.run(guarded, flags_parser=lambda argv: _parse(argv, uses, usage, stores or {}))


def _last_word(argv, flag) -> str:
    """The last value of a flag, also in flag files, before flags are defined; "" where it is not given."""
    try:
        words = _without_marks(flags.FLAGS.read_flags_from_files(argv[1:]))
    except flags.Error:  # to be told when they are parsed
        return ""
    return ([""] + [word.partition("=")[2] if "=" in word else following for word, following
                    in zip(words, [*words[1:], ""]) if re.match(f"--?{flag}(=|$)", word)])[-1]


def _import_plugins(argv):
    """Imports the modules of --plugins, also from flag files: what they register has flags and choices of its own."""
    given = _last_word(argv, "plugins")
    for module in filter(None, given.split(",")):
        try:
            importlib.import_module(module)
        except Exception as error:  # pylint: disable=broad-exception-caught
            print(f"error: --plugins={given}: importing {module} failed: {type(error).__name__}: {error}; it must "
                  "be found from the current folder, or be installed", file=sys.stderr)
            sys.exit(UserError.exit_code)


def _parse(argv, uses, usage, stores):
    """absl's parser, with errors that say the remedy and help on this command's own flags."""
    if any(word in ("-h", "--h", "--help", "-help") for word in argv[1:]):
        print(_help(uses, usage, stores))
        sys.exit(0)
    try:
        return flags.FLAGS([*argv[:1], *_without_marks(flags.FLAGS.read_flags_from_files(argv[1:]))])
    except flags.Error as error:
        message = str(error).removeprefix("ERROR:: ")  # absl's own mark, of flag files
        if message.startswith("Unable to open flagfile"):
            message += " (flagfiles, also those that a flagfile names, are looked for from the current folder)"
        print(f"error: {message}\nRun with --help for this command's flags.", file=sys.stderr)
        sys.exit(UserError.exit_code)


def _without_marks(words: typing.Sequence[str]) -> list[str]:
    """Words of the command line without the byte order marks of flag files, which absl takes for part of a line."""
    return [word.removeprefix("\ufeff") for word in words if not word.startswith(("\ufeff#", "\ufeff//"))]


def _help_of(name, field) -> list[str]:
    """Lines about one flag."""
    choices = "|".join(choices_of(field))
    default = ",".join(field.default) if isinstance(field.default, tuple) else field.default
    return [f"  --{name}{f' ({choices})' if choices else ''}  [{default}]",
            *textwrap.wrap(help_of(field), 110, initial_indent=" " * 6, subsequent_indent=" " * 6)]


def _help(uses, usage, stores=()) -> str:
    """This command's flags by section, in the order of `uses`, and the number of those it only tolerates."""
    lines, others = [usage.strip(), ""], []
    first = dict.fromkeys(used.partition(".")[0] for used in uses)
    sections, shown = all_sections(), set()
    for key in sorted(sections, key=lambda key: list(first | dict.fromkeys(config_lib.SECTIONS)).index(
            key.partition(":")[0])):
        section = sections[key]
        fields = {_flag(field): field for field in dataclasses.fields(section)
                  if _reads(uses, key, field) and _flag(field) not in shown}
        others += [f"--{field.name}" for field in dataclasses.fields(section) if not _reads(uses, key, field)]
        if not fields:
            continue
        shown |= set(fields)
        lines += [section.__doc__.strip(), *(line for name, field in fields.items() for line in _help_of(name, field)),
                  ""]
    lines += ["  --flagfile=FILE", "      Flags from a file, one a line; a flag given after it overrides it.", ""]
    if stores:
        named = " ".join(name if name == WORDS else f"--{name}" for name in stores)
        lines += textwrap.wrap(f"Addresses in stores (s3://bucket/folder, gs://, hdfs://) may be given for {named}.",
                               116) + [""]
    if others:
        lines.append(f"{len(others)} flags of other commands are accepted too, for a shared flagfile, and not used.")
    return "\n".join(lines)
