"""What goes wrong in a store, as errors that name the flag, the address and the remedy."""
import contextlib
import re

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError


class StoreError(UserError):
    """The store did not answer, or not well, until its deadline. The same command may do later."""

    exit_code = 75


class VanishedError(DataError):
    """What a list names is not in the store."""


class TakenError(Exception):
    """A conditional write found another object, or another version of it, than it was made for."""


# Parts of S3's, Google's and TensorFlow's texts -> what is at fault, and the remedy. The first that fits counts.
_CAUSES = (
    (r"non-2xx status code: 4\d\d[^<]*<(?i:!doctype|html)", "a web page answers in the store's place",
     "see AWS_ENDPOINT_URL, HTTPS_PROXY and NO_PROXY"),
    (r"407 Proxy", "a proxy before the store wants a password", "see HTTPS_PROXY and NO_PROXY"),
    (r"NoSuchBucket|bucket does not exist", "there is no such bucket",
     "make it, or correct the name"),
    (r"RequestTimeTooSkewed", "the clock of this machine is wrong", "set it"),
    (r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|ExpiredToken|invalid_grant|401 Unauthorized",
     "the store does not know these credentials, or they have expired",
     "correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or GOOGLE_APPLICATION_CREDENTIALS"),
    (r"Failed to read token file", "the credentials cannot be read", "correct AWS_WEB_IDENTITY_TOKEN_FILE"),
    (r"169\.254\.169\.254|metadata\.google|instance metadata|no credentials|MissingSecurityHeader",
     "no credentials were found",
     "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or for gs:// GOOGLE_APPLICATION_CREDENTIALS"),
    (r"QuotaExceeded|StorageFull", "the store is full", "remove what is not needed, or have the quota raised"),
    (r"InvalidObjectState", "the object is archived", "restore it from the archive first"),
    (r"AccessDenied|403 Forbidden|[Pp]ermission|Forbidden", "no permission",
     "allow reading, writing, listing and deleting under this address"),
    (r"PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraint|301 Moved|redirect without LOCATION",
     "the bucket is in another region, or behind another endpoint", "set AWS_REGION, or AWS_ENDPOINT_URL, to it"),
    (r"NotImplemented|501 Not Implemented", "the store cannot do this, which may be a write on a condition",
     "use a store that has If-None-Match and If-Match"),
    (r"<Code>RequestTimeout|<Code>OperationAborted", "", ""),  # may do later
    (r"non-2xx status code: 4(?!04|08|09|12|25|29)\d\d", "the store refuses the request, and would again",
     "see whether the credentials have expired, AWS_REGION is the bucket's, and AWS_ENDPOINT_URL is a store's"),
)


@contextlib.contextmanager
def told(given: str, doing: str, name: str = "", conditional: bool = False):
    """Context in which errors of the store's library become `UserError`s.

    Args:
      given: flag and address, such as "--data_dir=s3://bucket/data".
      doing: "read", "written", "listed" or "deleted".
      name: of the object in that folder.
      conditional: whether it is written on a condition.

    Raises:
      VanishedError: it is not there; DataError: it is shorter than what is read; TakenError: a condition does not
      hold; StoreError: try again; UserError: the remedy is another.
    """
    from obstore import exceptions  # pylint: disable=import-outside-toplevel  (of the extra)
    try:
        yield
    except (exceptions.BaseError, OSError) as error:
        if conditional and isinstance(error, (exceptions.AlreadyExistsError, exceptions.PreconditionError)):
            raise TakenError(name) from error
        if isinstance(error, OSError) and not isinstance(error, exceptions.BaseError) and error.errno:
            raise  # of a local file
        text = f"{type(error).__name__}: {error}"
        what = f"{name} in {given}" if name else given
        if re.search("InvalidRange|416 Range", text):
            raise DataError(f"{what} has fewer bytes than its list says: it is damaged, or another process has replaced "
                            "it; restore it, or make it anew") from error
        telling = _without_names(text, given, name)
        for pattern, fault, remedy in _CAUSES:
            if re.search(pattern, telling):
                if not fault:
                    break
                raise UserError(f"{given}: {fault} ({_short(text)}): {remedy}") from error
        if isinstance(error, (exceptions.NotFoundError, FileNotFoundError)):
            if doing == "written" and "status code: 404" in telling:  # else it is a file that is to be sent
                raise UserError(f"{what} cannot be written ({_short(text)}): the store knows no such place; correct "
                                "the bucket's name or AWS_ENDPOINT_URL") from error
            raise VanishedError(f"{what} is not there: restore it, or make it anew") from error
        raise StoreError(f"{what} cannot be {doing} ({_short(text)}): the store did not answer as it should until the "
                         "deadline (--store_deadline_s); run the same command again") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of obstore's Rust, and no `Exception`
            raise
        raise UserError(f"{given}: the store's library cannot work with its settings ({str(error)[:300]}): correct the "
                        "environment's variables that begin with AWS_ or GOOGLE_, and the files that they name"
                        ) from error


def _without_names(text, given, name):
    """A library's text without the user's own names, which may be words such as "permissions"."""
    host, _, key = given.partition("://")[2].partition("/")
    text = re.sub(r"https?://\S+", lambda url: "" if host and host in url[0] else url[0], text)
    return text.replace(f"{key}/{name}" if name else key, "") if key else text


def _short(text):
    """The telling part of a library's text: its first line, and the code of an XML answer."""
    code, message = re.search(r"<Code>([^<]*)", text), re.search(r"<Message>([^<]*)", text)
    if code:
        return f"{code[1]}: {message[1]}" if message and message[1] else code[1]
    return " ".join(text.split("Debug source:")[0].split())[:300]
