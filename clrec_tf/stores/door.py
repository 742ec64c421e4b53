"""The door between flags and the code: commands get local paths in place of addresses.

How a command takes a flag from stores: it names an opener for it, `command_line.run(main, …, stores={"data_dir":
reads_data_set})`. An opener is a function (address, flag, door) -> context that gives a local path, or "" to leave the
address out. On entering it fetches what the command will read, or prepares a place to write; on leaving without an
error it uploads. Openers stand beside what they know: ``files`` (single files), ``data/stored_data`` (data sets),
``training/stored_run`` (runs), ``publishing/stored_exports`` and ``retrieval/stored_versions`` (bundles).
Flags without an opener refuse addresses (``system/local_path``), and nothing below the commands sees one.

What an opener can use: `door.folder` for the store's objects, `door.cache`, `door.scratch` for a place of its own,
`door.settings`, and `door.values`, the values of all flags.
"""
import contextlib
import functools
import os
from typing import Callable, ContextManager, Iterator, Mapping, Sequence

from clrec_tf.errors import UserError
from clrec_tf.stores import address as addresses
from clrec_tf.stores import names
from clrec_tf.stores.address import Address
from clrec_tf.stores.cache import Cache
from clrec_tf.stores.folder import Folder
from clrec_tf.stores.folder import open_folder
from clrec_tf.stores.scratch import scratch_folder

Opener = Callable[[Address, str, "Door"], ContextManager[str]]


class Door:
    """What openers share.

    Args:
      settings: a `StoresConfig`.
      values: name -> value of every flag, as given.
    """

    def __init__(self, settings, values: dict):
        self.settings, self.values = settings, values
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        self.cache_dir = os.path.abspath(settings.cache_dir or os.path.join(home, "clrec_tf"))

    @functools.cached_property
    def cache(self) -> Cache:
        """Files of stores on this machine."""
        return Cache(self.cache_dir, int(self.settings.cache_gb * 1e9))

    def folder(self, address: Address, flag: str, deadline_s: float = 0.0) -> Folder:
        """The objects under an address; `deadline_s` of one request, --store_deadline_s by default."""
        return open_folder(address, flag, deadline_s or self.settings.store_deadline_s)

    def scratch(self) -> ContextManager[str]:
        """A folder of this process' own, on the file system of the cache."""
        return scratch_folder(self.cache_dir)

    @contextlib.contextmanager
    def named(self, path: str, address: Address) -> Iterator[str]:
        """Context in which messages and records name the address in place of the path, as do errors that leave it."""
        names.note(path, str(address))
        try:
            yield path
        except UserError as error:  # here, for outside nobody knows what the path stands for
            text = names.shown(str(error))
            if text == str(error):
                raise
            raise type(error)(text) from error
        finally:
            names.forget(path)


@contextlib.contextmanager
def opened(values: dict, openers: Mapping[str, Opener], settings, unread: Sequence[str] = ()) -> Iterator[dict]:
    """The values of all flags, in which local paths stand for the addresses of flags that have an opener.

    Args:
      values: name -> value of every flag; lists are several paths, and so is text with commas.
      openers: name of a flag -> its opener.
      settings: a `StoresConfig`.
      unread: paths that the command does not read, as in a flagfile of several commands: addresses are left out.

    Raises:
      UserError: an address that is none, or what the openers raise.
    """
    door = Door(settings, values)
    with contextlib.ExitStack() as stack:
        def local(part, flag):
            if not addresses.is_address(part):
                return part
            address = addresses.parse(part, flag)
            return stack.enter_context(openers[flag](address, flag, door))

        changed = {name: "" for name in unread if any(map(addresses.is_address, values[name].split(",")))}
        for flag in openers:  # in their order: later ones may need the earlier
            value = values.get(flag) or ""
            parts = value if isinstance(value, (list, tuple)) else value.split(",")
            if any(map(addresses.is_address, parts)):
                parts = [path for part in parts if (path := local(part, flag))]
                changed[flag] = parts if isinstance(value, (list, tuple)) else ",".join(parts)
        yield {**values, **changed}
