"""Errors of a day's stages, in daily's own words."""
from clrec_tf.errors import BusyError
from clrec_tf.errors import DiskFullError
from clrec_tf.errors import UserError


def explained(error: UserError, day: str, hint: str) -> UserError:
    """The same error with the day and what daily's user can do.

    Args:
      error: of a stage. A full disk, or a folder in use, has its own remedy.
      day: its name.
      hint: which flags daily sets itself, and the remedy.
    """
    ours = "" if isinstance(error, (BusyError, DiskFullError)) else f". ({hint})"
    return type(error)(f"day {day}: {str(error).rstrip('.')}{ours}")
