"""What may be an id, for logs, bundles and updates alike."""
import polars as pl

from clrec_tf.errors import DataError

MAX_ID_LENGTH = 512  # characters; a bundle's ids have fixed-width rows, so one long id would widen them all
LARGEST = 10**18 - 1  # of integer ids: those of 19 digits need not fit into 64 bits, and stay text
INTEGER = r"^(0|[1-9][0-9]{0,17})$"


def check_id(text: str, where: str) -> None:
    """`DataError` where text cannot be an id, which is a line of a file."""
    if not 0 < len(text) <= MAX_ID_LENGTH or any(mark in text for mark in "\n\r\0"):
        raise DataError(f"{where}: item id {text[:80]!r} must have 1 to {MAX_ID_LENGTH} characters, none of them a "
                        "line break or a zero byte")


def has_line_break(text: pl.Expr) -> pl.Expr:
    """Of `check_id`'s rule, the part that is also a rule of user ids."""
    return text.str.contains(r"[\r\n]")


def is_unfit(text: pl.Expr) -> pl.Expr:
    """Of `check_id`'s rule, the rest."""
    return (text.str.len_chars() > MAX_ID_LENGTH) | text.str.contains("\0", literal=True)


def is_integer(text: pl.Expr) -> pl.Expr:
    """Whether text is an integer from 0 to `LARGEST`, written as such."""
    return text.str.contains(INTEGER)
