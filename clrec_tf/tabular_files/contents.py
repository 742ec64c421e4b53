"""What a file holds, told by its first bytes and not by its name, and its bytes without their compression."""
import bz2
import contextlib
import dataclasses
import gzip
import io
import lzma
import mmap
import os
from typing import BinaryIO, Callable, Iterator, Optional, Union
import zipfile
import zlib

import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.tabular_files.room import Room

TEXT, PARQUET, ARROW = "text", "Parquet", "Arrow"
_TABLES = {b"PAR1": PARQUET, b"ARROW1": ARROW}
_ZSTD, _ZIP = b"\x28\xb5\x2f\xfd", b"PK\x03\x04"
_PACKED = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_HEAD = 512  # bytes that tell what a file is
_FIRST_LINES = 10_000  # of zstd, where not all are wanted
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
    b"version https://git-lfs": ("a Git LFS pointer and not the file", "run git lfs pull"),
    **{b"\x80" + bytes([protocol]): ("a Python pickle", _EXPORT) for protocol in range(2, 6)}}


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
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check the path and its permissions") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not {error.encoding.upper()} text ({error.reason}): convert it, or give its "
                        "--encoding") from error
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
            unpacked = _unpacked(path, head, data, limit)
            if unpacked is None:
                break
            data = room.keep(unpacked)
            with Content(path, TEXT, data).open() as file:
                head = file.read(_HEAD)
        kind = next((kind for magic, kind in _TABLES.items() if head.startswith(magic)), TEXT)
        if kind == TEXT:
            _check_text(path, head)
    return Content(path, kind, data)


def _unpacked(path: str, head: bytes, data: Union[bytes, str, None], limit: int) -> Optional[Iterator[bytes]]:
    """The bytes inside of one layer of compression; None where there is none."""
    source = Content(path, TEXT, data)
    for magic, opener in _PACKED.items():
        if head.startswith(magic):
            return _stream(lambda: opener(source.open(), "rb"), limit)
    if head.startswith(_ZSTD):
        return _zstd(path, source.source, limit)
    if head.startswith(_ZIP):
        return _only_member(path, source, limit)
    return None


def _stream(opened: Callable[[], BinaryIO], limit: int) -> Iterator[bytes]:
    """A stream from its beginning to its end, or up to `limit` bytes of it."""
    with opened() as file:
        if limit >= 0:
            yield file.read(limit)
            return
        while chunk := file.read(2**22):
            yield chunk


def _zstd(path: str, source: Union[str, bytes], limit: int) -> Iterator[bytes]:
    """Polars is the only reader of zstd at hand, and it reads lines of UTF-8."""
    try:
        lines = pl.scan_lines(source, glob=False)
        for frame in (lines if limit < 0 else lines.head(_FIRST_LINES)).collect_batches(engine="streaming"):
            if len(frame):
                yield (frame.to_series().str.join("\n")[0] + "\n").encode()
    except pl.exceptions.ComputeError as error:
        if "utf8" in str(error).lower().replace("-", ""):
            raise DataError(f"{path} is zstd-compressed and not UTF-8 inside: unpack it first (zstd -d)") from error
        raise


def _only_member(path: str, source: Content, limit: int) -> Iterator[bytes]:
    with source.open() as packed, zipfile.ZipFile(packed) as archive:
        names = [info.filename for info in archive.infolist()
                 if not info.is_dir() and not info.filename.startswith("__MACOSX/")]
        if "[Content_Types].xml" in names:
            raise DataError(f"{path} is an Excel workbook: save the sheet as CSV")
        if len(names) != 1:
            raise DataError(f"{path} is a zip of {len(names)} files ({', '.join(names[:5])}): unpack it, and give the "
                            "file or folder that is meant")
        try:
            yield from _stream(lambda: archive.open(names[0]), limit)
        except (RuntimeError, NotImplementedError) as error:
            raise DataError(f"{path} is a zip that cannot be read here ({error}): unpack it first") from error


def _check_text(path: str, head: bytes) -> None:
    """`DataError` where the first bytes are those of a kind of file that is not read."""
    other = next((other for magic, other in _OTHERS.items() if head.startswith(magic)), None)
    if head[257:262] == b"ustar":
        other = ("a tar archive", _UNPACK)
    if head.lstrip()[:20].lower().startswith((b"<!doctype html", b"<html")):
        other = ("a web page, perhaps the answer of a download that failed", "download the file again")
    if other:
        raise DataError(f"{path} is {other[0]}: {other[1]}")
