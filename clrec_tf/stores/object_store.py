"""S3 and Google Cloud Storage through obstore: conditional writes, multipart uploads, tries again with backoff.

Settings of the stores come from the environment, as their own tools read it: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL; GOOGLE_APPLICATION_CREDENTIALS; or the machine's role.
"""
import datetime
import os

import obstore
from obstore import exceptions
from obstore import store as stores

from clrec_tf.errors import UserError
from clrec_tf.stores import environment
from clrec_tf.stores.folder import PART_BYTES
from clrec_tf.stores.folder import Version

_CONNECT_S = 5.0
_CONCURRENT_PARTS = 4


class ObjectStore:
    """A ``folder.Backend`` of one bucket."""

    def __init__(self, bucket):
        self._bucket = bucket

    def get(self, key):
        """See `Backend`."""
        answer = obstore.get(self._bucket, key)
        return bytes(answer.bytes()), _version(answer.meta)

    def get_range(self, key, start, length):
        """See `Backend`."""
        return bytes(obstore.get_range(self._bucket, key, start=start, length=length))

    def head(self, key):
        """See `Backend`."""
        meta = obstore.head(self._bucket, key)
        return meta["size"], _version(meta)

    def put(self, key, content, mode=None):
        """See `Backend`."""
        if isinstance(mode, Version):
            return self._replace(key, content, mode)
        return self._put(key, content, mode)

    def _replace(self, key, content, version):
        """Writes in place of a version. Ceph compares tags without their quotes, and knows none with them."""
        mode = {name: value for name, value in dict(e_tag=version.tag, version=version.generation).items() if value}
        try:
            return self._put(key, content, mode)
        except exceptions.PreconditionError:
            if '"' not in mode.get("e_tag", ""):
                raise
            return self._put(key, content, {**mode, "e_tag": version.tag.strip('"')})

    def _put(self, key, content, mode):
        result = obstore.put(self._bucket, key, content, mode=mode, chunk_size=PART_BYTES,
                             max_concurrency=_CONCURRENT_PARTS)
        return Version(result["e_tag"], result["version"])

    def delete(self, key):
        """See `Backend`."""
        obstore.delete(self._bucket, key)

    def list(self, key):
        """See `Backend`."""
        return [(meta["path"], meta["size"]) for chunk in obstore.list(self._bucket, key) for meta in chunk]


def _version(meta) -> Version:
    if not meta["e_tag"] and not meta["version"]:
        raise exceptions.GenericError("the answer has no ETag, so that it is no store's but a proxy's or a web page: "
                                      "see AWS_ENDPOINT_URL, HTTPS_PROXY and NO_PROXY")
    return Version(meta["e_tag"], meta["version"], meta["last_modified"].timestamp())


def open_backend(scheme: str, bucket: str, given: str, deadline_s: float) -> ObjectStore:
    """The bucket of a store; `UserError` where the environment's settings are wrong.

    Each call reads them: what is corrected in a notebook counts at once.
    """
    request_s = min(60.0, deadline_s)
    options = dict(timeout=_seconds(request_s), connect_timeout=_seconds(min(_CONNECT_S, request_s)))
    longest_s = min(15.0, deadline_s / 4)
    retries = dict(max_retries=1000, retry_timeout=_seconds(deadline_s), backoff=dict(
        init_backoff=_seconds(min(0.2, longest_s / 2)), max_backoff=_seconds(longest_s), base=2.0))
    if scheme == "s3":
        environment.check_s3(bucket, given)
    try:
        if scheme == "gs":
            return ObjectStore(stores.GCSStore(bucket, client_options=options, retry_config=retries))
        options["allow_http"] = environment.endpoint().startswith("http://")
        settings = {} if "AWS_REGION" in os.environ or "AWS_DEFAULT_REGION" in os.environ else {"region": "us-east-1"}
        return ObjectStore(stores.S3Store(bucket, client_options=options, retry_config=retries, **settings))
    except Exception as error:  # pylint: disable=broad-exception-caught  (settings fail in any of its layers)
        what = str(error).split("Debug source:", maxsplit=1)[0].strip()[:300]
        raise UserError(f"{given}: the store's settings in the environment are wrong ({what}): correct those that "
                        "begin with AWS_ or GOOGLE_") from error


def _seconds(seconds):
    return datetime.timedelta(seconds=seconds)
