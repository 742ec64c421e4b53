"""Bodies of requests, shaped as TF Serving's REST API has them, and the jobs that they ask for.

`instances` holds one object per user, `inputs` one list per entry; an answer has `predictions` or `outputs` alike.
"""
import dataclasses
from typing import Any, Optional, Sequence

import msgspec

from clrec_tf.errors import DataError
from clrec_tf.retrieval.attributes import Attributes
from clrec_tf.retrieval.bundle_dial import BundleDial
from clrec_tf.retrieval.query_values import QueryValues
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.user_requests import check_times
from clrec_tf.retrieval.user_requests import checked_item
from clrec_tf.retrieval.user_requests import UserRequest
from clrec_tf.server.faults import ServiceError
from clrec_tf.server.instances import entries_of
from clrec_tf.server.instances import Id
from clrec_tf.server.instances import INSTANCES
from clrec_tf.server.instances import instances_of
from clrec_tf.server.instances import Item
from clrec_tf.server.instances import ITEMS
from clrec_tf.server.instances import SIMILAR
from clrec_tf.server.instances import SimilarTo
from clrec_tf.server.instances import USERS

_MOST_EXPLAINED = 16  # users of a request: each is encoded once for every click that is read


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    signature_name: str = USERS
    instances: msgspec.Raw = msgspec.Raw()
    inputs: msgspec.Raw = msgspec.Raw()


@dataclasses.dataclass(frozen=True)
class Limits:
    """Most items per user, ids in a list, users per request, intents that the model has, its popularities, what it
    reads beside clicked items and times, and the attributes that items are filtered by."""
    k: int
    listed: int
    users: int
    intents: int
    dial: BundleDial = BundleDial()
    query: QueryValues = QueryValues()
    attributes: Attributes = Attributes()


@dataclasses.dataclass(frozen=True)
class Job:
    """What is wanted for one user, or of one item.

    Attributes:
      signature: one of `INSTANCES`.
      request: the user; None for an item.
      options: of the search; of a user to encode, only `intents` and `popularity` count.
      item: the item's id, whose vector or similar items are wanted.
    """
    signature: str
    request: Optional[UserRequest] = None
    options: SearchOptions = SearchOptions()
    item: Optional[Id] = None


@dataclasses.dataclass(frozen=True)
class Work:
    """The jobs of one request, and whether it came by columns (`inputs`)."""
    signature: str
    jobs: Sequence[Job]
    columns: bool


def parse(body: bytes, id_type: str, defaults: SearchOptions, limits: Limits) -> Work:
    """Reads a request.

    Args:
      body: JSON.
      id_type: "int" or "string", of original ids.
      defaults: options of users who do not say.
      limits: what is allowed.

    Raises:
      ServiceError, DataError: saying what is wrong where, and what is expected.
    """
    if not body:
        raise ServiceError('the body is empty: send JSON, such as {"signature_name": "retrieve", "instances": [...]}')
    head = _decoded(lambda: msgspec.json.decode(body, type=_Body), "the body")
    kind = _kind(head.signature_name, limits)
    instances, inputs = (part if bytes(part) != b"null" else b"" for part in (head.instances, head.inputs))
    if bool(instances) == bool(inputs):
        raise ServiceError("give either instances, a list with one object per user, or inputs, an object with one list "
                           "per entry")
    if instances:
        rows = _decoded(lambda: msgspec.json.decode(instances, type=list[kind]), "instances", kind)
        return Work(head.signature_name, jobs(head.signature_name, rows, id_type, defaults, limits), False)
    columns = _decoded(lambda: msgspec.json.decode(inputs, type=dict[str, Any]), "inputs")
    return by_columns(head.signature_name, columns, id_type, defaults, limits)


def by_columns(signature: str, columns: dict, id_type: str, defaults: SearchOptions, limits: Limits) -> Work:
    """Reads lists by entry, one element per user; a scalar counts for all users. Raises: see `parse`."""
    kind = _kind(signature, limits)
    of_items = kind in (Item, SimilarTo)
    leading = columns.get("ids" if of_items else "history")
    if not isinstance(leading, list):
        raise ServiceError(f"inputs of {signature} need the list {'`ids`' if of_items else '`history`, of a list'} "
                           f"per {'item' if of_items else 'user'}")
    if len(leading) > limits.users:  # before any row is made
        raise _too_many(len(leading), limits)
    for name, values in columns.items():
        if isinstance(values, list) and len(values) != len(leading):
            raise ServiceError(f"inputs: {name} has {len(values)} entries, the first dimension of all must be the "
                               f"same, {len(leading)}")
    rows = [{name: values[row] if isinstance(values, list) else values for name, values in columns.items()}
            for row in range(len(leading))]
    rows = [_decoded(lambda: msgspec.convert(row, kind), f"inputs, row {number}", kind)
            for number, row in enumerate(rows)]
    return Work(signature, jobs(signature, rows, id_type, defaults, limits), True)


def jobs(signature: str, rows: Sequence, id_type: str, defaults: SearchOptions, limits: Limits) -> list[Job]:
    """Users or items as decoded -> jobs. Raises: see `parse`."""
    if not 0 < len(rows) <= limits.users:
        raise _too_many(len(rows), limits)
    if signature == ITEMS:
        return [Job(signature, item=checked_item(row.ids, id_type, f"instance {number}"))
                for number, row in enumerate(rows)]
    if sum(getattr(row, "explain", False) for row in rows) > _MOST_EXPLAINED:
        raise ServiceError(f"more than {_MOST_EXPLAINED} instances ask to explain: send several requests")
    job = _similar_job if signature == SIMILAR else _user_job
    return [job(signature, row, id_type, defaults, limits, f"instance {number}") for number, row in enumerate(rows)]


def _kind(signature, limits):
    if signature not in INSTANCES:
        raise ServiceError(f"signature_name {signature!r} is none of {', '.join(INSTANCES)}")
    return instances_of(limits.query.features)[signature]


def _user_job(signature, row, id_type, defaults, limits, where):
    ids = lambda name: _ids(getattr(row, name), name, id_type, limits, where)
    history = ids("history")
    times = {name: _each(getattr(row, name), name, unknown, len(history), where)
             for name, unknown in (("timestamps", 0), ("dwell", -1))}
    check_times(times["timestamps"], row.request_time, times["dwell"], where)
    events = _each(row.events, "events", None, len(history), where)
    beside = {name: getattr(row, name) for name in limits.query.inputs} or None
    request = UserRequest(getattr(row, "user_id", None), history, times["timestamps"], row.request_time,
                          times["dwell"], events=events, query=beside)
    intents = row.intents or defaults.intents
    if intents > limits.intents:
        raise ServiceError(f"{where}: intents is {intents}, the model has {limits.intents}: give at most that many")
    popularity = defaults.popularity if row.popularity is None else limits.dial.checked(row.popularity, where)
    if signature == USERS:
        return Job(signature, request, SearchOptions(k=1, intents=intents, popularity=popularity))
    seen = defaults.exclude_seen if row.exclude_seen is None else row.exclude_seen
    options = SearchOptions(exclude_seen=seen, intents=intents, merge=row.merge or defaults.merge,
                            popularity=popularity, explain=row.explain,
                            **_wanted(row, id_type, defaults, limits, where))
    return Job(signature, request, options)


def _similar_job(signature, row, id_type, defaults, limits, where):
    popularity = None if row.popularity is None else limits.dial.checked(row.popularity, where)
    return Job(signature, None, SearchOptions(popularity=popularity, **_wanted(row, id_type, defaults, limits, where)),
               checked_item(row.ids, id_type, where))


def _wanted(row, id_type, defaults, limits, where):
    """Which items are wanted, and how many: options of users and items alike."""
    k = row.k or min(defaults.k, limits.k)
    if k > limits.k:
        raise ServiceError(f"{where}: k is {k}, this service gives at most {limits.k} items (--max_k): ask for fewer")
    ids = lambda name: _ids(getattr(row, name), name, id_type, limits, where)
    given = row.filter
    if isinstance(given, str):  # of gRPC, where a user without a filter has an empty one
        given = _decoded(lambda: msgspec.json.decode(row.filter), f"{where}, filter") if row.filter else None
    return dict(k=k, exclude=ids("exclude"), allow=None if row.allow is None else ids("allow"), titles=row.titles,
                passing=limits.attributes.checked(given, where) or ())


def _ids(values, name, id_type, limits, where):
    if len(values) > limits.listed:
        raise ServiceError(f"{where}: {name} has {len(values)} ids, at most {limits.listed} are accepted "
                           "(--max_listed): of a history send the latest")
    return [checked_item(value, id_type, f"{where}, {name}") for value in values]


def _each(values, name, unknown, length, where):
    if values is None:
        return None
    if len(values) != length:
        raise DataError(f"{where}: {name} has {len(values)} entries, history has {length}: give one per click")
    return [unknown if second is None else second for second in values]


def _too_many(count, limits):
    return ServiceError(f"the request has {count} instances, 1 to {limits.users} are accepted (--max_instances): "
                        "send several requests")


def _decoded(decode, name, kind=None):
    """What `decode` gives; its errors name the entry within `name`."""
    try:
        return decode()
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        text = str(error).replace("`$", f"`{name}" if name != "the body" else "`")
        entries = "" if kind is None else f"; entries are {entries_of(kind)} (of other signatures: see signature_name)"
        raise ServiceError(f"{name} cannot be read: {text}{entries}") from error
