"""Errors a person can act on: what is wrong, which value, and the remedy."""
import errno

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


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
