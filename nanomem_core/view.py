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
from typing import Any

import numpy as np
import numpy.typing as npt

from .changes import Vectors
from .columns import Columns, ColumnSource, Rows
from .filters import ABSENT, MISSING, UNREAD, Filter, record_value
from .index.lexical import LexicalIndex
from .index.quantised import has_kernel
from .index.vectors import FloatVectors, QuantisedVectors, VectorTable
from .records import Record
from .tokens import Tokenizer

__all__ = ["View"]

_BATCH = 4096

_MOST_FLOATS = 1 << 20
"""Numbers that are held as float32; with more, reading a quarter of the bytes outweighs the second look."""


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
        self._values: dict[str, _Values] = {}
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
            self._entities, self._alike = [], {}

    def read(self, source: ColumnSource, rows: Rows) -> list[tuple[int, Record]]:
        """Each row with its record; left out where that is gone or damaged.

        Not every store keeps what was replaced. A row whose record was written again meanwhile comes with the newer
        version rather than not at all, so that a record doesn't vanish from the answers for being corrected.
        """
        records = source.records(rows)
        if len(records) == len(rows):
            return list(zip(rows.tolist(), records, strict=True))
        by_id = {record.id: record for record in records}
        pairs = zip(rows.tolist(), source.ids(rows), strict=True)
        found = [(row, by_id[id] if id in by_id else self._fetch(id)) for row, id in pairs if id]
        return [(row, record) for row, record in found if record is not None]

    def vectors(self, columns: Columns) -> VectorTable:
        """The vectors of all rows that were live when they were first asked for."""
        with self._lock:
            self._follow(columns)
            if _must_begin(columns, self._vectors_upto, self._vectors_since) or self._outgrown(columns):
                self._begin_vectors(columns)
            for stop, rows in _runs(columns, self._vectors_upto):
                if self._embed is None:
                    matrix, owners = columns.source.vectors(rows)
                else:
                    found = [(row, record) for row, record in self.read(columns.source, rows) if record.text]
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

    def filter_mask(self, columns: Columns, filter: Filter) -> npt.NDArray[np.bool_]:
        """True for each row whose record passes `filter`; False for rows that could not be read."""
        count = len(columns)
        with self._lock:
            self._follow(columns)
            held = {key: self._values.get(key, _Values(count)) for key in filter.names()}
            for key, values in held.items():
                if _must_begin(columns, values.upto, values.since):
                    held[key] = _Values(count)
            self._values.update(held)
            for stop, rows in _runs(columns, min(values.upto for values in held.values())):
                found = self.read(columns.source, rows)
                for key, values in held.items():
                    values.extend(stop, ((row, record_value(record, key)) for row, record in found))
            seen = {key: _Column(values.codes[:count], values.values) for key, values in held.items()}
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
