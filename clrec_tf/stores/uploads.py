"""What waits to be uploaded when a step of a command is done, by its local path."""
from typing import Callable

_WAITING: dict[str, Callable[[], None]] = {}


def wait(path: str, upload: Callable[[], None]) -> None:
    """From now on `now(path)` calls `upload`, once."""
    _WAITING[path] = upload


def now(path: str) -> None:
    """Uploads what a path holds, if it stands for an address and was not uploaded yet. Raises: as `transfer.upload`."""
    upload = _WAITING.pop(path, None)
    if upload:
        upload()
