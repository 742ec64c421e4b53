"""Where text is kept that had to be unpacked or written anew: in memory while it is short, else in a scratch file."""
import dataclasses
from typing import Iterable, Union

from clrec_tf.system import scratch


@dataclasses.dataclass(frozen=True)
class Room:
    """What there is for such text.

    Attributes:
      folder: of scratch files; "": all stays in memory.
      held: bytes up to which a text stays in memory.
    """
    folder: str = ""
    held: int = 0

    def writer(self) -> "Writer":
        """Takes one text."""
        return Writer(self)

    def keep(self, chunks: Iterable[bytes]) -> Union[bytes, str]:
        """A text that comes in chunks: its bytes, or the path of a file of them."""
        writer = self.writer()
        for chunk in chunks:
            writer.write(chunk)
        return writer.close()


class Writer:
    """One text that is written from its beginning to its end.

    Args:
      room: to write it to.
    """

    def __init__(self, room: Room):
        self._room, self._chunks, self._size, self._path = room, [], 0, ""

    def write(self, chunk: bytes) -> None:
        """Takes further bytes; `UserError` where the scratch folder is full."""
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._room.folder and self._size > self._room.held:
            self._pour()

    def close(self) -> Union[bytes, str]:
        """The bytes, or the path of a file of them."""
        if self._path:
            self._pour()
        return self._path or b"".join(self._chunks)

    def _pour(self) -> None:
        with scratch.write_errors(self._room.folder):
            if not self._path:
                self._path = scratch.new_file(self._room.folder, "text-")
            with open(self._path, "ab") as file:
                file.writelines(self._chunks)
        self._chunks, self._size = [], 0
