"""What a file holds, told by its first bytes and not by its name, and its bytes without their compression."""
import bz2
import contextlib
import dataclasses
import gzip
import io
import lzma
import mmap
import os
from typing import Iterator, Optional, Union
import zipfile
import zlib

import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError

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
      data: its bytes where they are not those on disk, which were compressed.
    """
    path: str
    kind: str
    data: Optional[bytes] = None

    @property
    def source(self) -> Union[str, bytes]:
        """What Polars reads: the path, or the bytes."""
        return self.path if self.data is None else self.data

    def is_empty(self) -> bool:
        """Whether there is not one byte."""
        return not (os.path.getsize(self.path) if self.data is None else self.data)

    @contextlib.contextmanager
    def view(self) -> Iterator[Union[bytes, mmap.mmap]]:
        """The bytes, mapped into memory where they are on disk."""
        if self.data is not None or not os.path.getsize(self.path):
            yield self.data or b""
            return
        with open(self.path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            yield view


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
        raise DataError(
            f"{path} is damaged or not in the form expected ({reason}): restore or correct the file") from error


def open_content(path: str, limit: int = -1) -> Content:
    """Opens a file and whatever it is packed in: gzip, zstd, bzip2, xz, or a zip of one member.

    Args:
      path: of the file.
      limit: bytes of packed content that are wanted; -1: all.

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
            data, head = unpacked, unpacked[:_HEAD]
        kind = next((kind for magic, kind in _TABLES.items() if head.startswith(magic)), TEXT)
        if kind == TEXT:
            _check_text(path, head)
    return Content(path, kind, data)


def _unpacked(path: str, head: bytes, data: Optional[bytes], limit: int) -> Optional[bytes]:
    """The bytes inside of one layer of compression; None where there is none."""
    source = path if data is None else io.BytesIO(data)
    for magic, opener in _PACKED.items():
        if head.startswith(magic):
            with opener(source, "rb") as file:
                return file.read(limit)
    if head.startswith(_ZSTD):
        return _zstd(path, path if data is None else data, limit)
    if head.startswith(_ZIP):
        return _only_member(path, source, limit)
    return None


def _zstd(path: str, source: Union[str, bytes], limit: int) -> bytes:
    """Polars is the only reader of zstd at hand, and it reads lines of UTF-8."""
    try:
        lines = pl.scan_lines(source, glob=False)
        lines = (lines if limit < 0 else lines.head(_FIRST_LINES)).collect()
    except pl.exceptions.ComputeError as error:
        if "utf8" in str(error).lower().replace("-", ""):
            raise DataError(f"{path} is zstd-compressed and not UTF-8 inside: unpack it first (zstd -d)") from error
        raise
    return (lines.to_series().str.join("\n")[0] + "\n").encode() if len(lines) else b""


def _only_member(path: str, source, limit: int) -> bytes:
    with zipfile.ZipFile(source) as archive:
        names = [info.filename for info in archive.infolist()
                 if not info.is_dir() and not info.filename.startswith("__MACOSX/")]
        if "[Content_Types].xml" in names:
            raise DataError(f"{path} is an Excel workbook: save the sheet as CSV")
        if len(names) != 1:
            raise DataError(f"{path} is a zip of {len(names)} files ({', '.join(names[:5])}): unpack it, and give the "
                            "file or folder that is meant")
        try:
            with archive.open(names[0]) as member:
                return member.read(limit)
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
