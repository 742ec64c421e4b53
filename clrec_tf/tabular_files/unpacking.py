"""The bytes inside of packed files: gzip, bzip2, xz, zstd, and a zip of one member."""
import bz2
import gzip
import io
import lzma
import os
from typing import BinaryIO, Callable, Iterator, Optional, Union
import zipfile

import polars as pl

from clrec_tf.errors import DataError

_ZSTD, _ZIP = b"\x28\xb5\x2f\xfd", b"PK\x03\x04"
_STREAMS = {b"BZh": bz2.BZ2Decompressor, b"\xfd7zXZ\x00": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ)}
_GZIP, _CHUNK = b"\x1f\x8b", 2**22
_FIRST_LINES = 10_000  # of zstd, where not all are wanted


def unpacked(path: str, head: bytes, source: Union[str, bytes], limit: int) -> Optional[Iterator[bytes]]:
    """The bytes inside of one layer of compression; None where there is none.

    Args:
      path: of the file, for messages.
      head: first bytes of `source`.
      source: a file, or its bytes.
      limit: bytes that are wanted; -1: all.
    """
    opened = lambda: io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb")
    if head.startswith(_GZIP):
        return _stream(lambda: gzip.open(opened(), "rb"), limit)
    for magic, decompressor in _STREAMS.items():
        if head.startswith(magic):
            return _streams(opened, decompressor, limit)
    if head.startswith(_ZSTD):
        return _zstd(path, source, limit)
    if head.startswith(_ZIP):
        return _only_member(path, opened, limit)
    return None


def _stream(opened: Callable[[], BinaryIO], limit: int) -> Iterator[bytes]:
    """A stream from its beginning to its end, or up to `limit` bytes of it."""
    with opened() as file:
        if limit >= 0:
            yield file.read(limit)
            return
        while chunk := file.read(_CHUNK):
            yield chunk


def _streams(opened: Callable[[], BinaryIO], new: Callable, limit: int) -> Iterator[bytes]:
    """Streams behind one another. Python's own readers take what they cannot read behind the first for the end."""
    decompressor, rest, size = new(), b"", 0
    with opened() as file:
        while chunk := rest or file.read(_CHUNK):
            rest = b""
            if decompressor.eof:
                chunk = chunk.lstrip(b"\0")  # padding
                if not chunk:
                    continue
                decompressor = new()  # which refuses what is no stream
            data = decompressor.decompress(chunk, _CHUNK)
            while data:
                yield data
                size += len(data)
                if 0 <= limit <= size:
                    return
                data = b"" if decompressor.eof else decompressor.decompress(b"", _CHUNK)
            rest = decompressor.unused_data
    if not decompressor.eof:
        raise EOFError("it ends before its end-of-stream marker")


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


def _only_member(path: str, opened: Callable[[], BinaryIO], limit: int) -> Iterator[bytes]:
    with opened() as packed, zipfile.ZipFile(packed) as archive:
        names = [info.filename for info in archive.infolist() if not info.is_dir()
                 and not info.filename.startswith("__MACOSX/") and not os.path.basename(info.filename).startswith(".")]
        if "[Content_Types].xml" in names:
            raise DataError(f"{path} is an Excel workbook: save the sheet as CSV")
        if len(names) != 1:
            raise DataError(f"{path} is a zip of {len(names)} files ({', '.join(names[:5])}): unpack it, and give the "
                            "file or folder that is meant")
        try:
            yield from _stream(lambda: archive.open(names[0]), limit)
        except (RuntimeError, NotImplementedError) as error:
            raise DataError(f"{path} is a zip that cannot be read here ({error}): unpack it first") from error
