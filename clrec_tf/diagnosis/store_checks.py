"""Which checks the addresses in stores need, by the flags that give them."""
import functools
import os
from typing import Callable
from typing import Iterator
from typing import Optional

from clrec_tf.config import Config
from clrec_tf.data.schema import Schema
from clrec_tf.diagnosis import stored_bundles
from clrec_tf.diagnosis import stored_data_set
from clrec_tf.diagnosis import stored_run_folder
from clrec_tf.diagnosis import store_trial
from clrec_tf.diagnosis.findings import About
from clrec_tf.diagnosis.findings import Check
from clrec_tf.diagnosis.findings import Finding
from clrec_tf.diagnosis.sizes import shown
from clrec_tf.diagnosis.stored_places import Place
from clrec_tf.diagnosis.stored_places import StoredPlaces
from clrec_tf.stores.files import listed
from clrec_tf.stores.store_errors import StoreError

FILES = ("input", "item_features", "dense_features", "user_features", "impressions", "attribute_items", "users",
         "upsert", "withdraw")
WRITTEN_FOLDERS = ("workdir", "export_dir", "days_dir", "impression_log")
WRITTEN_FILES = ("html", "output", "embeddings", "vectors")
# All flags that take addresses; those named last are part of others, or read by measurements alone.
ADDRESSED = (*FILES, "vocabulary_from", "data_dir", "init_from", *WRITTEN_FOLDERS, *WRITTEN_FILES,
             "eval_checkpoint", "export_checkpoint", "curve_points")
_MAKES_DATA = {"generate", "prepare"}  # stages


def may_make_data(config: Config, stored: StoredPlaces) -> bool:
    """Whether the settings are of a command that makes a data set where there is none."""
    return bool(config.prepare.input or stored.of("input") or _MAKES_DATA & set(config.train.stages))


def store_checks(config: Config, given: frozenset, stored: StoredPlaces, schema: Callable[[], Optional[Schema]]
                 ) -> list[Check]:
    """All checks of addresses; every request ends well before doctor's deadline.

    Args:
      config: all settings, in which flags that give addresses are empty.
      given: names of those that were given.
      stored: the addresses.
      schema: of --data_dir, wherever it lies.
    """
    doctor = config.doctor
    made = may_make_data(config, stored)
    full, written = doctor.doctor_mode == "full", lambda flag: flag not in doctor.doctor_read_only
    data_dir = config.paths.data_dir or ",".join(str(place.address) for place in stored.of("data_dir"))
    wanted = [("input", flag, "correct the address", _read, {}) for flag in FILES] + [
        ("data", "vocabulary_from", stored_data_set.REMEDY, _data, dict(full=full, made=False, written=False)),
        ("data", "data_dir", stored_data_set.REMEDY, _data, dict(full=full, made=made, written=written("data_dir"))),
        ("run", "init_from", stored_run_folder.REMEDY, stored_run_folder.check_stored_run,
         dict(full=full, must_be_there=True)),
        ("run", "workdir", stored_run_folder.REMEDY, stored_run_folder.check_stored_run,
         dict(full=full, must_be_there=not written("workdir"))),
        ("run", "workdir", stored_run_folder.REMEDY, stored_run_folder.check_stored_settings,
         dict(config=config, given=given, data_dir=data_dir, schema=schema)),
        ("bundle", "export_dir", stored_bundles.REMEDY, stored_bundles.check_stored_bundles,
         dict(full=full, wanted=config.serve.serve_version))]
    wanted += [("storage", flag, store_trial.REMEDY, _tried, dict(is_file=flag in WRITTEN_FILES))
               for flag in WRITTEN_FOLDERS + WRITTEN_FILES if written(flag)]
    return [_check(name, place.within(doctor.doctor_deadline_s), remedy, functools.partial(find, **values))
            for name, flag, remedy, find, values in wanted for place in stored.of(flag)]


def _check(name: str, place: Place, remedy: str, find) -> Check:
    about = About(name, str(place))

    def told():
        try:
            yield from find(about, place)
        except StoreError as error:
            yield about.fault(f"{error} (doctor gave each request {place.door.settings.store_deadline_s:g} s)", "see "
                              "whether the store answers from this machine: endpoint, proxy, firewall, name service")
    return Check(name, about.subject, told, remedy)


def _read(about: About, place: Place) -> Iterator[Finding]:
    """Whether there are objects, and the first of each can be read."""
    folder, _, found = listed(place.address, place.flag, place.door)
    name, size = next(iter(found.items()))
    folder.fetch(name, os.devnull, min(size, 1))
    yield about.ok(f"{len(found)} object(s) of {shown(sum(found.values()))} are listed, and {name} can be read")


def _data(about: About, place: Place, full: bool, made: bool, written: bool) -> Iterator[Finding]:
    """A data set that is there, or the place where one is to be made."""
    if not made or stored_data_set.is_there(place):
        yield from stored_data_set.check_stored_data(about, place, full)
        return
    if written:
        yield from _tried(about, place, is_file=False)
    yield from stored_data_set.check_to_be_made(about, place)


def _tried(about: About, place: Place, is_file: bool) -> Iterator[Finding]:
    address = place.address.folder if is_file else place.address
    yield from store_trial.check_stored(about, place.door.folder(address, place.flag), is_file)
