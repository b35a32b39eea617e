"""What a memory holds: records, and the scopes that keep them apart."""

from __future__ import annotations

import functools
import json
import math
import os
import re
import time
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, cast, get_args

from .errors import InputError

__all__ = [
    "KINDS",
    "MAX_ENTITY",
    "RESERVED_METADATA",
    "Kind",
    "Record",
    "Scope",
    "check_name",
    "check_record",
    "clean_metadata",
    "clean_text",
    "new_id",
    "new_ids",
    "normalize_entity",
    "read_share",
]

Kind = Literal["message", "episode", "fact", "summary", "purged"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""``purged`` is what is left of a record after `Memory.purge`: its id and the time, no content."""

MAX_ENTITY = 128
"""Characters of a normalised entity name; a longer one is refused, since cutting could merge two names."""

MAX_NAME = 1024
"""UTF-8 bytes of a user name, an agent name or an id."""

_SEPARATOR = "\x1f"


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """Whose memory it is: the pair that isolates. Two scopes share nothing, and no prefix ever matches.

    Raises:
        InputError: a name is empty, longer than 1024 UTF-8 bytes, or holds a NUL or an unpaired surrogate.
    """

    user: str = "default"
    agent: str = "default"

    def __post_init__(self) -> None:
        check_name(self.user, "user")
        check_name(self.agent, "agent")

    def other(self, user: str | None = None, agent: str | None = None) -> Scope:
        """The scope with that user and agent; None leaves the one of this scope."""
        if user is None and agent is None:
            return self
        return Scope(self.user if user is None else user, self.agent if agent is None else agent)

    def __str__(self) -> str:
        return self.user if self.agent == "default" else f"{self.user}/{self.agent}"


def check_name(name: object, what: str) -> str:
    """`name` if it can stand in a file of any store, else InputError."""
    # Nearly every name is like this, and every record that is written comes through here.
    if type(name) is str and name.isascii() and 0 < len(name) <= MAX_NAME and "\0" not in name:
        return name
    if not isinstance(name, str):
        raise InputError(f"{what}: expected a text; found {type(name).__name__}")
    if not name:
        raise InputError(f"{what}: expected a name; found an empty text")
    if "\0" in name:
        raise InputError(f"{what}: a name can't hold a NUL character; found {name!r}")
    try:
        length = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        raise InputError(f"{what}: {name!r} holds an unpaired surrogate, which is no text") from None
    if length > MAX_NAME:
        raise InputError(f"{what}: at most {MAX_NAME} UTF-8 bytes; found {length}")
    return name


@dataclass(frozen=True, slots=True, init=False)
class Record:
    """One thing that was remembered. Immutable; a store hands out the same value for the same id and version.

    Attributes:
        id: unique in its scope.
        text: the content, verbatim.
        kind: ``fact``, ``message``, ``episode``, ``summary`` or ``purged``.
        entity: normalised name of the attribute this is a value of, or None outside any chain.
        declared: True if the caller named the entity, False if a tagger guessed it.
        revision: place in the order of arrival of its chain, from 1; 0 asks the store for the next number.
        version: how often this id was written, from 1; 0 before the first write. Preconditions compare it.
        valid_from: when it became true, unix seconds.
        valid_to: when it ended without a successor, or None.
        recorded_at: when the memory was told, unix seconds.
        closed_at: when the memory was told that it ended, or None.
        source: where it came from, a free text such as ``cli`` or ``notes.md:1-50``.
        metadata: a JSON object. ``user_id`` and ``project`` in it keep chains apart.
    """

    id: str
    text: str
    kind: Kind
    entity: str | None
    declared: bool
    revision: int
    version: int
    valid_from: float
    valid_to: float | None
    recorded_at: float
    closed_at: float | None
    source: str
    metadata: Mapping[str, Any]

    def __init__(
        self,
        id: str,
        text: str,
        kind: Kind = "fact",
        entity: str | None = None,
        declared: bool = False,
        revision: int = 0,
        version: int = 0,
        valid_from: float = 0.0,
        valid_to: float | None = None,
        recorded_at: float = 0.0,
        closed_at: float | None = None,
        source: str = "user_input",
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        # What a frozen dataclass does for each field takes seven times as long, for every record that is written or
        # found. Nobody else can hold this object yet, so it may be of the class that can be changed meanwhile.
        draft: Any = self
        cls = self.__class__
        _thaw(self, "__class__", _Draft)
        draft.id = id
        draft.text = text
        draft.kind = kind
        draft.entity = entity
        draft.declared = declared
        draft.revision = revision
        draft.version = version
        draft.valid_from = valid_from
        draft.valid_to = valid_to
        draft.recorded_at = recorded_at
        draft.closed_at = closed_at
        draft.source = source
        draft.metadata = {} if metadata is None else metadata
        draft.__class__ = cls

    @property
    def chain(self) -> str | None:
        """Key of the chain: entity, with ``user_id`` and ``project`` of the metadata; None outside a chain."""
        if self.entity is None:
            return None
        user = self.metadata.get("user_id")
        project = self.metadata.get("project")
        if user is None and project is None:
            return self.entity
        parts = ("" if user is None else str(user), "" if project is None else str(project))
        return _SEPARATOR.join((self.entity, *parts))

    def numbered(self, version: int, revision: int) -> Record:
        """This record with these numbers."""
        if (self.version, self.revision) == (version, revision):
            return self
        # Every record that is written comes through here, and `dataclasses.replace` takes several times as long.
        return Record(
            self.id, self.text, self.kind, self.entity, self.declared, revision, version, self.valid_from,
            self.valid_to, self.recorded_at, self.closed_at, self.source, self.metadata,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON types, in the order of the class; `from_dict` reads it back."""
        return {name: getattr(self, name) for name in _FIELDS} | {"metadata": dict(self.metadata)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Record:
        """Build a record from `to_dict`'s form.

        Raises:
            InputError: a field is missing, unknown or of the wrong type.
        """
        unknown = set(data) - set(_FIELDS)
        if unknown:
            raise InputError(f"record: unknown field {sorted(unknown)[0]!r}; known are {', '.join(_FIELDS)}")
        try:
            record = cls(**data)
        except TypeError as error:
            raise InputError(f"record: {error}") from None
        return check_record(record)


_FIELDS = tuple(f.name for f in fields(Record))


class _Draft:
    """A record that can still be changed: of the same layout, so that one can become the other."""

    __slots__ = _FIELDS


_thaw = object.__setattr__

RESERVED_METADATA = frozenset(_FIELDS) - {"entity", "metadata"} | {"score", "cosine", "superseded"}
"""Metadata keys that would hide a field of the record; `entity` is allowed, since it declares the attribute."""

_ARGUMENT_FOR = {"source": "source=", "id": "id=", "valid_from": "timestamp=", "revision": "revision="}


def check_record(record: Record) -> Record:
    """`record` if every field has its type and range, else InputError naming the field."""
    check_name(record.id, "id")
    # Every record that is written comes through here, so what can be seen at once is not called for.
    text, source, entity = record.text, record.source, record.entity
    if type(text) is not str or not text.isascii():
        _check_text(text, "text")
    if type(source) is not str or not source.isascii():
        _check_text(source, "source")
    if record.kind not in KINDS:
        raise InputError(f"kind: expected one of {', '.join(KINDS)}; found {record.kind!r}")
    if entity is not None and entity != normalize_entity(entity):
        raise InputError(f"entity: {entity!r} is not in normal form ({normalize_entity(entity)!r})")
    _check_number(record.revision, "revision")
    _check_number(record.version, "version")
    _check_seconds(record.valid_from, "valid_from")
    _check_seconds(record.recorded_at, "recorded_at")
    if record.valid_to is not None:
        _check_seconds(record.valid_to, "valid_to")
    if record.closed_at is not None:
        _check_seconds(record.closed_at, "closed_at")
    if record.declared is not True and record.declared is not False:
        raise InputError(f"declared: expected True or False; found {record.declared!r}")
    metadata = record.metadata
    if type(metadata) is not dict and not isinstance(metadata, Mapping):
        raise InputError(f"metadata: expected a mapping; found {type(metadata).__name__}")
    if metadata:
        _check_metadata(metadata)
    return record


def _check_metadata(metadata: Mapping[str, Any]) -> None:
    if not _is_flat(metadata):
        try:
            json.dumps(dict(metadata), ensure_ascii=False, allow_nan=False).encode("utf-8")
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"metadata: expected JSON values (`clean_metadata` makes them); {error}") from None
    for key in ("user_id", "project"):
        if key in metadata and _SEPARATOR in str(metadata[key]):
            raise InputError(f"metadata: {key} can't hold the control character U+001F, which parts chain keys")


def read_share(value: object) -> float | None:
    """`value` if it is a number from 0 to 1, such as a confidence, else None."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and 0 <= value <= 1 else None  # type: ignore[arg-type,operator]


def _check_number(number: object, what: str) -> None:
    if type(number) is int and 0 <= number < 2**31:
        return
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**31:
        raise InputError(f"{what}: expected a whole number from 0 to 2147483647; found {number!r}")


def _check_text(text: object, what: str) -> None:
    if not isinstance(text, str):
        raise InputError(f"{what}: expected a text; found {type(text).__name__}")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(f"{what}: an unpaired surrogate at character {error.start}, which is no text") from None


def _check_seconds(value: object, what: str) -> None:
    if type(value) is float and math.isfinite(value):
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{what}: expected a finite number of unix seconds; found {value!r}")


def _is_flat(metadata: Mapping[str, Any]) -> bool:
    """True if all is plainly JSON: most metadata is, and then need not be written to see it."""
    for key, value in metadata.items():
        if type(key) is not str or not key.isascii():
            return False
        kind = type(value)
        if kind is str:
            plain = value.isascii()
        elif kind is int:
            plain = -(2**63) <= value < 2**63
        elif kind is float:
            plain = math.isfinite(value)
        else:
            plain = value is None or kind is bool
        if not plain:
            return False
    return True


def clean_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy of `metadata` in JSON types; the caller's mapping is never changed.

    Sets become sorted lists, tuples become lists, keys become texts, and what JSON can't hold becomes its ``str``.

    Raises:
        InputError: not a mapping, or a key is reserved for a field of the record.
    """
    if metadata is None:
        return {}
    if type(metadata) is not dict and not isinstance(metadata, Mapping):
        raise InputError(f"metadata: expected a mapping; found {type(metadata).__name__}")
    if not RESERVED_METADATA.isdisjoint(metadata):
        key = next(key for key in metadata if key in RESERVED_METADATA)
        argument = _ARGUMENT_FOR.get(key)
        advice = f"pass it as {argument}" if argument else f"rename it, for example to 'my_{key}'"
        raise InputError(f"metadata: the key {key!r} is reserved for a field of the record; {advice}")
    return dict(metadata) if _is_flat(metadata) else cast("dict[str, Any]", _json_value(metadata))


def clean_text(text: str) -> str:
    """`text` as something UTF-8 can hold: halves of a surrogate pair are joined, one that stands alone becomes U+FFFD.

    Such texts come from JSON that was cut inside an emoji.
    """
    return (
        text
        if text.isascii() or _is_utf8(text)
        else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    )


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _json_value(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {clean_text(str(key)): _json_value(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        items = [_json_value(item) for item in value]
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True, ensure_ascii=False))
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    return clean_text(str(value))


_NOT_A_WORD = re.compile(r"[\W_]+")


def normalize_entity(name: str) -> str:
    """The one spelling of an attribute's name: NFKC, case folded, every run of other than letters and digits a ``_``.

    Letters of every script count, so a name in Chinese or Cyrillic is as good as an English one.

    Raises:
        InputError: nothing is left, or more than 128 characters are.
    """
    if not isinstance(name, str):
        raise InputError(f"entity: expected a text; found {type(name).__name__}")
    return _normal_form(name)


@functools.lru_cache(maxsize=1024)
def _normal_form(name: str) -> str:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    # \W also matches combining marks, which carry vowels in Devanagari, Thai and others: they belong to the word.
    letters = "".join("_" if _is_gap(char) else char for char in folded)
    normal = re.sub(r"_+", "_", letters).strip("_")
    if not normal:
        raise InputError(f"entity: expected a name with a letter or digit; found {name!r}")
    if len(normal) > MAX_ENTITY:
        raise InputError(f"entity: at most {MAX_ENTITY} characters; found {len(normal)}")
    return normal


def _is_gap(char: str) -> bool:
    return _NOT_A_WORD.match(char) is not None and not unicodedata.category(char).startswith("M")


def new_id() -> str:
    """A fresh id: 32 hex digits, 12 of the time in milliseconds and 20 random, so ids sort by age."""
    return next(new_ids(1))


def new_ids(count: int) -> Iterator[str]:
    """`count` ids as `new_id` makes them, all of the time at which the first is asked for."""
    stamp = f"{time.time_ns() // 1_000_000:012x}"
    random = os.urandom(_RANDOM * count).hex()
    for start in range(0, len(random), 2 * _RANDOM):
        yield stamp + random[start : start + 2 * _RANDOM]


_RANDOM = 10
"""Random bytes in an id."""
