"""Openers for single files and for logs, which have no list of their own."""
import contextlib
import dataclasses
import fnmatch
import os
import re

from clrec_tf.errors import UserError
from clrec_tf.stores.address import Address
from clrec_tf.stores.folder import Folder
from clrec_tf.stores.transfer import in_parallel

_WITH_OTHERS = ("movielens", "amazon", "amazon2023", "recbole")  # formats
_PATTERN = re.compile(r"[*?\[]")


@contextlib.contextmanager
def reads_files(address: Address, flag: str, door):
    """A file, a folder of files, or a pattern such as s3://bucket/logs/2026-11-*/part-*.csv: copied whole.

    A log has no list of its files, so they are those that the store lists now. Each is compared with its listed size.

    Raises:
      UserError: nothing is there; VanishedError: a file was there and is not.
    """
    root, given, found = listed(address, flag, door)
    with door.scratch() as place:
        in_parallel(lambda name: _fetch(root, name, found[name], place), list(found))
        with door.named(place, root.address):
            yield os.path.join(place, given)


def listed(address: Address, flag: str, door) -> tuple[Folder, str, dict[str, int]]:
    """The objects that an address means.

    Returns:
      The folder above them, the address' name or pattern in it, and name -> bytes of each.

    Raises:
      UserError: nothing is there, or the format reads others beside it.
    """
    fixed = _PATTERN.split(address.key)[0]  # the folder above the first part with a pattern, or above the file
    root = door.folder(dataclasses.replace(address, key=fixed.rpartition("/")[0]), flag)
    given = address.key[len(root.address.key):].lstrip("/")
    single = not _PATTERN.search(given) and root.head(given)
    if single and flag == "input" and door.values.get("format") in _WITH_OTHERS:
        raise UserError(f"--{flag}={address}: --format={door.values['format']} reads the files beside it too: give "
                        f"their folder, {root.address}")
    found = {given: single[0], **_below(root, given)} if single else {
        name: size for name, size in root.names().items()
        if name.startswith(f"{given}/") or (_PATTERN.search(given) and _matches(name, given))}
    found = _without_markers(found, f"--{flag}={address}")
    if not found:
        raise UserError(f"--{flag}={address}: nothing is there: correct the address")
    return root, given, found


def _below(root, given):
    return {f"{given}/{name}": size for name, size in root.child(given).names().items()}


def _without_markers(found, given):
    """Without the empty objects by which some tools mark folders; `UserError` where a folder's name has content."""
    above = {name.rsplit("/", depth)[0] for name in found for depth in range(1, name.count("/") + 1)} & found.keys()
    for name in sorted(above):
        if found[name]:
            raise UserError(f"{given}: {name} is an object of {found[name]} bytes and a folder too: rename one of "
                            f"them, or give a pattern such as {name}/*")
    return {name: size for name, size in found.items() if name not in above}


def _matches(name, pattern):
    """Whether a key fits a pattern part by part, where ** is any number of parts."""
    parts, wanted = name.split("/"), pattern.split("/")
    if "**" in wanted:
        return fnmatch.fnmatchcase(name, pattern.replace("**/", "*"))
    return len(parts) >= len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def _fetch(root, name, size, place):
    path = os.path.join(place, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    root.fetch(name, path, size)
    if os.path.getsize(path) != size:
        raise UserError(f"{name} in {root.given} has {os.path.getsize(path)} bytes, {size} were listed: it is being "
                        "written; run again when the log is complete")


@contextlib.contextmanager
def writes_file(address: Address, flag: str, door):
    """A file that is uploaded when the command has ended well."""
    name = address.key.rpartition("/")[2]
    folder = door.folder(address.folder, flag)
    with door.scratch() as place, door.named(os.path.join(place, name), address) as path:
        yield path
        if os.path.exists(path):
            folder.upload(name, path)
