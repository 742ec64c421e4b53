"""The folder that --export_dir names: which versions it holds, and whether it is the one that is meant."""
import os

from clrec_tf.errors import UserError
from clrec_tf.retrieval.bundle_files import MANIFEST_FILE
from clrec_tf.retrieval.bundle_files import MODEL_FILE
from clrec_tf.retrieval.bundle_files import NEEDS_FILE
from clrec_tf.settings.data import EXPORT_FOLDER
from clrec_tf.settings.data import Paths


def export_dir_of(paths: Paths) -> str:
    """--export_dir, or where export puts a run's bundles; "" where neither it nor --workdir is given."""
    return paths.export_dir or (paths.workdir and os.path.join(paths.workdir, EXPORT_FOLDER))


def is_number(name: str) -> bool:
    """Whether a folder's name is a version's, 0 to 2^63 − 1 as servers count them, without zeros in front.

    str.isdigit alone is true of "²", which is no number.
    """
    return name.isascii() and name.isdigit() and len(name) < 20 and str(int(name)) == name and int(name) < 2**63


def taken_versions(export_dir: str) -> list[int]:
    """Numbers of all version folders, complete or not."""
    names = os.listdir(export_dir) if os.path.isdir(export_dir) else []
    return [int(name) for name in names if is_number(name)]


def complete_versions(export_dir: str) -> list[int]:
    """Versions in a folder, ascending; folders without a manifest do not count."""
    return sorted(version for version in taken_versions(export_dir)
                  if os.path.isfile(os.path.join(export_dir, str(version), MANIFEST_FILE)))


def newest_version(export_dir: str) -> int:
    """The newest complete version, 0 where there is none."""
    return max(complete_versions(export_dir), default=0)


def checked_export_dir(export_dir: str, may_be_version: bool) -> str:
    """The value of --export_dir, if it can be the folder that is meant; what is not there is left to whoever loads it.

    Args:
      export_dir: as given.
      may_be_version: whether a single version will do too.

    Raises:
      UserError: it is a single version that will not do, the folder of a run, or one of models that search by ScaNN.
    """
    holds = lambda *names: os.path.exists(os.path.join(export_dir, *names))
    if holds(MANIFEST_FILE) and holds(MODEL_FILE):
        if may_be_version:
            return export_dir
        number, parent = os.path.basename(os.path.abspath(export_dir)), os.path.join(export_dir, os.pardir)
        if is_number(number):
            raise UserError(f"--export_dir={export_dir} is version {number} itself: give the folder that holds it, "
                            f"--export_dir={os.path.normpath(parent)}, and --serve_version={number}")
        raise UserError(f"--export_dir={export_dir} is itself a version: give a folder that holds it under a number")
    if complete_versions(export_dir) or not os.path.isdir(export_dir):
        return export_dir
    if any(holds(name, NEEDS_FILE) for name in ("", *filter(is_number, os.listdir(export_dir)))):
        raise UserError(f"--export_dir={export_dir} holds what --scann_export_dir wrote, SavedModels for a TensorFlow "
                        f"Serving with ScaNN's operations (see {NEEDS_FILE}), and no bundle: give the --export_dir of "
                        "that export")
    if complete_versions(os.path.join(export_dir, EXPORT_FOLDER)):
        raise UserError(f"--export_dir={export_dir} is the folder of a run: give --export_dir="
                        f"{os.path.join(export_dir, EXPORT_FOLDER)}")
    return export_dir
