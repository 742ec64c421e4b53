"""The record of settings that a folder was made with, by which it is kept from being mixed with others."""
import json
import os

from clrec_tf.errors import UserError
from clrec_tf.system.json_files import load_json
from clrec_tf.system.json_files import save_json

RECORD_FILE = "settings.json"


def keep(folder: str, settings: dict) -> None:
    """Writes the record of a folder, or compares it with the one that is there.

    Args:
      folder: made if missing.
      settings: by name, of values that JSON has.

    Raises:
      UserError: it was made with other settings; the first that differs is named with both values.
    """
    path, now = os.path.join(folder, RECORD_FILE), json.loads(json.dumps(settings))
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        save_json(path, now)
        return
    before = load_json(path, "run the same command again", f"delete {folder}")
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            raise UserError(f"{name}={now.get(name)} differs from {before.get(name)}, with which {folder} was made: "
                            "give the old value to go on, or another --tables_dir to start anew")
