"""The lengths that a TFRecord file gives of its records.

TensorFlow believes a length whose checksum is right, and dies of it (a crash of the process, not an error) where there
is no memory for so much. So files that may be anybody's are walked through before TensorFlow reads them.
"""
import os

from clrec_tf.errors import DataError

_FRAME = 16  # bytes beside a record: its length, and two checksums


def check_lengths(path: str) -> None:
    """`DataError` where a record of a file would be longer than what is left of the file, or it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            _walk(path, file.fileno())
    except OSError as error:
        raise DataError(f"shard {path} is damaged after 0 records: {error.strerror}") from error


def _walk(path: str, descriptor: int) -> None:
    size, place = os.fstat(descriptor).st_size, 0
    while place < size:
        length = int.from_bytes(os.pread(descriptor, 8, place), "little")
        if length > size - place - _FRAME:
            raise DataError(f"shard {path} is damaged: the record at byte {place} says that it has {length} bytes, "
                            f"{max(0, size - place - _FRAME)} are left: it is truncated or was changed")
        place += _FRAME + length
