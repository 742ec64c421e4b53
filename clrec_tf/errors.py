"""Errors a person can act on: what is wrong, which value, and the remedy."""


class UserError(ValueError):
    """Bad input or configuration. Commands print its message without a traceback and exit with code 2."""


class DataError(UserError):
    """A data set on disk is missing, damaged or does not match its manifest or schema."""
