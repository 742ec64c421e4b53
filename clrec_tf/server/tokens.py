"""The bearer tokens that requests must show, from a file that may be exchanged while the service runs."""
import hashlib
import hmac
import os
import re
import stat
import time
from typing import Callable
from typing import Sequence

from absl import logging

from clrec_tf.errors import UserError
from clrec_tf.server.faults import Unauthenticated

MOST_TOKENS = 100
_SHAPE = re.compile(r"[A-Za-z0-9._~+/-]{16,512}=*", re.ASCII)  # of RFC 6750, and not too short to be guessed
_MOST_BYTES = 65_536
_LOOK_S = 1.0
_SCHEME = re.compile(r"bearer +(\S+)", re.ASCII | re.IGNORECASE)


class Tokens:
    """The tokens of a file, one a line; it is looked at again at most once a second.

    A file that cannot be read any more, or holds no token, changes nothing: the tokens before stay, and the log says so.
    Neither the log nor an error ever quotes a token; only their sha256 are kept.

    Args:
      path: the file.
      clock: seconds.

    Raises:
      UserError: the file holds no tokens, or others may write to it.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic):
        self._path, self._clock = path, clock
        self._seen, self._digests = _read(path)
        self._looked = clock()

    def check(self, sent: Sequence[str]) -> None:
        """`Unauthenticated` unless a request shows one of the tokens.

        Args:
          sent: the values of its `authorization` headers.
        """
        self._look_again()
        if len(sent) != 1 or not (match := _SCHEME.fullmatch(sent[0])):
            raise Unauthenticated("the request needs one header `Authorization: Bearer TOKEN`, with a token of this "
                                  "service's --token_file")
        mine, found = _digest(match[1]), False
        for digest in self._digests:  # all of them, so that the time says nothing
            found |= hmac.compare_digest(mine, digest)
        if not found:
            raise Unauthenticated("the token is none of this service's: ask its operator for the one that is in force")

    def _look_again(self):
        now = self._clock()
        if now < self._looked + _LOOK_S:
            return
        self._looked = now
        try:
            if _state(os.stat(self._path)) == self._seen:
                return
            self._seen, self._digests = _read(self._path)
            logging.info("--token_file=%s was read again: %d token(s)", self._path, len(self._digests))
        except OSError as error:  # gone, say
            logging.error("--token_file=%s cannot be read (%s): the tokens before stay in force", self._path,
                          error.strerror)
        except UserError as error:
            logging.error("%s: the tokens before stay in force", error)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _state(status: os.stat_result) -> tuple:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _read(path: str):
    """(state of the file, sha256 of each token)."""
    flag = f"--token_file={path}"
    try:
        status = os.stat(path)
        if status.st_mode & stat.S_IWOTH:
            raise UserError(f"{flag}: everybody may write to it: chmod o-w, and change the tokens")
        with open(path, encoding="utf-8") as file:
            text = file.read(_MOST_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{flag} cannot be read ({getattr(error, 'strerror', '') or 'it is not text'}): give a file "
                        "of tokens, one a line") from None  # the text of the error may quote the file
    tokens = {number: line.strip() for number, line in enumerate(text.splitlines(), 1) if line.strip()}
    wrong = [number for number, token in tokens.items() if not _SHAPE.fullmatch(token)]
    if wrong or not tokens or len(tokens) > MOST_TOKENS or len(text) > _MOST_BYTES:
        why = f"line {wrong[0]} is none" if wrong else f"it holds {len(tokens)}"
        raise UserError(f"{flag}: {why}: give 1 to {MOST_TOKENS} tokens, one a line, of 16 to 512 letters, digits and "
                        "-._~+/, such as `openssl rand -hex 32` makes")
    return _state(status), tuple(map(_digest, tokens.values()))
