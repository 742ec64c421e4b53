"""Openers for runs in stores: trained in, evaluated, reported, and started from."""
import contextlib
import os
from typing import Iterator

from absl import logging

from clrec_tf.data.stored_data import reads_data_set
from clrec_tf.errors import BusyError
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.stores import address as addresses
from clrec_tf.stores import names
from clrec_tf.stores import transfer
from clrec_tf.stores import uploads
from clrec_tf.stores.address import Address
from clrec_tf.stores.folder import Folder
from clrec_tf.stores.lease import Lease
from clrec_tf.stores.lease import NAME as LEASE_FILE
from clrec_tf.stores.store_errors import TakenError
from clrec_tf.stores.store_errors import VanishedError
from clrec_tf.training import run_config
from clrec_tf.training import run_uploads
from clrec_tf.training import stored_list
from clrec_tf.training.checkpoints import BEST_FOLDER
from clrec_tf.training.checkpoints import LATEST_FOLDER
from clrec_tf.training.evaluations import FILE as EVALUATIONS
from clrec_tf.training.places import check_apart
from clrec_tf.training.reporter import METRICS_LOG
from clrec_tf.training.stored_list import StoredList
from clrec_tf.training.trackers import MLFLOW_FILE

METRICS = "metrics.json"
_OF_TRAINING = (run_config.CONFIG_FILE, METRICS_LOG, MLFLOW_FILE)
_OF_REPORT = (run_config.CONFIG_FILE, METRICS_LOG, METRICS, EVALUATIONS, "intents.json")
_READS = 3  # of a list whose checkpoints are gone when they are fetched, since a training goes on


@contextlib.contextmanager
def keeps_run(address: Address, flag: str, door) -> Iterator[str]:
    """A local folder that a training goes on in; what it saves is uploaded (``run_uploads``).

    Raises:
      BusyError: another trains there; DataError: no checkpoint that is listed can be read.
      UserError: there is something else, or it is in the data set's folder.
    """
    settings = door.settings
    if flag == "workdir":
        check_apart(str(address), door.values.get("data_dir") or "")
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(door.scratch())
        local = stack.enter_context(_named(scratch, address, door))
        lease = stack.enter_context(Lease(door.folder(address, flag, settings.lease_s / 4), settings.lease_s,
                                          "training"))
        remote = door.folder(address, flag)
        found = stored_list.read(remote)
        if found is None:
            check_empty(remote)
        else:
            _fetch_sides(remote, local, _OF_TRAINING)
            _fetch_newest(remote, local, door.cache, found[0])
        run_uploads.tidied(remote, found and found[0])
        listed = _taken_over(remote, lease, found)
        place = os.path.join(scratch, "uploads")
        os.mkdir(place)
        uploading = run_uploads.RunUploads(remote, local, place, lease, listed, door.values["keep_checkpoints"])
        run_uploads.register(local, uploading)
        stack.callback(run_uploads.forget, local)
        stack.callback(uploading.abandon)
        before = run_uploads.changed_sides(local, {})
        yield local
        uploading.finish()
        _upload_changed(remote, local, before)  # of the stages that came after the training


@contextlib.contextmanager
def reads_run(address: Address, flag: str, door) -> Iterator[str]:
    """A run with its newest and best checkpoints; what the command changes beside them is uploaded at its end."""
    remote = door.folder(address, flag)
    with door.scratch() as scratch, _named(scratch, address, door) as local:
        _fetch_sides(remote, local, _OF_REPORT)
        _fetch_for_reading(remote, local, door)
        before = run_uploads.changed_sides(local, {})
        uploads.wait(local, lambda: _upload_changed(remote, local, before))
        yield local
        uploads.now(local)


@contextlib.contextmanager
def reads_record(address: Address, flag: str, door) -> Iterator[str]:
    """What a run wrote, without its checkpoints."""
    with door.scratch() as scratch, _named(scratch, address, door) as local:
        _fetch_sides(door.folder(address, flag), local, _OF_REPORT)
        yield local


@contextlib.contextmanager
def starts_from_run(address: Address, flag: str, door) -> Iterator[str]:
    """A finished run, with the data set in a store that it was trained on; `UserError` where it is --workdir itself."""
    run = door.values.get("workdir") or ""
    if addresses.is_address(run) and addresses.parse(run, "workdir") == address:
        raise UserError(f"--{flag}={address} is --workdir itself: to go on with that run leave --{flag} out")
    with reads_run(address, flag, door) as local, contextlib.ExitStack() as stack:
        if os.path.exists(os.path.join(local, run_config.CONFIG_FILE)):
            data = run_config.load(local).get("paths", {}).get("data_dir", "")
            if addresses.is_address(data) and names.local_of(data) == data:
                stack.enter_context(reads_data_set(addresses.parse(data, flag), flag, door))
        yield local


@contextlib.contextmanager
def reads_checkpoint(address: Address, flag: str, door) -> Iterator[str]:
    """One checkpoint of the run that --workdir gives, such as s3://bucket/run/checkpoints/step-100."""
    del door
    local = names.local_of(str(address)).removesuffix(".index")
    if not os.path.exists(f"{local}.index"):
        raise UserError(f"--{flag}={address} is no checkpoint of --workdir: choose from best, latest, or one that "
                        f"{stored_list.LIST} there names")
    yield local


def _named(scratch, address, door):
    """A local folder under names that tell runs apart, as their addresses do."""
    local = os.path.join(scratch, address.host.replace(":", "_"), *address.key.split("/"))
    os.makedirs(local)
    return door.named(local, address)


def check_empty(remote: Folder) -> None:
    """`UserError` where there is something that no training wrote: it would be mixed with the run."""
    others = [name for name in remote.names() if name != LEASE_FILE]
    if others:
        raise UserError(f"{remote.given} holds files but no run ({others[0]} is one of {len(others)}): choose another "
                        f"--{remote.flag}")


def _fetch_sides(remote: Folder, local: str, wanted) -> None:
    for name, content in zip(wanted, transfer.in_parallel(remote.read, wanted)):
        if content is not None:
            with open(os.path.join(local, name), "wb") as file:
                file.write(content)


def _fetch_newest(remote: Folder, local: str, cache, listed: StoredList) -> None:
    """The newest checkpoint that is whole, and the best; `DataError` where there are some and none is."""
    latest = listed.of(LATEST_FOLDER)
    for stored in reversed(latest):
        try:
            stored_list.fetched(remote, local, cache, [stored])
            break
        except DataError as error:
            logging.warning("%s: going back to the checkpoint before it", error)
            for name in stored.files:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(os.path.join(local, name))
    else:
        if latest:
            raise DataError(f"no checkpoint in {remote.given} can be read: use another --{remote.flag}")
    if best := listed.of(BEST_FOLDER):
        stored_list.fetched(remote, local, cache, best[-1:])


def _fetch_for_reading(remote: Folder, local: str, door) -> None:
    """The checkpoint that a flag names, or newest and best; again where a training has replaced them meanwhile."""
    wanted = [(door.values.get(flag) or "").removesuffix(".index") for flag in ("eval_checkpoint", "export_checkpoint")]
    for attempt in range(_READS):
        found = stored_list.read(remote)
        if found is None:
            return
        named = [one for one in found[0].checkpoints if str(remote.address.child(one.prefix)) in wanted]
        chosen = named or [*found[0].of(LATEST_FOLDER)[-1:], *found[0].of(BEST_FOLDER)[-1:]]
        try:
            stored_list.fetched(remote, local, door.cache, chosen)
            return
        except VanishedError:
            if attempt == _READS - 1 or stored_list.read(remote) == found:
                raise


def _taken_over(remote: Folder, lease: Lease, found):
    """The list, now written by this training: whoever had it before can replace it no more."""
    listed = StoredList(lease.token, found[0].checkpoints if found else ())
    try:
        return listed, remote.replace(stored_list.LIST, listed.content(), found and found[1], lease.certain)
    except TakenError as error:
        raise BusyError(f"{remote.given}: another training has written {stored_list.LIST} meanwhile: run again when it "
                        "has ended") from error


def _upload_changed(remote: Folder, local: str, before: dict) -> None:
    """Uploads what a command has changed, metrics.json last."""
    changed = run_uploads.changed_sides(local, before)
    transfer.upload(remote, local, changed, [METRICS] if METRICS in changed else [])
