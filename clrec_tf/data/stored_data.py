"""Openers for data sets in stores: read shard by shard as they are needed, and written with their manifest last."""
import contextlib
import hashlib
import os
from typing import Iterator, Optional

from absl import logging

from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import BusyError
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.stores import on_demand
from clrec_tf.stores import transfer
from clrec_tf.stores import uploads
from clrec_tf.stores.address import Address
from clrec_tf.stores.cache import Entry
from clrec_tf.stores.folder import Folder
from clrec_tf.stores.lease import Lease
from clrec_tf.stores.lease import NAME as LEASE_FILE
from clrec_tf.stores.on_demand import OnDemand
from clrec_tf.stores.store_errors import TakenError
from clrec_tf.system import atomic

UNFINISHED = "unfinished.json"  # there while a data set is being uploaded, and until an interrupted upload is repeated
_FOLDER, _SHARED = "data", "shared"


@contextlib.contextmanager
def reads_data_set(address: Address, flag: str, door) -> Iterator[str]:
    """A folder in which manifest, schema and arrays are, and shards when they are read.

    Raises:
      DataError: there is no complete data set, or a file of it is missing or damaged.
    """
    with _place(address, door) as local, contextlib.ExitStack() as stack:
        source = _view(door.folder(address, flag), local, door.cache, stack)
        if source is None:
            os.makedirs(local, exist_ok=True)  # empty: its reader says what is missing
        yield local


@contextlib.contextmanager
def shares_data_set(address: Address, flag: str, door) -> Iterator[str]:
    """A whole copy at a path that is the same on all machines of a cluster, and stays for the next training.

    Raises: see `reads_data_set`; UserError: there is no data set.
    """
    remote = door.folder(address, flag)
    manifest = remote.read(schema_lib.MANIFEST_FILE)
    if manifest is None:
        raise UserError(f"{remote.given} holds no complete data set; run python -m clrec_tf.prepare first")
    number = hashlib.sha256(str(address).encode() + manifest).hexdigest()[:16]
    local = os.path.join(door.cache_dir, _SHARED, number)
    with door.named(local, address), contextlib.ExitStack() as stack:
        source = _view(remote, local, door.cache, stack)
        source.take(source.files)
        yield local


@contextlib.contextmanager
def makes_data_set(address: Address, flag: str, door) -> Iterator[str]:
    """A folder for a new data set, or of the one that is there already; `uploads.now` of it ends the making.

    Raises:
      UserError: something else is there; BusyError: another prepares there.
    """
    remote = door.folder(address, flag)
    with _place(address, door) as local, contextlib.ExitStack() as stack:
        source = _view(remote, local, door.cache, stack)
        if source is None and not door.values["dry_run"]:
            leased = door.folder(address, flag, door.settings.lease_s / 4)
            lease = stack.enter_context(Lease(leased, door.settings.lease_s, "prepare"))
            source = _view(remote, local, door.cache, stack)  # another may have finished meanwhile
            if source is None:
                check_empty(remote)
                uploads.wait(local, lambda: _upload(remote, local, lease))
        if source is not None:
            source.check()
        yield local
        uploads.now(local)


@contextlib.contextmanager
def _place(address, door):
    with door.scratch() as scratch, door.named(os.path.join(scratch, _FOLDER), address) as local:
        yield local


def _view(remote: Folder, local: str, cache, stack) -> Optional[OnDemand]:
    """Fills a local folder with what is read at once; where the rest comes from, or None where there is no manifest."""
    facts = {name: remote.read(name) for name in (schema_lib.MANIFEST_FILE, schema_lib.SCHEMA_FILE)}
    if facts[schema_lib.MANIFEST_FILE] is None:
        return None
    os.makedirs(local, exist_ok=True)
    for name, content in facts.items():
        _write(local, name, content)
    manifest = schema_lib.load_manifest(local, verify="")
    for other in filter(None, (manifest.content, manifest.impressions, *manifest.others)):
        cache.fetch(remote, entry_of(other), os.path.join(local, other.name))
    listed = {other.name for other in manifest.others}
    for name in {schema_lib.REPORT_FILE, schema_lib.FEATURE_VALUES_FILE} - listed:  # of older folders
        _write(local, name, remote.read(name))
    source = OnDemand(local, remote, cache, [
        entry_of(shard) for shards in manifest.shards.values() for shard in shards])
    on_demand.register(source)
    stack.callback(on_demand.forget, local)
    return source


def entry_of(shard: schema_lib.Shard) -> Entry:
    """A file of a data set as stores know files; `DataError` where its manifest says what cannot be."""
    try:
        return Entry(shard.name, shard.bytes, shard.sha256)
    except ValueError as error:
        raise DataError(f"{schema_lib.MANIFEST_FILE} of the data has an entry that cannot be ({error}): restore it, or "
                        "prepare the data again") from error


def _write(local, name, content):
    if content is not None:
        with atomic.new_file(os.path.join(local, name)) as path, open(path, "wb") as file:
            file.write(content)


def check_empty(remote):
    """`UserError` where there is anything but what an interrupted upload of prepare left."""
    if remote.read(UNFINISHED) is not None:
        logging.info("%s holds an unfinished upload of prepare, which is written anew", remote.given)
        return
    others = [name for name in remote.names() if name != LEASE_FILE]
    if others:
        raise UserError(f"{remote.given} holds files that prepare did not write ({others[0]} is one of {len(others)}): "
                        f"choose another --{remote.flag}")


def _upload(remote: Folder, local: str, lease: Lease) -> None:
    """Uploads a folder that prepare has written, its manifest last; nothing where there is none."""
    if not os.path.exists(os.path.join(local, schema_lib.MANIFEST_FILE)):
        return
    names = transfer.files_below(local)
    remote.write(UNFINISHED, b"{}")
    for name in set(remote.names()) - {*names, UNFINISHED, LEASE_FILE}:  # of an upload that was interrupted
        remote.delete(name)
    transfer.upload(remote, local, [name for name in names if name != schema_lib.MANIFEST_FILE])
    lease.check()
    with open(os.path.join(local, schema_lib.MANIFEST_FILE), "rb") as file:
        content = file.read()
    try:
        remote.replace(schema_lib.MANIFEST_FILE, content, None, lease.certain)
    except TakenError as error:
        raise BusyError(f"{remote.given} was made by another process meanwhile, and is left as it is: run again to use "
                        "it, or choose another place") from error
    remote.delete(UNFINISHED)
    logging.info("uploaded %d files to %s", len(names), remote.given)
