"""Addresses in stores that flags give: doctor looks at them where they are, and fetches nothing to work on."""
import contextlib
import dataclasses
from typing import Iterable
from typing import Iterator
from typing import Mapping

from clrec_tf.stores.address import Address
from clrec_tf.stores.door import Door
from clrec_tf.stores.door import Opener

_PART = 3  # of doctor's deadline: what a request has, so that a silent store is told of in time


@dataclasses.dataclass(frozen=True)
class Place:
    """One address that a flag gives, and the door that its folder is opened by."""
    flag: str
    address: Address
    door: Door

    def __str__(self):
        return f"--{self.flag}={self.address}"

    def within(self, deadline_s: float) -> "Place":
        """The same, whose requests end well before doctor's deadline."""
        settings = self.door.settings
        seconds = max(1.0, min(settings.store_deadline_s, deadline_s / _PART))
        return dataclasses.replace(self, door=Door(dataclasses.replace(settings, store_deadline_s=seconds),
                                                   self.door.values))


class StoredPlaces:
    """The addresses of one command line; flags that give some are empty in its configuration."""

    def __init__(self):
        self._places: list[Place] = []

    def openers(self, flags: Iterable[str]) -> Mapping[str, Opener]:
        """Openers for `command_line.run`, which note addresses and open none."""
        return {flag: self._noted for flag in flags}

    def of(self, flag: str) -> list[Place]:
        """What a flag gives."""
        return [place for place in self._places if place.flag == flag]

    @contextlib.contextmanager
    def _noted(self, address: Address, flag: str, door: Door) -> Iterator[str]:
        self._places.append(Place(flag, address, door))
        yield ""
