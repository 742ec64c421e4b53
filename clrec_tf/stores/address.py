"""Addresses of folders and files in stores, such as s3://bucket/clicks/2026-11-29."""
import dataclasses
import re

from clrec_tf.errors import UserError

SCHEMES = ("s3", "gs", "hdfs")
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://?([^/]*)/*(.*)", re.DOTALL)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\#?]")
_KEY_BYTES = 1024 - 100  # of which the names in a folder need some


@dataclasses.dataclass(frozen=True)
class Address:
    """One folder or file of a store.

    Attributes:
      scheme: of `SCHEMES`.
      host: the bucket, or HDFS's host:port ("" for the one that Hadoop is configured with).
      key: names joined by "/", without one at either end.
    """
    scheme: str
    host: str
    key: str

    def __str__(self):
        return f"{self.scheme}://{self.host}/{self.key}"

    def child(self, name: str) -> "Address":
        """What is called `name` in this folder."""
        return dataclasses.replace(self, key=f"{self.key}/{name}" if self.key else name)

    @property
    def folder(self) -> "Address":
        """The folder that this stands in."""
        return dataclasses.replace(self, key=self.key.rpartition("/")[0])


def is_address(value: str) -> bool:
    """Whether a path is an address rather than a name on a file system; drives of one letter are names."""
    return bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", value)) and not value.startswith("file:/")


def parse(value: str, flag: str) -> Address:
    """The address that a flag gives.

    Raises:
      UserError: another kind of store, no or an invalid bucket, no folder in it, or a name that no key may have.
    """
    given, match = f"--{flag}={value}", _ADDRESS.fullmatch(value)
    scheme, host, key = match.groups() if match else ("", "", "")
    scheme = scheme.lower()
    if scheme not in SCHEMES or not value[len(scheme):].startswith("://"):
        raise UserError(f"{given}: no store of this kind is known; give {', '.join(f'{s}://…' for s in SCHEMES)}, or "
                        "copy the data to a file system of this machine and give its path")
    if scheme != "hdfs" and not _BUCKET.fullmatch(host):
        raise UserError(f"{given}: {host!r} is no name of a bucket; an address is {scheme}://BUCKET/FOLDER")
    key = key.rstrip("/")
    if not key:
        raise UserError(f"{given} names no folder in {host or 'the store'}: give {scheme}://{host or 'HOST'}/FOLDER")
    wrong = _wrong(key)
    if wrong:
        raise UserError(f"{given} is no valid key: {wrong}; choose another name")
    return Address(scheme, host, key)


def _wrong(key):
    """What keeps a key from being one; "" where nothing does."""
    if any(part in ("", ".", "..") for part in key.split("/")):
        return "a part between two / is empty, . or .."
    if _FORBIDDEN.search(key):
        return f"it has the character {_FORBIDDEN.search(key)[0]!r}"
    if len(key.encode("utf-8", "surrogateescape")) > _KEY_BYTES:
        return f"it has more than {_KEY_BYTES} bytes"
    try:
        key.encode()
    except UnicodeEncodeError:
        return "it is no UTF-8"
    return ""
