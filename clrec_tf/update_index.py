"""The command that inserts, updates and deletes items of a published bundle, without training and without a rebuild."""
from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.errors import UserError
from clrec_tf.publishing.stored_exports import updates_version
from clrec_tf.publishing.update_bundle import update_bundle
from clrec_tf.retrieval.export_folder import checked_export_dir
from clrec_tf.stores import names
from clrec_tf.stores.files import reads_files

USAGE = """python -m clrec_tf.update_index: inserts, updates and deletes items of a bundle's newest version.

  python -m clrec_tf.update_index --export_dir=DIR --upsert=items.jsonl --withdraw=gone.txt
  items.jsonl, one a line: {"id": "a17", "vector": [0.1, …]}, or {"id": "a17", "like": ["b3", "c99"], "title": "…"},
  or {"id": "a17", "features": {"brand": "Acme", "tags": ["red", "new"]}, "content": [0.1, …]}, either or both

--export_dir may also be one version, which is then the one that is changed."""


def main(config: Config) -> None:
    """Runs the command."""
    settings = config.update
    export_dir = require(config.paths.export_dir, "export_dir", "the bundle that python -m clrec_tf.export wrote")
    if not settings.upsert and not settings.withdraw:
        raise UserError("neither --upsert nor --withdraw is given: name a file of items to insert or update, or of ids "
                        "to delete")
    if settings.upsert and not settings.upsert.endswith((".jsonl", ".parquet")):
        raise UserError(f"--upsert={settings.upsert}: the name must end in .jsonl or .parquet")
    export_dir = checked_export_dir(export_dir, may_be_version=True)
    print(names.address_of(update_bundle(export_dir, settings.upsert, settings.withdraw, config.export.target_recall)))


STORES = dict(export_dir=updates_version, upsert=reads_files, withdraw=reads_files)

if __name__ == "__main__":
    command_line.run(main, uses=("paths.export_dir", "update", "export.target_recall", "stores"), usage=USAGE,
                     stores=STORES)
