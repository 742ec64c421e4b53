"""Errors a person can act on: what is wrong, which value, and the remedy."""
import errno
import os

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class UserError(ValueError):
    """Bad input or configuration. Commands print its message without a traceback and exit with its code."""

    exit_code = 2


class DataError(UserError):
    """A data set on disk is missing, damaged or does not match its manifest or schema."""


class ClusterError(UserError):
    """A part of the cluster is absent, lost or silent. Run again to go on from the last checkpoint."""

    exit_code = 69


class BusyError(UserError):
    """Another process has what this one needs, or was faster. The same command may do later."""

    exit_code = 75


class DiskFullError(UserError):
    """No space is left, or a quota is used up. The same command may do when there is space again."""

    exit_code = 74


def disk_full(error: BaseException) -> bool:
    """Whether an error is that of a full disk. TensorFlow passes on what the operating system says as text only."""
    if getattr(error, "errno", None) in _DISK_FULL:
        return True
    return any(words in str(error) for words in (*map(os.strerror, _DISK_FULL), "is the disk full?"))


def write_error(error: BaseException) -> type[UserError]:
    """The kind of `UserError` for an error of writing files."""
    return DiskFullError if disk_full(error) else UserError
