"""The body of an HTTP request, within its size and its time."""
import asyncio
from typing import Callable

from fastapi import Request
from starlette.requests import ClientDisconnect

from clrec_tf.server.faults import Gone
from clrec_tf.server.faults import TooLarge
from clrec_tf.server.faults import TooSlow
from clrec_tf.settings.service import ServeConfig


async def read_body(request: Request, settings: ServeConfig, take: Callable[[int], None]) -> bytes:
    """The whole body.

    Args:
      request: whose body has not been read.
      settings: of the service.
      take: called with the size of each part before it is stored; what it raises ends the reading.

    Raises:
      TooLarge, TooSlow: the body is larger than --max_request_bytes, or not complete after --read_timeout_s.
      Gone: the client has closed the connection.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > settings.max_request_bytes:
        raise _too_large(f"{announced} bytes", settings)
    parts, size = [], 0
    try:
        async with asyncio.timeout(settings.read_timeout_s):
            async for part in request.stream():
                size += len(part)
                if size > settings.max_request_bytes:
                    raise _too_large(f"{size} bytes and more", settings)
                take(len(part))
                parts.append(part)
    except ClientDisconnect:
        raise Gone("the client has gone before its request was there") from None
    except TimeoutError:
        raise TooSlow(f"the body did not arrive within {settings.read_timeout_s:g} s (--read_timeout_s)") from None
    return b"".join(parts)


def _too_large(size, settings):
    return TooLarge(f"the body has {size}, at most {settings.max_request_bytes} bytes are accepted "
                    "(--max_request_bytes): send fewer instances, and of a history the latest clicks")
