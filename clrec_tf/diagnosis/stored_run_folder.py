"""A run in a store: its settings beside those given, its list of checkpoints and the objects that it names."""
from typing import Callable
from typing import Iterator
from typing import Optional

from clrec_tf.config import Config
from clrec_tf.data.schema import Schema
from clrec_tf.diagnosis.described import described
from clrec_tf.diagnosis.findings import About
from clrec_tf.diagnosis.findings import Finding
from clrec_tf.diagnosis.run_folder import check_settings
from clrec_tf.diagnosis.sizes import shown
from clrec_tf.diagnosis.store_objects import check_lease
from clrec_tf.diagnosis.store_objects import wrong_objects
from clrec_tf.diagnosis.stored_places import Place
from clrec_tf.stores.folder import Folder
from clrec_tf.training import run_config
from clrec_tf.training import stored_list
from clrec_tf.training.places import check_apart
from clrec_tf.training.stored_run import check_empty

REMEDY = "restore the objects from a copy, or use another --workdir"


def check_stored_run(about: About, place: Place, full: bool, must_be_there: bool) -> Iterator[Finding]:
    """Compares the objects of every checkpoint with the list that names them: sizes, in full by sha256 too.

    Args:
      about: makes the findings.
      place: of the run.
      full: whether contents are compared.
      must_be_there: whether no run is a fault: training would otherwise begin one.
    """
    folder = place.door.folder(place.address, place.flag)
    yield from check_lease(about, folder)
    found = stored_list.read(folder)
    if found is None and must_be_there:
        yield about.fault(f"no run is there: it has no {stored_list.LIST}", "correct the address")
    elif found is None:
        check_empty(folder)
        yield about.note("it holds no run yet: training would begin anew")
    elif not found[0].checkpoints:
        yield about.note("its list names no checkpoint yet")
    elif folder.head(run_config.CONFIG_FILE) is None:
        yield about.fault(f"{run_config.CONFIG_FILE} is missing beside {stored_list.LIST}", REMEDY)
    for stored in found[0].checkpoints if found else ():
        yield from _checkpoint(about, place, folder, stored, full)


def _checkpoint(about: About, place: Place, folder: Folder, stored, full: bool) -> Iterator[Finding]:
    entries = list(stored.files.values())
    with place.door.scratch() as scratch:
        wrong = wrong_objects(folder, entries, scratch if full else "")
    if wrong and stored not in _listed_now(folder):  # a training that goes on has removed it
        return
    for text in wrong:
        yield about.fault(f"checkpoint {stored.prefix}: {text}", REMEDY)
    if not wrong:
        yield about.ok(f"checkpoint {stored.prefix}: {len(entries)} objects, {shown(sum(e.bytes for e in entries))}, "
                       "agree with the list by " + ("sha256" if full else "size"))


def _listed_now(folder: Folder) -> tuple:
    found = stored_list.read(folder)
    return found[0].checkpoints if found else ()


def check_stored_settings(about: About, place: Place, config: Config, given: frozenset, data_dir: str,
                          schema: Callable[[], Optional[Schema]]) -> Iterator[Finding]:
    """Compares a run's config.json with the settings given and with the data; nothing where there is none.

    Args:
      about: makes the findings.
      place: of the run.
      config: all settings.
      given: names of those that were given.
      data_dir: path or address of the data, for errors.
      schema: of the data, None where there is none to be read.
    """
    check_apart(str(place.address), data_dir)
    folder = place.door.folder(place.address, place.flag)
    content = folder.read(run_config.CONFIG_FILE)
    if content is None:
        return
    with described(place.door, folder, {run_config.CONFIG_FILE: content}) as local:
        saved, facts = run_config.load(local), schema()
        if facts is not None:
            run_config.check_schema(saved, facts.hash(), data_dir, local)
    yield from check_settings(about, saved, config, given, facts)
