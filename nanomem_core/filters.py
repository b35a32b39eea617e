"""Filters: one meaning for search, history, deletion, export and everything else that takes ``filter=`` or ``where=``.

A filter is a mapping. Each key names a metadata key, or a field of the record (`FIELDS`); all keys must match::

    {"city": "Bergen", "year": {"$gte": 2024}, "$or": [{"source": "cli"}, {"tags": {"$in": ["work", "home"]}}]}

* A plain value matches an equal value, or one with the same text (``5`` matches ``"5"``). Where the stored value or the
  given one is a list, one common member is enough.
* ``$eq $ne $in $nin`` compare like that; ``$gt $gte $lt $lte`` compare numbers with numbers and texts with texts, and
  match nothing else; with the fields that are times they also take a datetime, a date or an ISO text. ``$exists`` takes
  True or False. ``$and $or`` take a list of filters, ``$not`` takes one.
* A missing key matches only ``$ne``, ``$nin`` and ``{"$exists": False}``. ``None`` matches a stored null.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from .errors import FilterError
from .records import Record
from .times import parse_time

__all__ = ["ABSENT", "FIELDS", "MISSING", "UNREAD", "Filter", "ValueColumn", "parse_filter", "record_value"]


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
"""Stands for the value of a key that a record does not have."""

FIELDS: dict[str, Callable[[Record], Any]] = {
    "id": lambda r: r.id,
    "kind": lambda r: r.kind,
    "entity": lambda r: MISSING if r.entity is None else r.entity,
    "source": lambda r: r.source,
    "revision": lambda r: r.revision,
    "version": lambda r: r.version,
    "timestamp": lambda r: r.valid_from,
    "valid_from": lambda r: r.valid_from,
    "valid_to": lambda r: MISSING if r.valid_to is None else r.valid_to,
    "recorded_at": lambda r: r.recorded_at,
}
"""Keys that name a field of the record; every other key is looked up in the metadata."""

_TIMES = ("timestamp", "valid_from", "valid_to", "recorded_at")


def record_value(record: Record, key: str) -> Any:
    """What `key` means for `record`: a field, a metadata value, or `MISSING`."""
    field = FIELDS.get(key)
    return record.metadata.get(key, MISSING) if field is None else field(record)


ABSENT = -1
"""Code of a row whose record does not have the key."""

UNREAD = -2
"""Code of a row whose record was not read. What a filter says of such a row means nothing."""


class ValueColumn(Protocol):
    """The values of one key for all rows: `codes[row]` indexes `values`, or is `ABSENT` or `UNREAD`."""

    @property
    def codes(self) -> npt.NDArray[np.int32]: ...

    @property
    def values(self) -> Sequence[Any]: ...


class Filter(ABC):
    """A parsed filter."""

    @abstractmethod
    def names(self) -> Iterable[str]:
        """Every key the filter looks at, with repetitions."""

    @abstractmethod
    def matches(self, record: Record) -> bool:
        """True if `record` passes."""

    @abstractmethod
    def mask(self, columns: Mapping[str, ValueColumn]) -> npt.NDArray[np.bool_]:
        """True for each row that passes; the same answer as `matches`, computed once for each distinct value."""


@dataclass(frozen=True, slots=True)
class _Condition(Filter):
    key: str
    test: Callable[[Any], bool]

    def names(self) -> Iterable[str]:
        return (self.key,)

    def matches(self, record: Record) -> bool:
        return self.test(record_value(record, self.key))

    def mask(self, columns: Mapping[str, ValueColumn]) -> npt.NDArray[np.bool_]:
        column = columns[self.key]
        # The last two places answer for the codes UNREAD and ABSENT.
        verdicts = np.array([*map(self.test, column.values), False, self.test(MISSING)], np.bool_)
        result: npt.NDArray[np.bool_] = verdicts[column.codes]
        return result


@dataclass(frozen=True, slots=True)
class _All(Filter):
    parts: tuple[Filter, ...]

    def names(self) -> Iterable[str]:
        return [key for part in self.parts for key in part.names()]

    def matches(self, record: Record) -> bool:
        return all(part.matches(record) for part in self.parts)

    def mask(self, columns: Mapping[str, ValueColumn]) -> npt.NDArray[np.bool_]:
        result: npt.NDArray[np.bool_] = np.logical_and.reduce([part.mask(columns) for part in self.parts])
        return result


@dataclass(frozen=True, slots=True)
class _Any(_All):
    def matches(self, record: Record) -> bool:
        return any(part.matches(record) for part in self.parts)

    def mask(self, columns: Mapping[str, ValueColumn]) -> npt.NDArray[np.bool_]:
        result: npt.NDArray[np.bool_] = np.logical_or.reduce([part.mask(columns) for part in self.parts])
        return result


@dataclass(frozen=True, slots=True)
class _Not(Filter):
    part: Filter

    def names(self) -> Iterable[str]:
        return self.part.names()

    def matches(self, record: Record) -> bool:
        return not self.part.matches(record)

    def mask(self, columns: Mapping[str, ValueColumn]) -> npt.NDArray[np.bool_]:
        return ~self.part.mask(columns)


def parse_filter(spec: Mapping[str, Any] | None, name: str = "filter") -> Filter | None:
    """Parse a filter mapping; None and an empty mapping mean no filter.

    Raises:
        FilterError: an unknown operator, or an operand of the wrong shape; the message names `name`.
        TimeError: a time field is compared with something that can't be read as a time.
    """
    if spec is None:
        return None
    if not isinstance(spec, Mapping):
        raise FilterError(f"{name}: expected a mapping such as {{'city': 'Bergen'}}; found {type(spec).__name__}")
    parts = [_parse_entry(key, value, name) for key, value in spec.items()]
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else _All(tuple(parts))


def _parse_entry(key: Any, value: Any, name: str) -> Filter:
    if not isinstance(key, str):
        raise FilterError(f"{name}: keys are texts; found {key!r}")
    if key in ("$and", "$or"):
        if not isinstance(value, (list, tuple)) or not value:
            raise FilterError(f"{name}: {key} takes a list of at least one filter; found {value!r}")
        parts = tuple(_parse_required(item, f"{name}: {key}") for item in value)
        return _All(parts) if key == "$and" else _Any(parts)
    if key == "$not":
        return _Not(_parse_required(value, f"{name}: $not"))
    if key.startswith("$"):
        raise FilterError(f"{name}: unknown operator {key!r}; at this place $and, $or and $not are known")
    if not isinstance(value, Mapping):
        return _Condition(key, _equal_test(value))
    conditions = tuple(_Condition(key, _test(key, op, operand, f"{name}: {key}")) for op, operand in value.items())
    if not conditions:
        raise FilterError(f"{name}: {key}: expected a value or an operator such as {{'$gte': 5}}; found {{}}")
    return conditions[0] if len(conditions) == 1 else _All(conditions)


def _parse_required(spec: Any, name: str) -> Filter:
    part = parse_filter(spec, name)
    if part is None:
        raise FilterError(f"{name}: expected a filter with at least one key; found {spec!r}")
    return part


def _test(key: str, op: Any, operand: Any, name: str) -> Callable[[Any], bool]:
    if op in ("$eq", "$ne"):
        equal = _equal_test(operand)
        return equal if op == "$eq" else lambda value: not equal(value)
    if op in ("$in", "$nin"):
        if not isinstance(operand, (list, tuple, set, frozenset)):
            raise FilterError(f"{name}: {op} takes a list; found {operand!r}")
        member = _equal_test(list(operand))
        return member if op == "$in" else lambda value: not member(value)
    if op == "$exists":
        if not isinstance(operand, bool):
            raise FilterError(f"{name}: $exists takes True or False; found {operand!r}")
        return lambda value: (value is not MISSING) is operand
    if op in _ORDER:
        if key in _TIMES:
            operand = parse_time(operand, f"{name}: {op}")
        return _order_test(_ORDER[op], operand, f"{name}: {op}")
    known = ", ".join(("$eq", "$ne", "$in", "$nin", *_ORDER, "$exists"))
    raise FilterError(f"{name}: unknown operator {op!r}; known are {known}")


_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def _order_test(compare: Callable[[Any, Any], bool], operand: Any, name: str) -> Callable[[Any], bool]:
    if isinstance(operand, bool) or not isinstance(operand, (int, float, str)):
        raise FilterError(f"{name} takes a number or a text; found {operand!r}")
    wanted: type[Any] | tuple[type[Any], ...] = str if isinstance(operand, str) else (int, float)

    def test(value: Any) -> bool:
        items = value if isinstance(value, list) else (value,)
        return any(isinstance(v, wanted) and not isinstance(v, bool) and compare(v, operand) for v in items)

    return test


def _equal_test(operand: Any) -> Callable[[Any], bool]:
    wanted = {_text(item) for item in _members(operand)}

    def test(value: Any) -> bool:
        return value is not MISSING and not wanted.isdisjoint(_text(item) for item in _members(value))

    return test


def _members(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple, set, frozenset)) else (value,)


def _text(value: Any) -> tuple[str, str]:
    # Numbers that are equal have one text (1 and 1.0); null is no text at all, so None never matches "None".
    if value is None:
        return ("null", "")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return ("value", str(value))
