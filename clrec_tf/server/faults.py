"""Errors that a request is answered with, each with its HTTP status."""
from clrec_tf.errors import UserError


class ServiceError(UserError):
    """An error that has an HTTP status. `retry_s`: seconds after which trying again may help, if it may."""
    status = 400

    def __init__(self, text: str, retry_s=None):
        super().__init__(text)
        self.retry_s = retry_s


class Unauthenticated(ServiceError):
    """The request shows no token that is in force."""
    status = 401


class NotFound(ServiceError):
    """No such model, version or page."""
    status = 404


class TooSlow(ServiceError):
    """The request did not arrive in time."""
    status = 408


class TooLarge(ServiceError):
    """The body is too large."""
    status = 413


class Gone(ServiceError):
    """The client closed the connection; nobody reads this."""
    status = 499


class TooMany(ServiceError):
    """One client has too many requests under way."""
    status = 429


class Unavailable(ServiceError):
    """The service has too much to do, or is about to end."""
    status = 503


class Late(ServiceError):
    """The answer would have come too late."""
    status = 504


class Broken(ServiceError):
    """A defect of the service."""
    status = 500
