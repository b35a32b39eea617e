"""What reads hand out: entries, which are mappings and attributes at once, and lists that know what they left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from .chains import Standing
from .records import Record
from .times import DAY

__all__ = ["Entry", "SearchResults", "make_entry", "staleness_label"]

_PLAIN = (str, int, float, bool, type(None))

_MONTH = 30.44 * DAY
_YEAR = 365.25 * DAY


class Entry(dict[str, Any]):
    """One record with its standing. A dict of JSON types whose keys are attributes, too.

    Keys: ``id``, ``doc_id`` (the same), ``text``, ``kind``, ``source``, ``metadata``, ``entity``, ``declared``,
    ``timestamp`` (when it became true), ``valid_to``, ``recorded_at``, ``revision``, ``version``; the standing at the
    asked time: ``superseded`` (True, False, or None where nothing is known), ``superseded_at``, ``status``. Searches
    add ``score`` (what ranked it), ``cosine``, ``bm25``, ``passage`` (the part of a long text that fits best) and, in
    a divided question, ``sub_query``. Times are unix seconds.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no field {name!r}; there are {', '.join(self)}") from None


def make_entry(record: Record, standing: Standing, **extra: Any) -> Entry:
    """The entry of a record; `extra` is added at the end. It shares nothing that can be changed with the record."""
    return Entry(
        id=record.id,
        doc_id=record.id,
        text=record.text,
        kind=record.kind,
        source=record.source,
        metadata={key: value if type(value) in _PLAIN else deepcopy(value) for key, value in record.metadata.items()},
        entity=record.entity,
        declared=record.declared,
        timestamp=record.valid_from,
        valid_to=record.valid_to,
        recorded_at=record.recorded_at,
        revision=record.revision,
        version=record.version,
        superseded=standing.superseded,
        superseded_at=standing.superseded_at,
        status=standing.status,
        **extra,
    )


class SearchResults(list[Entry]):
    """A list of entries, best first, that also tells what was cut.

    Attributes:
        summary: everything below as one mapping.
    """

    def __init__(self, entries: Iterable[Entry] = (), summary: Mapping[str, Any] | None = None) -> None:
        super().__init__(entries)
        self.summary: dict[str, Any] = dict(summary or {})

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (list(self), self.summary))

    @property
    def returned(self) -> int:
        """How many entries there are."""
        return len(self)

    @property
    def floor(self) -> float:
        """The `min_score` that was asked for."""
        return float(self.summary.get("floor", 0.0))

    @property
    def n_above_floor(self) -> int | None:
        """How many records qualified, returned or not; None for a divided question."""
        return self.summary.get("n_above_floor")

    @property
    def n_distinct_found(self) -> int | None:
        """How many different records the parts of a divided question found; None for an undivided one."""
        return self.summary.get("n_distinct_found")

    @property
    def truncated(self) -> bool:
        """True if more records qualified than were returned, or a part of the question got no place."""
        return bool(self.summary.get("truncated", False))

    @property
    def sub_queries(self) -> list[dict[str, Any]]:
        """The parts of a divided question: ``query``, ``n_above_floor``, ``returned``, ``answered``, ``truncated``."""
        return list(self.summary.get("sub_queries", ()))

    @property
    def unanswered_sub_queries(self) -> list[str]:
        """The parts of the question that got no place in the answer."""
        return [part["query"] for part in self.sub_queries if not part["answered"]]

    @property
    def other_kinds(self) -> dict[str, int]:
        """Where there is no entry: how many records of each other kind there are, which were not searched.

        Values that hold no longer are among them: a search for that kind finds them too, labelled.
        """
        return dict(self.summary.get("other_kinds", {}))

    def explain(self) -> str:
        """What a reader should know was cut or not searched, or an empty text where nothing informative was.

        Without a `min_score` every record qualifies, so a count of them says nothing and is left out.
        """
        if self.other_kinds:
            counts = ", ".join(f"{number} of the kind {kind!r}" for kind, number in self.other_kinds.items())
            return f"Nothing of the kind that was asked for was found; there are records of others: {counts}."
        parts = []
        above = self.n_above_floor
        if self.truncated and self.floor > 0 and above is not None:
            parts.append(
                f"showing {len(self)} of {above} records scoring at or above your min_score of {self.floor:.2f}"
            )
        unanswered = self.unanswered_sub_queries
        if unanswered:
            named = "; ".join(repr(query) for query in unanswered[:4])
            more = f" and {len(unanswered) - 4} more" if len(unanswered) > 4 else ""
            parts.append(
                f"{len(unanswered)} of {len(self.sub_queries)} parts of the question got no result: {named}{more}"
            )
        if not parts:
            return ""
        return f"This answer is incomplete: {', and '.join(parts)}. A larger top_k shows more."


def staleness_label(entry: Mapping[str, Any], now: float) -> str:
    """A sentence that warns of a value that no longer holds, or an empty text.

    `now` is the time that the age of the replacement is told from, in unix seconds.
    """
    if entry.get("superseded") is not True:
        return ""
    ended = entry.get("status") == "ended"
    word = "ENDED" if ended else "SUPERSEDED"
    at = entry.get("superseded_at")
    if at is None:
        return f"{word}: this held when it was written and does not hold now"
    return f"{word} {_ago(now - at)}: this held when it was written and does not hold now"


def _ago(seconds: float) -> str:
    if seconds < DAY:
        return "today" if seconds >= 0 else "at a later date"
    if seconds < 45 * DAY:
        return _count(int(seconds // DAY), "day")
    if seconds < 730 * DAY:
        return _count(round(seconds / _MONTH), "month")
    return f"{seconds / _YEAR:.1f} years ago"


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'} ago"
