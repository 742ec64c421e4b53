"""Delimiters of text: as they are given, and as they are told from a header."""
import codecs
import re
from typing import Union

from clrec_tf.errors import UserError
from clrec_tf.tabular_files import contents
from clrec_tf.tabular_files.room import Room

LIKELY = ("\t", ";", ",", "|", "::", ":", "\x01", " ")
_STAND_INS = (0x1F, 0x1E, 0x1D, 0x1C, 0x02, 0x03)  # control characters that no text has


def plain(value: str, flag: str = "delimiter") -> str:
    r"""What a flag means: "\t" is a tab, "\x01" that character.

    Raises:
      UserError: an escape that there is not, or a quote or line break.
    """
    text = value
    if "\\" in value and len(value) > 1:
        if not re.fullmatch(r"(?:\\(?:[tnr\\abefv]|[0-3][0-7]{2}|0|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})|[^\\])+", value):
            raise UserError(f"--{flag}={value!r} has an escape that is none: give the characters themselves, or \\t "
                            "for a tab and \\x01 for the character of that number")
        text = codecs.decode(value, "unicode_escape") if value.isascii() else value
    if any(mark in text for mark in '"\r\n\0'):
        raise UserError(f"--{flag}={value!r} holds a quote, line break or zero byte: give what stands between two "
                        "columns")
    return text


def of_values(settings) -> str:
    """What stands between the values of a feature, or the items of a list, by --multi_separator.

    Raises:
      UserError: as of `plain`, or it is empty.
    """
    flag, value = "multi_separator", settings.multi_separator
    if not value:
        raise UserError(f"--{flag}= is empty, and would take every character for a value: give what stands between two")
    return plain(value, flag)


def guess(header: str, extension: str, wide: bool = False) -> str:
    """The delimiter of a header line: tab, semicolon or comma; `wide`: or a bar or two colons, where it has none."""
    if extension == "tsv":
        return "\t"
    return next((mark for mark in LIKELY[:5 if wide else 3] if mark in header), ",")


def of_names(header: str, name: str) -> str:
    """What separates the names of a header that was not cut, one of which is wanted; "" of other lines."""
    runs = tuple(run for run in re.findall(" +", header.strip())[:1])  # columns may be padded with several spaces
    beside = re.search(rf"(?:^|\W){re.escape(name)}(\W+)\w|\w(\W+){re.escape(name)}\W*$", header)
    beside = [run.strip(' "') for run in beside.groups("") if run.strip(' "')] if beside else []
    cuts = lambda mark: name in (field.strip(' "') for field in header.split(mark))
    separator = next((mark for mark in (*beside, *LIKELY[:-1], *runs) if mark in header and cuts(mark)), "")
    return separator or next((mark for mark in LIKELY[:-1] if mark in header), "")


def shown(mark: str) -> str:
    """A delimiter as it is given to a flag in a shell."""
    return "'\\t' (tab)" if mark == "\t" else f"'{mark if mark.isprintable() else repr(mark)[1:-1]}'"


def as_one_byte(view, delimiter: str, path: str, room: Room) -> tuple[Union[bytes, str], str]:
    """A text, kept in the room, whose delimiter of several bytes is replaced by one that it does not hold."""
    free = list(_STAND_INS)
    for chunk in contents.chunks(view):
        free = [mark for mark in free if bytes([mark]) not in chunk]
    if not free:
        raise UserError(f"{path} holds every control character that could stand for --delimiter={delimiter!r}: replace "
                        "the delimiter by a single character")
    one = bytes([free[0]])
    replaced = (chunk.replace(delimiter.encode(), one) for chunk in contents.chunks(view, lines=True))
    return room.keep(replaced), chr(free[0])
