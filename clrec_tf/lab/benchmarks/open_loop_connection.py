"""One connection of the load generator, which reads as little of HTTP as it needs."""
import asyncio
from typing import Optional


class Connection(asyncio.Protocol):
    """One kept-alive connection, with at most one request under way. Args: load: told of answers and of the end."""

    def __init__(self, load):
        self._load, self._received, self._length = load, bytearray(), None
        self.transport: Optional[asyncio.Transport] = None
        self.request: Optional[int] = None  # number of the request under way

    def connection_made(self, transport):
        """See `asyncio.Protocol`."""
        self.transport = transport

    def send(self, number: int, message: bytes) -> None:
        """Sends the request of a number."""
        self.request, self._length = number, None
        self._received.clear()
        self.transport.write(message)

    def data_received(self, data):
        """Of an answer only status and length are read."""
        received = self._received
        received += data
        if self._length is None:
            end = received.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(received[:end]).lower()
            place = head.find(b"\r\ncontent-length:")
            if place < 0 or self.request is None:  # nothing that was asked for, or that is understood
                self.transport.abort()
                return
            self._length = end + 4 + int(head[place + 17:].split(b"\r\n", 1)[0])
        if len(received) >= self._length:
            number, self.request = self.request, None
            self._load.answered(number, int(received[9:12]), received)
            if b"connection: close" in received[:received.find(b"\r\n\r\n")].lower():
                self.transport.close()
            else:
                self._load.free(self)

    def connection_lost(self, exc):
        """See `asyncio.Protocol`."""
        self._load.lost(self)
