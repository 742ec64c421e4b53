"""What a request may say of one user or item, by signature: the entries that JSON and gRPC share."""
import functools
from typing import Annotated, Any, get_args, get_origin, Literal, Optional, Union

import msgspec

from clrec_tf.data.query_features import CATEGORY
from clrec_tf.data.query_features import LIST
from clrec_tf.data.query_features import NUMBER
from clrec_tf.data.query_features import QueryFeature

RETRIEVE, USERS, ITEMS, SIMILAR = "retrieve", "serving_default", "encode_items", "similar_items"
Id = Union[int, str]
Seconds = Optional[list[Optional[int]]]
_Count = Annotated[int, msgspec.Meta(ge=1)]
_Filter = Union[dict[str, Any], str, None]  # of attributes, an object or, as gRPC sends it, its JSON


class User(msgspec.Struct, forbid_unknown_fields=True):
    """A user to encode: `history` of original item ids, oldest first; times in seconds, null or ≤ 0 where unknown.

    Models that read features of users and requests take these too, by name: see `instances_of`.
    """
    history: list[Id]
    timestamps: Seconds = None
    request_time: Optional[int] = None
    dwell: Seconds = None
    events: Optional[list[Optional[str]]] = None
    intents: Optional[_Count] = None
    popularity: Optional[float] = None


class RetrieveUser(User, forbid_unknown_fields=True):
    """A user to retrieve for; what is left out is as the service was started. `user_id` is for the impression log.
    """
    k: Optional[_Count] = None
    exclude: list[Id] = []
    allow: Optional[list[Id]] = None
    exclude_seen: Optional[bool] = None
    merge: Optional[Literal["maximum", "quota"]] = None
    titles: bool = False
    filter: _Filter = None
    explain: bool = False
    user_id: Optional[Union[int, Annotated[str, msgspec.Meta(max_length=512)]]] = None


class SimilarTo(msgspec.Struct, forbid_unknown_fields=True):
    """An item to which similar ones are asked for; what is left out is as for users."""
    ids: Id
    k: Optional[_Count] = None
    exclude: list[Id] = []
    allow: Optional[list[Id]] = None
    popularity: Optional[float] = None
    titles: bool = False
    filter: _Filter = None


class Item(msgspec.Struct, forbid_unknown_fields=True):
    """An item whose vector is asked for."""
    ids: Id


INSTANCES = {RETRIEVE: RetrieveUser, USERS: User, ITEMS: Item, SIMILAR: SimilarTo}
_Value = Union[str, int, float, bool, None]
_TYPES = {CATEGORY: _Value, LIST: Optional[list[_Value]], NUMBER: Optional[float]}


@functools.lru_cache(maxsize=16)
def instances_of(features: tuple[QueryFeature, ...]) -> dict[str, type]:
    """`INSTANCES` of a model that reads such features of users and requests."""
    if not features:
        return INSTANCES
    fields = [(feature.input, _TYPES[feature.kind], None) for feature in features]
    more = lambda base: msgspec.defstruct(base.__name__, fields, bases=(base,), forbid_unknown_fields=True)
    return INSTANCES | {RETRIEVE: more(RetrieveUser), USERS: more(User)}


@functools.cache
def entries_of(kind) -> str:
    """The entries of one user or item, each with its choices if it has some."""
    entries = []
    for field in msgspec.structs.fields(kind):
        choices = [choice for form in (field.type, *get_args(field.type)) if get_origin(form) is Literal
                   for choice in get_args(form)]
        entries.append(field.name + (f" ({' or '.join(choices)})" if choices else ""))
    return ", ".join(entries)
