"""Errors a person can act on: what is wrong, which value, and the remedy."""


class UserError(ValueError):
    """Bad input or configuration. Commands print its message without a traceback and exit with its code."""

    exit_code = 2


class DataError(UserError):
    """A data set on disk is missing, damaged or does not match its manifest or schema."""


class ClusterError(UserError):
    """A part of the cluster is absent, lost or silent. Run again to go on from the last checkpoint."""

    exit_code = 69
