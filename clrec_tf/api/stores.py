"""Addresses of stores as arguments of the library.

Each call opens what it reads or writes there, and closes it before it returns: what it wrote is complete then, and
nobody is kept out any more. The objects that it returns remember addresses, and their own calls open them again;
--cache_dir has the files meanwhile.
"""
import contextlib
import dataclasses
import functools
import os
from typing import Any, Iterator, Mapping

from clrec_tf.config import SECTIONS
from clrec_tf.data.stored_data import reads_data_set
from clrec_tf.publishing.stored_exports import exports_run
from clrec_tf.publishing.stored_exports import exports_to
from clrec_tf.settings.stores import StoresConfig
from clrec_tf.stores import address as addresses
from clrec_tf.stores import door
from clrec_tf.stores import names
from clrec_tf.stores.files import reads_files
from clrec_tf.system import own_log
from clrec_tf.system.local_path import local_path
from clrec_tf.training import stored_run

TRAIN = dict(data_dir=reads_data_set, init_from=stored_run.starts_from_run, workdir=stored_run.keeps_run)
EVALUATE = dict(data_dir=reads_data_set, workdir=stored_run.reads_run, eval_checkpoint=stored_run.reads_checkpoint,
                curve_points=reads_files)
EXPORT = dict(data_dir=reads_data_set, export_dir=exports_to,
              workdir=functools.partial(exports_run, stored_run.reads_run),
              export_checkpoint=stored_run.reads_checkpoint, attribute_items=reads_files, curve_points=reads_files)
HISTORY = dict(workdir=stored_run.reads_record)


@contextlib.contextmanager
def opened(settings: Mapping[str, Any], openers: Mapping[str, door.Opener]) -> Iterator[dict[str, Any]]:
    """Settings in which local paths stand for addresses of stores, as commands get them.

    Args:
      settings: by name; what is not given has the flag's default, --cache_dir and the like too.
      openers: of the settings that may be addresses (``stores/door``).

    Raises:
      UserError: what lies there cannot be had; messages name addresses.
    """
    values = {field.name: field.default for section in SECTIONS.values() for field in dataclasses.fields(section)}
    values |= settings
    of_stores = StoresConfig(**{field.name: values[field.name] for field in dataclasses.fields(StoresConfig)})
    with door.opened(values, openers, of_stores) as local, own_log.rewritten(names.shown):
        yield {name: local[name] for name in settings}


def lasting(path: str, flag: str) -> str:
    """A path that stays the same place when the process changes its folder; an address of a store as it is."""
    return path if addresses.is_address(path) else os.path.abspath(local_path(path, flag))


def without_addresses(settings: Mapping[str, Any], openers: Mapping[str, door.Opener]) -> dict[str, Any]:
    """The settings with "" where an address stands that `opened` takes: what may be checked before a store is asked,
    and what is left to remember when it is closed."""
    def has_address(name, value):
        return name in openers and any(map(addresses.is_address, value.split(",")))

    return {name: "" if has_address(name, value) else value for name, value in settings.items()}
