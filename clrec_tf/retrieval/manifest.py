"""The manifest of a bundle's version: facts, and size and sha256 of every file."""
import hashlib
import os

from absl import logging

from clrec_tf.errors import DataError
from clrec_tf.retrieval.bundle_files import IDS_FILE
from clrec_tf.retrieval.bundle_files import MANIFEST_FILE
from clrec_tf.retrieval.bundle_files import MODEL_FILE
from clrec_tf.system.inner_path import inner_path
from clrec_tf.system import json_files
from clrec_tf.system.json_files import save_json
from clrec_tf.system.versions import versions

FORMAT_VERSION = 5  # 4: the tower reads clicked items and times alone; 3: nor coordinates of intents; 2: nor the dial's
_READ = (2, 3, 4, 5)
_MOST = 2**31


def write_manifest(folder: str, facts: dict) -> None:
    """Writes manifest.json: facts, package versions, and the size and sha256 of every file in the folder."""
    written = 4 if facts.get("intent_coordinates") else 3  # the least that says all, which older programs read
    written = FORMAT_VERSION if facts.get("query_inputs") or facts.get("uses_events") else written
    files = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            if os.path.relpath(path, folder) == MANIFEST_FILE:  # of an earlier call, which this one replaces
                continue
            files[os.path.relpath(path, folder)] = dict(bytes=os.path.getsize(path), sha256=_sha256(path))
    save_json(os.path.join(folder, MANIFEST_FILE),
              json_files.sealed(facts | dict(format_version=written, versions=versions(), files=files)))


def read_manifest(folder: str) -> dict:
    """Reads manifest.json, with what older ones lack; warns of other package versions.

    Raises:
      DataError: it is damaged, incomplete or of another format.
    """
    path = os.path.join(folder, MANIFEST_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            manifest = json_files.parse(file.read())
        if manifest["format_version"] not in _READ:
            raise DataError(f"{path} has format_version={manifest['format_version']}, this program reads "
                            f"{', '.join(map(str, _READ))}: export again")
        # What is not in bundles of before there were others, and what is.
        manifest = {"intents": 1, "uses_dwell": False, "intent_coordinates": 0, "uses_events": False,
                    "query_inputs": [], "knows_strangers": False} | json_files.unsealed(manifest)
        manifest.setdefault("served_intents", min(4, manifest["intents"]))
        if "dial" not in manifest:
            logging.warning("%s was exported before there was a dial: it is served at popularity 0, as trained; export "
                            "again for others", folder)
        missing = {"checkpoint_hash", "id_type", "items", "max_history", "uses_time", "titles"} - set(manifest)
        missing |= {MODEL_FILE, IDS_FILE} - set(manifest["files"])
        if missing or any({"bytes", "sha256"} - set(entry) for entry in manifest["files"].values()):
            raise KeyError(f"incomplete, without {sorted(missing)}")
        _check_numbers(manifest)
        manifest.setdefault("tower_items", manifest["items"])  # others are only in updated bundles
        for name, mine in versions().items():
            if manifest["versions"].get(name) != mine:
                logging.warning("%s was exported with %s %s, this process has %s", folder, name,
                                manifest["versions"].get(name), mine or "none")
        return manifest
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is damaged ({error!r}): export again") from error


def _check_numbers(manifest: dict) -> None:
    """`ValueError` where a number that decides how much memory is taken is none, or out of all proportion."""
    for name in ("items", "max_history", "intents", "served_intents", "intent_coordinates", "dimension", "tower_items"):
        value = manifest.get(name, 0)
        if type(value) is not int or not 0 <= value < _MOST:
            raise ValueError(f"{name} is {str(value)[:50]!r}")
    for name, entry in manifest["files"].items():
        if type(entry["bytes"]) is not int or not isinstance(entry["sha256"], str):
            raise ValueError(f"the entry of {name[:50]!r} is not a size and a sha256")


def check_files(folder: str, files: dict) -> None:
    """Compares a folder with what its manifest says of its files; raises `DataError` naming one that differs.

    All sizes first: of a copy under way that is found out without reading what has come.
    """
    for name, path in check_sizes(folder, files).items():
        if _sha256(path) != files[name]["sha256"]:
            raise _differs(path, files[name])


def check_sizes(folder: str, files: dict) -> dict[str, str]:
    """The same of their sizes alone; returns name -> path."""
    paths = {}
    for name, expected in files.items():
        try:
            path = paths[name] = inner_path(folder, name)
        except ValueError as error:
            raise DataError(f"{folder}/{MANIFEST_FILE} names a file outside its folder ({error}): copy the bundle again"
                            ) from error
        if not os.path.isfile(path):
            raise DataError(f"{path} is missing though the manifest lists it: export again, or copy the bundle again")
        if os.path.getsize(path) != expected["bytes"]:
            raise _differs(path, expected)
    return paths


def _differs(path, expected):
    return DataError(f"{path} differs from the manifest ({os.path.getsize(path)} bytes, {expected['bytes']} expected, "
                     "or another sha256): export again, or copy the bundle again")


def _sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
