"""What a file holds, told by its first bytes and not by its name, and its bytes without their compression."""
import contextlib
import dataclasses
import io
import lzma
import mmap
import os
from typing import BinaryIO, Iterator, Union
import zipfile
import zlib

import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.tabular_files.room import Room
from clrec_tf.tabular_files import unpacking

TEXT, PARQUET, ARROW = "text", "Parquet", "Arrow"
_TABLES = {b"PAR1": PARQUET, b"ARROW1": ARROW}
_HEAD = 512  # bytes that tell what a file is
_CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\v\f\r\x01\x02\x03\x1a\x1b\x1c\x1d\x1e\x1f")  # but separators
_MOST_CONTROLS = 0.05  # share of them
_LAYERS = 3  # archives inside archives that are opened
_UNPACK, _EXPORT = "unpack it first", "write its table as Parquet or CSV"
# First bytes of what is not read -> what it is, and the remedy.
_OTHERS = {
    b"\xd0\xcf\x11\xe0": ("an old Excel workbook", "save the sheet as CSV"),
    b"SQLite format 3": ("an SQLite database", _EXPORT), b"\x89HDF": ("an HDF5 file", _EXPORT),
    b"\x93NUMPY": ("a NumPy array", _EXPORT), b"ORC": ("an ORC file", _EXPORT), b"Obj\x01": ("an Avro file", _EXPORT),
    b"SEQ\x06": ("a Hadoop sequence file", _EXPORT), b"RDX": ("an R data file", _EXPORT),
    b"7z\xbc\xaf\x27\x1c": ("a 7-Zip archive", _UNPACK), b"Rar!": ("a RAR archive", _UNPACK),
    b"\x04\x22M\x18": ("LZ4-compressed", _UNPACK), b"\xff\x06\x00\x00sNaPpY": ("Snappy-compressed", _UNPACK),
    b"\x1f\x9d": ("compressed by compress (.Z)", _UNPACK), b"%PDF": ("a PDF document", _EXPORT),
    b"\x5d\x00\x00": ("LZMA-compressed", _UNPACK), b"x\x9c": ("zlib-compressed", _UNPACK),
    b"x\xda": ("zlib-compressed", _UNPACK), b"PK\x05\x06": ("an empty zip", "pack the file again"),
    b"\xff\xff\xff\xff": ("an Arrow stream", "write its table as an Arrow file or Parquet"),
    b"FEA1": ("a Feather file of version 1", _EXPORT), b"PARE": ("an encrypted Parquet file", "write it unencrypted"),
    b"<?xml": ("an XML document, perhaps the answer of a store that refused",
               "download the file again, or write its table as CSV"),
    b"$FL2": ("an SPSS file", _EXPORT), b"<stata": ("a Stata file", _EXPORT), b"MATLAB 5": ("a MATLAB file", _EXPORT),
    **{bytes([0x50 + number]) + b"\x2a\x4d\x18": ("zstd-compressed, beginning with a frame without data",
                                                 "unpack it first (zstd -d)") for number in range(16)},
    b"version https://git-lfs": ("a Git LFS pointer and not the file", "run git lfs pull"),
    **{b"\x80" + bytes([protocol]): ("a Python pickle", _EXPORT) for protocol in range(2, 6)}}
_NEVER_EMPTY = (".parquet", ".arrow", ".feather", ".gz", ".zst", ".bz2", ".xz", ".zip")  # endings of names


@dataclasses.dataclass(frozen=True)
class Content:
    """A file's content.

    Attributes:
      path: the file.
      kind: `TEXT`, `PARQUET` or `ARROW`.
      data: its bytes, or a scratch file of them, where they are not those of `path`, which was compressed.
    """
    path: str
    kind: str
    data: Union[bytes, str, None] = None

    @property
    def source(self) -> Union[str, bytes]:
        """What Polars reads: a path, or the bytes."""
        return self.path if self.data is None else self.data

    def is_empty(self) -> bool:
        """Whether there is not one byte."""
        return not (self.source if isinstance(self.source, bytes) else os.path.getsize(self.source))

    def check_not_cut(self) -> None:
        """`DataError` where the file has not one byte, and a name of what always has some."""
        if self.path.endswith(_NEVER_EMPTY) and not os.path.getsize(self.path):
            raise DataError(f"{self.path} has no bytes, which no whole file of this kind has: restore it, or remove it")

    def open(self) -> BinaryIO:
        """The bytes as a stream."""
        return io.BytesIO(self.source) if isinstance(self.source, bytes) else open(self.source, "rb")

    @contextlib.contextmanager
    def view(self) -> Iterator[Union[bytes, mmap.mmap]]:
        """The bytes, mapped into memory where they are on disk."""
        if isinstance(self.source, bytes) or self.is_empty():
            yield self.data if isinstance(self.data, bytes) else b""
            return
        with open(self.source, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            yield view


def chunks(view: Union[bytes, mmap.mmap], size: int = 2**24, lines: bool = False) -> Iterator[bytes]:
    """A view from its beginning to its end, whose pages are given back behind each chunk.

    Args:
      view: see `Content.view`.
      size: of a chunk, about.
      lines: whether chunks end with lines.
    """
    start = 0
    while start < len(view):
        end = min(start + size, len(view))
        if lines and end < len(view):
            end = view.find(b"\n", end - 1) + 1 or len(view)
        yield view[start:end]
        release(view, start, end)
        start = end


def release(view: Union[bytes, mmap.mmap], start: int, end: int) -> None:
    """Gives back the pages of a part of a mapped file, which else count as memory of the process until it is closed."""
    begin = start // mmap.PAGESIZE * mmap.PAGESIZE
    if isinstance(view, mmap.mmap) and end > begin:
        view.madvise(mmap.MADV_DONTNEED, begin, end - begin)


@contextlib.contextmanager
def readable(path: str):
    """Turns the errors of reading a damaged file into a `DataError` that names it."""
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}; check the path, and where another process "
                        "removes files run again") from error
    except (IsADirectoryError, PermissionError) as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}; check the path and its permissions"
                        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not {error.encoding.upper()} text ({error.reason}): convert it, or give its "
                        "--encoding") from error
    except UnicodeError as error:  # as UTF-16 raises where no mark says which half comes first
        raise DataError(f"{path} is no text of that --encoding ({error}): leave it out, or give another") from error
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, pl.exceptions.PolarsError) as error:
        # Polars appends pages of advice about its own arguments; the first paragraphs say what is wrong.
        reason = " ".join(str(error).split("\n\n")[0].split())[:300]
        if "invalid utf8" in reason:
            raise DataError(f"{path} has a column that holds bytes that are no UTF-8 text: write it as text, such as "
                            "hexadecimal digits") from error
        raise DataError(
            f"{path} is damaged or not in the form expected ({reason}): restore or correct the file") from error


def open_content(path: str, limit: int = -1, room: Room = Room()) -> Content:
    """Opens a file and whatever it is packed in: gzip, zstd, bzip2, xz, or a zip of one member.

    Args:
      path: of the file.
      limit: bytes of packed content that are wanted; -1: all.
      room: for what is unpacked.

    Raises:
      DataError: the file is missing or damaged, or of a kind that is not read, which is named.
    """
    with readable(path):
        with open(path, "rb") as file:
            head = file.read(_HEAD)
        data = None
        for _ in range(_LAYERS):
            inside = unpacking.unpacked(path, head, path if data is None else data, limit)
            if inside is None:
                break
            data = room.keep(inside)
            with Content(path, TEXT, data).open() as file:
                head = file.read(_HEAD)
        kind = next((kind for magic, kind in _TABLES.items() if head.startswith(magic)), TEXT)
        if kind == TEXT:
            _check_text(path, head)
    return Content(path, kind, data)


def _check_text(path: str, head: bytes) -> None:
    """`DataError` where the first bytes are those of a kind of file that is not read."""
    other = next((other for magic, other in _OTHERS.items() if head.startswith(magic)), None)
    if head[257:262] == b"ustar":
        other = ("a tar archive", _UNPACK)
    if head.lstrip()[:20].lower().startswith((b"<!doctype html", b"<html", b"<table")):
        other = ("a web page, perhaps the answer of a download that failed", "download the file again")
    if other:
        raise DataError(f"{path} is {other[0]}: {other[1]}")


def check_no_binary(path: str, head: bytes) -> None:
    """`DataError` where the first bytes have so many control characters that they are no text in one byte each."""
    found = sum(byte in _CONTROLS for byte in head)
    if found > _MOST_CONTROLS * len(head):
        raise DataError(f"{path} is no text, nor of a kind that is known here: write its table as Parquet or CSV, or "
                        "give its --encoding")
