"""Text files as UTF-8: compression, encodings, byte order marks and line ends are dealt with once, here."""
import codecs
import dataclasses
import io
import itertools
import re
from typing import Iterator, Optional, Union

from absl import logging

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.tabular_files import contents
from clrec_tf.tabular_files.contents import Content
from clrec_tf.tabular_files.room import Room

BOM = codecs.BOM_UTF8
# Longer marks first: that of UTF-32 begins with that of UTF-16.
_BOMS = ((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (BOM, "utf-8-sig"),
         (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_CHUNK = 2**24
_HEAD = 2**20  # bytes that first lines are looked for in
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")


@dataclasses.dataclass(frozen=True)
class Text:
    """A text file in UTF-8 without a byte order mark, its lines ended by line feeds.

    Attributes:
      content: on disk, or in memory where it had to be changed.
      encoding: that the file has.
      lines: how many it has.
    """
    content: Content
    encoding: str = "utf-8"
    lines: int = 0

    @property
    def path(self) -> str:
        """The file."""
        return self.content.path

    def head(self, size: int = _HEAD) -> bytes:
        """The first bytes."""
        with contents.readable(self.path), self.content.open() as file:
            return file.read(size)

    def first_lines(self, count: int) -> list[str]:
        """Up to `count` whole lines without their ends."""
        lines = self.head().split(b"\n", count)
        return [line.decode("utf-8", "replace").rstrip("\r") for line in lines[:count]]

    def first_line(self) -> str:
        """The first line without its end; "" for an empty file."""
        return self.first_lines(1)[0]


def open_text(path: str, encoding: str = "", always: bool = True) -> Text:
    """Opens a text file.

    Args:
      path: plain or packed.
      encoding: --encoding; "" tells it: a byte order mark, else UTF-8, else UTF-16, else Windows-1252 or Latin-1, which
        is said.
      always: whether `encoding` also holds where the file is valid UTF-8.

    Raises:
      UserError: no such encoding; DataError: the file is missing, damaged, no text, or not in that encoding.
    """
    content = contents.open_content(path)
    if content.kind != contents.TEXT:
        raise DataError(f"{path} is a {content.kind} file, where text is expected: give --format=columns, or the text")
    return as_text(content, encoding, always)


def as_text(content: Content, encoding: str = "", always: bool = True, room: Room = Room()) -> Text:
    """`open_text` of a file that is open; with room for text that is not UTF-8, or whose lines end otherwise."""
    given = _lookup(encoding) if encoding else ""
    with contents.readable(content.path), content.view() as view:
        head = view[:4096]
        used = _marked(head)
        if not used and given and always:
            used = given
        if not used:
            contents.check_no_binary(content.path, head)
        if not used or used == "utf-8":
            try:
                check_utf8(view)
                used = "utf-8"
            except UnicodeDecodeError as error:
                if given == "utf-8":
                    raise
                used = given or _single_byte(view, content.path, error)
        old_mac = b"\r" in head and b"\n" not in view[:_HEAD]  # lines end with a carriage return alone
        if used != "utf-8" or old_mac:
            data = room.keep(_rewritten(view, used, old_mac))
            content = Content(content.path, contents.TEXT, data)
    with content.view() as view:
        return Text(content, used.removesuffix("-sig"), _count_lines(view))


def _rewritten(view, encoding: str, old_mac: bool) -> Iterator[bytes]:
    """A text as UTF-8 whose lines end with line feeds, in chunks."""
    decoder = codecs.getincrementaldecoder(encoding)()
    for chunk in itertools.chain(contents.chunks(view), [b""]):
        text = decoder.decode(chunk, final=not chunk).encode()
        yield text.replace(b"\r", b"\n") if old_mac else text


def _count_lines(view) -> int:
    """Lines, of which the last need not end."""
    return sum(chunk.count(b"\n") for chunk in contents.chunks(view)) + (
        len(view) > 0 and view[len(view) - 1:] != b"\n")


def check_utf8(view) -> None:
    """`UnicodeDecodeError` with the place of the first byte that is not UTF-8."""
    decoder, start, size = codecs.getincrementaldecoder("utf-8")(), 0, len(view)
    for chunk in contents.chunks(view):
        pending = len(decoder.getstate()[0])
        start, begin = start + len(chunk), start
        if chunk.isascii() and not pending:
            continue
        try:
            decoder.decode(chunk, final=start >= size)
        except UnicodeDecodeError as error:
            at = begin - pending + error.start
            raise UnicodeDecodeError("utf-8", view[at:at + 1], 0, 1, f"{error.reason}, offset {at}") from error


def _lookup(encoding: str) -> str:
    try:
        "a".encode(encoding)  # refuses those that make no bytes of text, such as base64
        found = codecs.lookup(encoding).name
        if found == "idna":
            raise LookupError("it is one of names of hosts")
        return found
    except (LookupError, UnicodeError) as error:
        raise UserError(f"--encoding={encoding} is no encoding: give one such as utf-8, cp1252, latin-1, utf-16, gbk, "
                        "shift_jis, or leave it out") from error


def _marked(head: bytes) -> str:
    """The encoding that a byte order mark or the zeros of UTF-16 show; "" where nothing does."""
    return next((name for mark, name in _BOMS if head.startswith(mark)), "") or _utf16(head)


def _utf16(head: bytes) -> str:
    """UTF-16 without a mark: of Western text, every other byte is zero."""
    if len(head) < 8 or b"\0" not in head:
        return ""
    pairs = len(head) // 2
    zeros = head[:2 * pairs:2].count(0) / pairs, head[1:2 * pairs:2].count(0) / pairs
    return "utf-16-be" if zeros[0] > 0.4 > 0.1 > zeros[1] else "utf-16-le" if zeros[1] > 0.4 > 0.1 > zeros[0] else ""


def _single_byte(view, path: str, error: UnicodeDecodeError) -> str:
    """The encoding of text that is not UTF-8, said; `DataError` where most of it is UTF-8 and some lines are not."""
    at = int(error.reason.rpartition(" ")[2])
    whole, stray, encoding = 0, 0, "cp1252"
    for chunk in contents.chunks(view, lines=True):
        rest, found = _MULTIBYTE.subn(b"", chunk)
        whole, stray = whole + found, stray + len(re.findall(rb"[\x80-\xff]", rest))
        encoding = encoding if encoding == "latin-1" or _decodes(chunk, encoding) else "latin-1"
    line = _count_feeds(view, at) + 1
    if whole > stray:
        raise DataError(f"{path}, line {line} is not UTF-8 (byte 0x{view[at]:02x}), as {whole} other characters of it "
                        "are: correct the line, or give the file's --encoding")
    begin = view.rfind(b"\n", 0, at) + 1
    shown = view[max(begin, at - 20):at + 20].splitlines()[0].decode(encoding, "replace")
    logging.warning("%s is not UTF-8: read as %s, line %d as %r; give --encoding if that is wrong", path, encoding,
                    line, shown)
    return encoding


def _decodes(chunk: bytes, encoding: str) -> bool:
    try:
        chunk.decode(encoding)
        return True
    except UnicodeDecodeError:
        return False


def _count_feeds(view, end: int) -> int:
    """Line feeds before a place."""
    return sum(view[start:min(start + _CHUNK, end)].count(b"\n") for start in range(0, end, _CHUNK))


def open_stream(path: str, encoding: str = "", always: bool = True) -> io.TextIOBase:
    """The text of a file, to be read line by line as Python does."""
    text = open_text(path, encoding, always)
    return io.TextIOWrapper(text.content.open(), encoding="utf-8", newline="")


def without_mark(line: Union[bytes, str], where: str) -> Union[bytes, str]:
    """The first line of a stream without a byte order mark. `DataError` where it is that of another encoding."""
    if isinstance(line, str):
        return line.removeprefix("\ufeff")
    other: Optional[str] = next((name for mark, name in _BOMS if line.startswith(mark) and mark != BOM), None)
    if other:
        raise DataError(f"{where} is {other.upper()} text: convert it to UTF-8")
    return line.removeprefix(BOM)


def peek(path: str, encoding: str = "", count: int = 1) -> list[str]:
    """Up to `count` of the first lines, read without the rest of the file; bytes that are no text are replaced.

    Raises:
      DataError: the file is missing or damaged, or of a kind that is no text.
    """
    content = contents.open_content(path, _HEAD)
    if content.kind != contents.TEXT:
        raise DataError(f"{path} is a {content.kind} file, where text is expected: give --format=columns, or the text")
    with contents.readable(path), content.view() as view:
        head = view[:_HEAD]
    used = _marked(head) or (_lookup(encoding) if encoding else "")
    if not used:
        contents.check_no_binary(path, head[:4096])
    used = used or "utf-8"
    return head.decode(used, "replace").splitlines()[:count]
