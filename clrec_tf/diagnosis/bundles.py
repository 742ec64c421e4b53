"""A folder of bundles: the version that would be served, against its manifest. Nothing of it is run: it is code."""
import os
from importlib import metadata
from typing import Iterator

from clrec_tf.diagnosis.findings import About
from clrec_tf.diagnosis.findings import Finding
from clrec_tf.diagnosis.machine import check_memory
from clrec_tf.diagnosis.sizes import shown
from clrec_tf.errors import DataError
from clrec_tf.retrieval.export_folder import checked_export_dir
from clrec_tf.retrieval.export_folder import complete_versions
from clrec_tf.retrieval.manifest import check_files
from clrec_tf.retrieval.manifest import check_sizes
from clrec_tf.retrieval.manifest import read_manifest
from clrec_tf.server.version_folder import VersionFolder
from clrec_tf.system.versions import versions

REMEDY = "export again, or copy the bundle again"
_PACKAGES = dict(scann="scann", faiss="faiss-cpu")  # kind of index -> the package that searches it


def check_bundles(about: About, export_dir: str, wanted: int, full: bool) -> Iterator[Finding]:
    """Compares a version with its manifest, and with what this machine has.

    Args:
      about: makes the findings.
      export_dir: the folder of versions.
      wanted: --serve_version, 0 for the newest.
      full: whether contents are compared too.
    """
    export_dir = checked_export_dir(export_dir, may_be_version=False)
    complete, number = complete_versions(export_dir), VersionFolder(export_dir).pinned(wanted)
    if not complete:
        yield about.note("it holds no bundle yet: python -m clrec_tf.export writes one")
        return
    if number and number not in complete:
        raise DataError(f"version {number} is asked for (by --serve_version or the file serve_version) and is not "
                        f"there: choose from {', '.join(map(str, complete))}")
    number = number or complete[-1]
    folder = os.path.join(export_dir, str(number))
    manifest = read_manifest(folder)
    (check_files if full else check_sizes)(folder, manifest["files"])
    held = sum(entry["bytes"] for entry in manifest["files"].values())
    yield about.ok(f"version {number}: {len(manifest['files'])} files, {shown(held)}, agree with the manifest by "
                   + ("sha256" if full else "size"))
    yield from check_packages(about, manifest)
    yield from check_memory(about, held, "a server of this version")


def check_packages(about: About, manifest: dict) -> Iterator[Finding]:
    """Whether the index can be searched here, and which versions of packages differ."""
    package = _PACKAGES.get(manifest.get("index", {}).get("kind"))
    if package:
        try:
            metadata.version(package)
        except metadata.PackageNotFoundError:
            yield about.fault(f"its index needs {package}, which is not installed", f"pip install {package} with the "
                              "constraints, or export with --index=exact")
    for name, mine in versions().items():
        theirs = manifest["versions"].get(name)
        if theirs != mine and (theirs or name != "scann"):
            yield about.note(f"it was exported with {name} {theirs or 'none'}, here is {mine or 'none'}",
                             "install the same versions where it is served")
