"""Addresses of stores as arguments of the library: inputs of `prepare`, and where bundles are."""
import contextlib
import dataclasses
from typing import Any, Iterator, Mapping

from clrec_tf.config import SECTIONS
from clrec_tf.errors import UserError
from clrec_tf.settings.stores import StoresConfig
from clrec_tf.stores import door
from clrec_tf.stores import names
from clrec_tf.system import own_log


@contextlib.contextmanager
def opened(settings: Mapping[str, Any], openers: Mapping[str, door.Opener]) -> Iterator[dict[str, Any]]:
    """Settings in which local paths stand for addresses of stores, as commands get them.

    Args:
      settings: by name; what is not given has the flag's default, --cache_dir and the like too.
      openers: of the settings that may be addresses (``stores/door``).

    Raises:
      UserError: what lies there cannot be had; messages name addresses.
    """
    defaults = {field.name: field.default for section in SECTIONS.values() for field in dataclasses.fields(section)}
    with door.opened({**defaults, **settings}, openers, StoresConfig()) as local, own_log.rewritten(names.shown):
        try:
            yield {name: local[name] for name in settings}
        except UserError as error:  # here, for outside nobody knows what the local paths stand for
            raise type(error)(names.shown(str(error))) from error
