"""tf.train.Example's wire format, written from whole arrays at once.

Building `tf.train.Example` objects takes Python work for every number; here NumPy encodes all numbers of a shard, and
Python only joins byte strings, some for each record. Keys stand in sorted order, so equal data give equal bytes.
"""
import numpy as np

# Field numbers and wire types of Example.features, Features.feature, its key and value, and the three kinds of list.
_FEATURES = _ENTRY = _KEY = _LIST_VALUE = b"\x0a"
_VALUE = b"\x12"
BYTES_LIST, FLOAT_LIST, INT64_LIST = b"\x0a", b"\x12", b"\x1a"


def varint(number: int) -> bytes:
    """One non-negative integer."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_SMALL = [varint(number) for number in range(1 << 14)]


def _field(tag: bytes, body: bytes) -> bytes:
    size = len(body)
    return tag + (_SMALL[size] if size < len(_SMALL) else varint(size)) + body


def varints(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """int64 values [E] -> their encodings in one string, and where each begins [E + 1]."""
    rest = values.astype(np.int64).view(np.uint64)  # negative numbers take ten bytes, as protobuf demands
    sizes = np.ones(len(rest), np.int64)
    for shift in range(7, 64, 7):
        longer = rest >> np.uint64(shift) > 0
        if not longer.any():
            break
        sizes += longer
    starts = np.concatenate([[0], np.cumsum(sizes)])
    encoded = np.empty(starts[-1], np.uint8)
    for byte in range(sizes.max(initial=0)):
        rows = np.flatnonzero(sizes > byte)
        more = (sizes[rows] > byte + 1).astype(np.uint8) << 7
        encoded[starts[rows] + byte] = (rest[rows] >> np.uint64(7 * byte)).astype(np.uint8) & 127 | more
    return encoded.tobytes(), starts


def entry(key: str, kind: bytes, packed: bytes) -> bytes:
    """One feature: its key and a list, whose content `packed` is already encoded."""
    body = _field(_KEY, key.encode()) + _field(_VALUE, _field(kind, _field(_LIST_VALUE, packed)))
    return _field(_ENTRY, body)


def int64_entries(key: str, values: np.ndarray, offsets: np.ndarray) -> list[bytes]:
    """The feature `key` of R records from values [E], record r holding values[offsets[r]:offsets[r + 1]]."""
    encoded, starts = varints(values)
    bounds = starts[offsets].tolist()
    head = _field(_KEY, key.encode())
    return [_field(_ENTRY, head + _field(_VALUE, _field(INT64_LIST, _field(_LIST_VALUE, encoded[begin:end]))))
            for begin, end in zip(bounds, bounds[1:])]


def bytes_entries(key: str, values: list[bytes]) -> list[bytes]:
    """The feature `key` of R records, one byte string each."""
    return [entry(key, BYTES_LIST, value) for value in values]


def examples(columns: dict[str, list[bytes]]) -> list[bytes]:
    """Serialised Examples [R] from the entries [R] of each key."""
    ordered = [columns[key] for key in sorted(columns)]
    return [_field(_FEATURES, b"".join(entries)) for entries in zip(*ordered)]
