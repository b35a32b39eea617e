"""One scope as a question sees it: its columns, with what is derived from the records' texts and metadata.

Vectors, full-text postings and the values of metadata keys are built on first use and extended by the rows that were
written since, never rebuilt for a write. Only a store that hands out other columns (after compaction, say) starts
them anew.
"""

from __future__ import annotations

import hashlib
import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from .changes import Vectors
from .columns import Columns, ColumnSource, Rows
from .filters import ABSENT, MISSING, UNREAD, Filter, ValueColumn, record_value
from .index.lexical import LexicalIndex
from .index.quantised import has_kernel
from .index.vectors import FloatVectors, QuantisedVectors, VectorTable
from .records import Record
from .tokens import Tokenizer

__all__ = ["View", "has_vectors"]

_BATCH = 4096

_MOST_KEPT = 4096
"""Records that are kept, about."""

_MANY_CHAINS = 256
"""Chains whose rows are found sooner by a look at every row."""

_GREATEST = float(np.finfo(np.float64).max)

_LONGEST_KEPT = 4096
"""Characters of a text that is kept."""

_MOST_FLOATS = 1 << 20
"""Numbers that are held as float32; with more, reading a quarter of the bytes outweighs the second look."""


def has_vectors(record: Record) -> bool:
    """Whether a record gets vectors. A message gets none: it waits for a short time, and is embedded in its episode;
    until then it is found by its words. So taking one in needs no embedder, which may be slow or out of reach.
    """
    return bool(record.text) and record.kind != "message"


class _Values:
    """The values of one key, as codes. Rows below `upto` were taken over; it was begun with columns of `since` rows."""

    def __init__(self, since: int) -> None:
        self.since = since
        self.values: list[Any] = []
        self.codes = np.empty(0, np.int32)
        self.upto = 0
        self._numbers: dict[tuple[type, str], int] = {}

    def extend(self, count: int, found: Iterable[tuple[int, Any]]) -> None:
        """Take over the rows up to `count`; `found` gives the values of those that could be read."""
        if count > len(self.codes):
            grown = np.full(max(count, len(self.codes) * 3 // 2), UNREAD, np.int32)
            grown[: self.upto] = self.codes[: self.upto]
            self.codes = grown
        for row, value in found:
            if row >= self.upto:
                self.codes[row] = self._number(value)
        self.upto = max(self.upto, count)

    def _number(self, value: Any) -> int:
        if value is MISSING:
            return ABSENT
        key = (type(value), repr(value))
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(value)
        return self._numbers[key]


@dataclass(frozen=True, slots=True)
class _Column:
    codes: npt.NDArray[np.int32]
    values: Sequence[Any]


class _Order(NamedTuple):
    """The first rows by the numbers in one column, so that a question for a few looks at few."""

    values: npt.NDArray[Any]
    rows: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, column: npt.NDArray[Any]) -> Self:
        rows = np.argsort(column)
        return cls(column[rows], rows.astype(np.uint32))

    @property
    def upto(self) -> int:
        """How many rows there are; those that follow are looked at one by one."""
        return len(self.rows)

    def between(self, column: npt.NDArray[Any], low: float, high: float) -> Rows:
        """The rows whose number in `column`, which may be older or newer, is greater than `low` and at most `high`."""
        tail = column[self.upto :]
        recent = np.flatnonzero((tail > low) & (tail <= high)) + self.upto
        first, last = self.values.searchsorted(np.array((low, high), self.values.dtype), "right")
        rows = self.rows[first:last].astype(np.intp)
        return np.concatenate((rows[rows < len(column)], recent))


_NO_ORDER = _Order(np.empty(0), np.empty(0, np.uint32))


class View:
    """Derived indexes of one scope. Safe to use from several threads.

    Args:
        embed: the vectors of records that the store does not keep, one matrix (m, dim) a record; None for a store
            that keeps them.
        fetch: the newest version of a record, None where there is none.
        codes, words: where codes of the vectors, and the index of words, may be kept, None for nowhere; they are only
            written if `keep`.
    """

    def __init__(
        self,
        dim: Callable[[], int],
        tokenizer: Tokenizer,
        embed: Callable[[list[Record]], list[Vectors]] | None,
        fetch: Callable[[str], Record | None],
        codes: Path | None = None,
        words: Path | None = None,
        keep: bool = True,
    ) -> None:
        self._dim = dim
        self._fetch = fetch
        self._tokenizer = tokenizer
        self._embed = embed
        self._codes = codes
        self._words = words
        self._keep = keep
        self._lock = threading.RLock()
        self._source: ColumnSource | None = None
        # Each index holds the rows up to `upto`; it was begun with columns of `since` rows.
        self._vectors: VectorTable = FloatVectors(0)
        self._vectors_upto = self._vectors_since = 0
        self._lexical = LexicalIndex(tokenizer)
        self._lexical_upto = self._lexical_since = 0
        self._kept: tuple[ColumnSource | None, dict[int, Record]] = (None, {})
        self._values: dict[str, _Values] = {}
        self._orders: dict[str, _Order] = {}
        self._chains: dict[str, list[int]] = {}
        self._chains_upto = 0
        self._entities: list[str] = []
        self._alike: dict[str, tuple[list[str], int]] = {}

    def _follow(self, columns: Columns) -> None:
        if columns.source is not self._source:
            self._source = columns.source
            self._vectors_upto = self._lexical_upto = 0
            self._values = {}
            self._chains, self._chains_upto = {}, 0
            self._orders = {}
            self._entities, self._alike = [], {}

    def read(
        self, source: ColumnSource, rows: Rows, fits: Callable[[int, Record], bool] = lambda row, record: True
    ) -> list[tuple[int, Record]]:
        """Each row with its record; left out where that is gone or damaged.

        Not every store keeps what was replaced. A row whose record was written again meanwhile comes with the newer
        version, if `fits` accepts that, rather than not at all, so that a record doesn't vanish from the answers for
        being corrected.
        """
        records = source.records(rows)
        if len(records) == len(rows):
            return list(zip(rows.tolist(), records, strict=True))
        by_id = {record.id: record for record in records}
        pairs = zip(rows.tolist(), source.ids(rows), strict=True)
        found = [(row, by_id[id] if id in by_id else self._fetch(id)) for row, id in pairs if id]
        return [(row, record) for row, record in found if record is not None and fits(row, record)]

    def hits(
        self, source: ColumnSource, rows: list[int], fits: Callable[[int, Record], bool]
    ) -> list[tuple[int, Record]]:
        """What `read` gives, for rows of an answer. Rows never change, so short records of late answers are kept."""
        owner, kept = self._kept
        if owner is not source or len(kept) > _MOST_KEPT:
            self._kept = source, kept = source, {}
        new = [row for row in rows if row not in kept]
        if not new:
            return [(row, kept[row]) for row in rows]
        found = {row: kept[row] for row in rows if row in kept}
        records = source.records(np.array(new, np.intp))
        if len(records) == len(new):
            found.update(zip(new, records, strict=True))
            if len(new) <= _MOST_KEPT:
                kept.update((row, found[row]) for row in new if len(found[row].text) <= _LONGEST_KEPT)
        else:
            found.update(self.read(source, np.array(new, np.intp), fits))
        return [(row, found[row]) for row in rows if row in found]

    def vectors(self, columns: Columns) -> VectorTable:
        """The vectors of all rows that were live when they were first asked for."""
        with self._lock:
            self._follow(columns)
            if 0 < len(columns) == self._vectors_upto:
                return self._vectors
            if _must_begin(columns, self._vectors_upto, self._vectors_since) or self._outgrown(columns):
                self._begin_vectors(columns)
            for stop, rows in _runs(columns, self._vectors_upto):
                if self._embed is None:
                    matrix, owners = columns.source.vectors(rows)
                else:
                    found = [(row, record) for row, record in self.read(columns.source, rows) if has_vectors(record)]
                    matrices = self._embed([record for _, record in found])
                    owners = np.repeat([row for row, _ in found], [len(m) for m in matrices]).astype(np.intp)
                    matrix = np.concatenate(matrices) if matrices else np.empty((0, self._dim()), np.float32)
                self._vectors.append(matrix, owners)
                # Told at once: if the embedder fails in the next run, this one must not be added again.
                self._vectors_upto = stop
            if self._keep:
                self._vectors.save()
            return self._vectors

    def prepare(self, columns: Columns) -> None:
        """Make now, and keep in a file, what the first search would otherwise have to make."""
        if self._wants_codes(columns):
            self.vectors(columns)

    def _wants_codes(self, columns: Columns) -> bool:
        return len(columns) * self._dim() > _MOST_FLOATS and has_kernel() and self._embed is None

    def _outgrown(self, columns: Columns) -> bool:
        """True if float32 in memory is no longer the way to hold the vectors."""
        return self._wants_codes(columns) and isinstance(self._vectors, FloatVectors)

    def _begin_vectors(self, columns: Columns) -> None:
        self._vectors, self._vectors_upto, self._vectors_since = FloatVectors(self._dim()), 0, len(columns)
        if self._outgrown(columns):
            source = columns.source
            table = QuantisedVectors(self._dim(), source.vectors, source.fingerprints, self._codes)
            self._vectors, self._vectors_upto = table, table.load(len(columns))

    def text_scores(self, columns: Columns, question: str, where: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
        """The BM25 score of each row, 0 outside `where` and for rows without a word of the question.

        A record is searched by its text and by the name of its entity.
        """
        with self._lock:
            self._follow(columns)
            stamp = partial(_stamp, columns)
            if _must_begin(columns, self._lexical_upto, self._lexical_since):
                self._lexical, self._lexical_since = LexicalIndex(self._tokenizer), len(columns)
                self._lexical_upto = 0 if self._words is None else self._lexical.load(self._words, stamp)
            for stop, rows in _runs(columns, self._lexical_upto):
                # Rows that are not read keep their numbers, with no text.
                texts = [""] * (stop - self._lexical_upto)
                for row, record in self.read(columns.source, rows):
                    texts[row - self._lexical_upto] = _searchable(record)
                self._lexical.add(self._lexical_upto, texts)
                self._lexical_upto = stop
            if self._words is not None and self._keep:
                self._lexical.save(self._words, stamp)
            inside = np.zeros(self._lexical_upto, np.bool_)
            inside[: len(where)] = where
            scores: npt.NDArray[np.float32] = self._lexical.scores(question, inside)[: len(where)]
            return scores

    def chains_of_entity(
        self, columns: Columns, entity: str, same: Callable[[str, str], bool] = operator.eq
    ) -> list[int]:
        """Codes of the chains of `entity`, whatever the user and project.

        With `same`, which tells whether two names mean one attribute, those of all its names; it is asked once for each
        pair of names.
        """
        with self._lock:
            self._follow(columns)
            for key in columns.chains[self._chains_upto :]:
                name = key.split("\x1f", 1)[0]
                if name not in self._chains:
                    self._entities.append(name)
                self._chains.setdefault(name, []).append(self._chains_upto)
                self._chains_upto += 1
            names = [entity]
            if same is not operator.eq:
                names, upto = self._alike.get(entity, ([], 0))
                names = names + [name for name in self._entities[upto:] if same(entity, name)]
                self._alike[entity] = (names, len(self._entities))
            return [code for name in names for code in self._chains.get(name, ())]

    def rows_of_chains(self, columns: Columns, codes: Sequence[int]) -> Rows:
        """The rows of the chains `codes`, ascending, live or not."""
        if not codes:
            return np.empty(0, np.intp)
        if len(codes) > _MANY_CHAINS:
            return np.flatnonzero(np.isin(columns.chain, codes))
        order = self._ordered(columns, "chain")
        return np.sort(np.concatenate([order.between(columns.chain, code - 1, code) for code in codes]))

    def rows_between(self, columns: Columns, name: str, low: float, high: float) -> Rows:
        """The rows whose number in the column `name` is greater than `low`, and at most `high` and finite, live or
        not."""
        return self._ordered(columns, name).between(getattr(columns, name), low, min(high, _GREATEST))

    def _ordered(self, columns: Columns, name: str) -> _Order:
        with self._lock:
            self._follow(columns)
            order = self._orders.get(name, _NO_ORDER)
            if len(columns) > order.upto + max(_BATCH, order.upto // 8):
                order = self._orders[name] = _Order.of(getattr(columns, name))
            return order

    def values(self, columns: Columns, keys: Iterable[str]) -> dict[str, ValueColumn]:
        """The value of each of `keys` in every row, as `record_value` reads it."""
        count = len(columns)
        with self._lock:
            self._follow(columns)
            held = {key: self._values.get(key, _Values(count)) for key in keys}
            for key, values in held.items():
                if _must_begin(columns, values.upto, values.since):
                    held[key] = _Values(count)
            self._values.update(held)
            for stop, rows in _runs(columns, min(values.upto for values in held.values())):
                found = self.read(columns.source, rows)
                for key, values in held.items():
                    values.extend(stop, ((row, record_value(record, key)) for row, record in found))
            return {key: _Column(values.codes[:count], values.values) for key, values in held.items()}

    def filter_mask(self, columns: Columns, filter: Filter) -> npt.NDArray[np.bool_]:
        """True for each row whose record passes `filter`; False for rows that could not be read."""
        with self._lock:
            seen = self.values(columns, filter.names())
            mask = filter.mask(seen)
            for column in seen.values():
                mask &= column.codes != UNREAD
            return mask


def _must_begin(columns: Columns, upto: int, since: int) -> bool:
    """True for an empty index, and for one that was begun with newer columns than these.

    In that one the rows that had died by then are missing, and in these columns some of them may live.
    """
    return upto == 0 or len(columns) < since


def _runs(columns: Columns, first: int) -> Iterator[tuple[int, Rows]]:
    """The rows from `first` on in runs that are short enough to hold their records: the end of each, and what to read.

    At first only live rows are read. Later those that died are, too: a slower reader may hold columns in which they
    live.
    """
    for start in range(first, len(columns), _BATCH):
        stop = min(start + _BATCH, len(columns))
        rows = np.arange(start, stop)
        yield stop, rows[columns.live[start:stop]] if first == 0 else rows


def _stamp(columns: Columns, count: int) -> bytes | None:
    """16 bytes that tell what the first `count` rows are; None if there aren't so many, or nothing to tell them by."""
    prints = columns.source.fingerprints(np.arange(min(count, len(columns))))
    if prints is None or count > len(columns):
        return None
    digest = hashlib.blake2b(digest_size=16)
    for values in (prints, columns.kind, columns.chain, columns.revision, columns.valid_from, columns.recorded_at):
        digest.update(np.ascontiguousarray(values[:count]).data)
    return digest.digest()


def _searchable(record: Record) -> str:
    return record.text if record.entity is None else f"{record.text}\n{record.entity.replace('_', ' ')}"
