"""One scope as a question sees it: its columns, with what is derived from the records' texts and metadata.

Vectors, full-text postings and the values of metadata keys are built on first use and extended by the rows that were
written since, never rebuilt for a write. Only a store that hands out other columns (after compaction, say) starts
them anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .changes import Vectors
from .columns import Columns, ColumnSource, Rows
from .filters import MISSING, Filter, ValueColumn, record_value
from .index.exact import VectorTable
from .index.lexical import LexicalIndex
from .records import Record
from .tokens import Tokenizer

__all__ = ["View"]

_BATCH = 4096


class _Values:
    """The values of one key, as codes."""

    def __init__(self) -> None:
        self._codes: list[int] = []
        self._numbers: dict[tuple[type, str], int] = {}
        self.values: list[Any] = []
        self._array = np.empty(0, np.int32)

    def set(self, row: int, value: Any) -> None:
        self._codes.extend([-1] * (row + 1 - len(self._codes)))
        if value is MISSING:
            return
        key = (type(value), repr(value))
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(value)
        self._codes[row] = self._numbers[key]

    def column(self, count: int) -> ValueColumn:
        if len(self._array) != count:
            self._codes.extend([-1] * (count - len(self._codes)))
            self._array = np.array(self._codes[:count], np.int32)
        return _Column(self._array, self.values)


class _Column:
    def __init__(self, codes: npt.NDArray[np.int32], values: Sequence[Any]) -> None:
        self.codes = codes
        self.values = values


class View:
    """Derived indexes of one scope. Safe to use from several threads.

    Args:
        embed: the vectors of records that the store does not keep, one matrix (m, dim) a record; None for a store
            that keeps them.
    """

    def __init__(
        self, dim: Callable[[], int], tokenizer: Tokenizer, embed: Callable[[list[Record]], list[Vectors]] | None
    ) -> None:
        self._dim = dim
        self._tokenizer = tokenizer
        self._embed = embed
        self._lock = threading.RLock()
        self._source: ColumnSource | None = None
        self._vectors: VectorTable | None = None
        self._vectors_upto = 0
        self._lexical: LexicalIndex | None = None
        self._lexical_upto = 0
        self._values: dict[str, _Values] = {}
        self._values_upto: dict[str, int] = {}
        self._named: dict[str, tuple[list[int], int]] = {}

    def _follow(self, columns: Columns) -> None:
        if columns.source is not self._source:
            self._source = columns.source
            self._vectors, self._vectors_upto = None, 0
            self._lexical, self._lexical_upto = None, 0
            self._values, self._values_upto = {}, {}
            self._named = {}

    def vectors(self, columns: Columns) -> VectorTable:
        """The vectors of all rows that were live when they were first asked for."""
        with self._lock:
            self._follow(columns)
            if self._vectors is None:
                self._vectors = VectorTable(self._dim())
            for rows in _batches(columns, self._vectors_upto):
                if self._embed is None:
                    matrix, owners = columns.source.vectors(rows)
                else:
                    found = _records(columns.source, rows)
                    matrices = self._embed([record for _, record in found])
                    owners = np.repeat([row for row, _ in found], [len(m) for m in matrices]).astype(np.intp)
                    matrix = np.concatenate(matrices) if matrices else np.empty((0, self._dim()), np.float32)
                self._vectors.append(matrix, owners)
            self._vectors_upto = max(self._vectors_upto, len(columns))
            return self._vectors

    def text_scores(self, columns: Columns, question: str, where: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
        """The BM25 score of each row, 0 outside `where` and for rows without a word of the question.

        A record is searched by its text and by the name of its entity.
        """
        with self._lock:
            self._follow(columns)
            if self._lexical is None:
                self._lexical = LexicalIndex(self._tokenizer)
            for start in range(self._lexical_upto, len(columns), _BATCH):
                # Rows that died before they were read keep their numbers, with no text.
                texts = [""] * min(_BATCH, len(columns) - start)
                for row, record in _records(columns.source, _live(columns, start)):
                    texts[row - start] = _searchable(record)
                self._lexical.add(start, texts)
                self._lexical_upto = start + len(texts)
            inside = np.zeros(self._lexical_upto, np.bool_)
            inside[: len(where)] = where
            scores: npt.NDArray[np.float32] = self._lexical.scores(question, inside)[: len(where)]
            return scores

    def chains_of_entity(self, columns: Columns, entity: str, same: Callable[[str, str], bool]) -> list[int]:
        """Codes of the chains whose entity means the same as `entity`; each chain is compared once."""
        with self._lock:
            self._follow(columns)
            codes, upto = self._named.get(entity, ([], 0))
            chains = columns.chains[upto:]
            codes = codes + [upto + i for i, key in enumerate(chains) if same(entity, key.split("\x1f", 1)[0])]
            self._named[entity] = (codes, upto + len(chains))
            return codes

    def filter_mask(self, columns: Columns, filter: Filter) -> npt.NDArray[np.bool_]:
        """True for each row whose record passes `filter`."""
        with self._lock:
            self._follow(columns)
            keys = set(filter.names())
            first = min((self._values_upto.get(key, 0) for key in keys), default=0)
            for rows in _batches(columns, first):
                for row, record in _records(columns.source, rows):
                    for key in keys:
                        if row >= self._values_upto.get(key, 0):
                            self._values.setdefault(key, _Values()).set(row, record_value(record, key))
            for key in keys:
                self._values_upto[key] = max(self._values_upto.get(key, 0), len(columns))
            held: Mapping[str, ValueColumn] = {
                key: self._values.setdefault(key, _Values()).column(len(columns)) for key in keys
            }
            return filter.mask(held)


def _batches(columns: Columns, first: int) -> Iterable[Rows]:
    """The live rows from `first` on, in runs short enough to hold their records in memory."""
    for start in range(first, len(columns), _BATCH):
        rows = _live(columns, start)
        if len(rows):
            yield rows


def _live(columns: Columns, start: int) -> Rows:
    return np.flatnonzero(columns.live[start : start + _BATCH]) + start


def _records(source: ColumnSource, rows: Rows) -> list[tuple[int, Record]]:
    """Each row with its record; rows whose record can't be read are left out."""
    records = source.records(rows)
    if len(records) == len(rows):
        return list(zip(rows.tolist(), records, strict=True))
    by_id = dict(zip(source.ids(rows), rows.tolist(), strict=True))
    return [(by_id[record.id], record) for record in records]


def _searchable(record: Record) -> str:
    return record.text if record.entity is None else f"{record.text}\n{record.entity.replace('_', ' ')}"
