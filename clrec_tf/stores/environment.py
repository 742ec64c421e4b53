"""The environment's settings of S3, checked before obstore reads them: it panics at some that are wrong."""
import os
import re

from clrec_tf.errors import UserError

ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_WORDS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION",
          *ENDPOINTS)
_SECRET = r"\S(?:[^\r\n]*\S)?"  # whose characters are not sent: blanks inside, too
_ENDPOINT = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(:\d+)?(/[^?#]*)?")


def endpoint() -> str:
    """The address of the server; "" for Amazon's own."""
    return next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), "")


def check_s3(bucket: str, given: str) -> None:
    """`UserError` where a setting is empty, has blanks, or is no address of a server.

    Args:
      bucket: that the address of the server must not name again.
      given: flag and address, for errors.
    """
    for name in _WORDS:
        value = os.environ.get(name)
        if value is None:
            continue
        if not value:
            raise UserError(f"{given}: {name} is set, and empty: give it a value, or unset it")
        if not re.fullmatch(_SECRET if name == "AWS_SECRET_ACCESS_KEY" else r"[\x21-\x7e]+", value):
            raise UserError(f"{given}: {name} has a blank, a line end or a character that is not ASCII: correct it; a "
                            "secret made by echo ends with a line end, printf makes none")
        if name in ENDPOINTS and not _ENDPOINT.fullmatch(value):
            raise UserError(f"{given}: {name}={value} is no address of a server: it is http://HOST:PORT or "
                            "https://HOST:PORT")
        if name in ENDPOINTS and value.rstrip("/").endswith(f"/{bucket}"):
            raise UserError(f"{given}: {name}={value} ends with the bucket, which is added to it: leave it out there")
