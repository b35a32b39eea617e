"""Keyword search over rows: an inverted index in numpy arrays, scored by BM25.

Postings lie in two parts: a main part sorted by term, and a tail in order of arrival, which every query reads whole and
which is merged into the main part when it has grown to an eighth of it. So adding one text costs little, whatever is
there already, and a query reads the postings of its terms and a short tail.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..tokens import Tokenizer

__all__ = ["LexicalIndex"]

_K1 = 0.9
"""How soon further occurrences of a term in a text stop counting."""

_B = 0.4
"""How far a long text is held back, from 0 (not at all) to 1 (in proportion to its length)."""

_Uint32s = npt.NDArray[np.uint32]
_Uint16s = npt.NDArray[np.uint16]

_SMALLEST_TAIL = 4096
_MOST_COUNTED = np.iinfo(np.uint16).max


class _Vocabulary(dict[str, int]):
    """Numbers the terms in the order in which they are met."""

    def __missing__(self, term: str) -> int:
        self[term] = number = len(self)
        return number


class LexicalIndex:
    """The words of rows 0, 1, 2, …; texts are added, never removed: a row that is gone is left out by the mask.

    Safe to use from several threads.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._vocabulary = _Vocabulary()
        self._lengths = np.empty(0, np.uint32)  # tokens of each row, with room to grow
        self._size = 0
        # The main part: the postings of term t are those from _starts[t] to _starts[t + 1], rows ascending.
        self._starts = np.zeros(1, np.int64)
        self._rows = np.empty(0, np.uint32)
        self._counts = np.empty(0, np.uint16)
        # The tail, with room to grow.
        self._tail_terms = np.empty(0, np.uint32)
        self._tail_rows = np.empty(0, np.uint32)
        self._tail_counts = np.empty(0, np.uint16)
        self._tail_size = 0

    def __len__(self) -> int:
        """Rows that were added."""
        return self._size

    def add(self, first_row: int, texts: Sequence[str]) -> None:
        """Add the texts of the rows from `first_row` on.

        Raises:
            InputError: `first_row` is not the row after the last one; nothing was added.
        """
        documents = [self._tokenizer.index_tokens(text) for text in texts]
        lengths = np.fromiter(map(len, documents), np.int64, len(documents))
        with self._lock:
            if first_row != self._size:
                raise InputError(f"first_row: expected {self._size}, the row after the last one; found {first_row}")
            number = self._vocabulary.__getitem__
            terms = np.fromiter((number(token) for tokens in documents for token in tokens), np.uint64, lengths.sum())
            rows = np.repeat(np.arange(first_row, first_row + len(documents), dtype=np.uint64), lengths)
            pairs, counts = np.unique(rows << np.uint64(32) | terms, return_counts=True)
            self._lengths = _extended(self._lengths, self._size, lengths)
            self._size += len(documents)
            size, self._tail_size = self._tail_size, self._tail_size + len(pairs)
            self._tail_terms = _extended(self._tail_terms, size, pairs & np.uint64(0xFFFFFFFF))
            self._tail_rows = _extended(self._tail_rows, size, pairs >> np.uint64(32))
            self._tail_counts = _extended(self._tail_counts, size, np.minimum(counts, _MOST_COUNTED))
            if self._tail_size > max(_SMALLEST_TAIL, len(self._rows) // 8):
                self._merge()

    def scores(self, query: str, where: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
        """The score of each row of the mask `where`, shape (len(where),); 0 outside the mask and without a match.

        All statistics (the number of texts, how many hold a term, the mean length) are those of the rows in the mask,
        so the scores are those of an index that holds only these rows. Rows that were added behind the mask's end are
        outside it.

        BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009) in the variant of
        Lucene: idf = ln(1 + (N - df + 0.5) / (df + 0.5)), which is never negative, and no factor k1 + 1. k1 is 0.9 and
        b is 0.4, which suit short texts.

        Raises:
            InputError: the mask is longer than the index.
        """
        tokens = self._tokenizer.query_tokens(query)
        with self._lock:
            if len(where) > self._size:
                raise InputError(
                    f"where: expected at most {self._size} rows, as many as were added; found {len(where)}"
                )
            terms = [self._vocabulary[token] for token in tokens if token in self._vocabulary]
            rows, counts, owners = self._postings(terms)
            lengths = self._lengths[: len(where)]
        inside = rows < len(where)
        inside[inside] = where[rows[inside]]
        rows, counts, owners = rows[inside], counts[inside], owners[inside]
        if not len(rows):
            return np.zeros(len(where), np.float32)
        texts = np.count_nonzero(where)
        holding = np.bincount(owners, minlength=len(terms))
        weights = np.log1p((texts - holding + 0.5) / (holding + 0.5))
        mean_length = lengths.sum(where=where, dtype=np.int64) / texts
        norms = _K1 * (1 - _B + _B * lengths[rows] / mean_length)
        return np.bincount(rows, weights[owners] * counts / (counts + norms), len(where)).astype(np.float32)

    def _postings(self, terms: list[int]) -> tuple[_Uint32s, _Uint16s, npt.NDArray[np.intp]]:
        """Row and count of each posting of `terms`, and the place in `terms` that it belongs to, ascending."""
        tail_terms = self._tail_terms[: self._tail_size]
        rows, counts, held = [self._rows[:0]], [self._counts[:0]], []
        for term in terms:
            merged = slice(*self._starts[term : term + 2]) if term + 1 < len(self._starts) else slice(0, 0)
            recent = np.flatnonzero(tail_terms == term)
            rows += [self._rows[merged], self._tail_rows[recent]]
            counts += [self._counts[merged], self._tail_counts[recent]]
            held.append(len(rows[-2]) + len(rows[-1]))
        return np.concatenate(rows), np.concatenate(counts), np.repeat(np.arange(len(terms)), held)

    def _merge(self) -> None:
        """Sort the tail into the main part."""
        terms = self._tail_terms[: self._tail_size]
        order = np.argsort(terms, kind="stable")
        added = np.bincount(terms, minlength=len(self._vocabulary))
        present = np.zeros_like(added)
        present[: len(self._starts) - 1] = np.diff(self._starts)
        # A posting moves behind those of the terms before its own; within a term the tail's rows are the later ones.
        old_to = np.arange(len(self._rows)) + np.repeat(np.cumsum(added) - added, present)
        new_to = np.arange(len(terms)) + np.repeat(np.cumsum(present), added)
        self._rows = _interleaved(self._rows, old_to, self._tail_rows[order], new_to)
        self._counts = _interleaved(self._counts, old_to, self._tail_counts[order], new_to)
        self._starts = np.concatenate(([0], np.cumsum(present + added)))
        self._tail_terms, self._tail_rows, self._tail_counts = terms[:0].copy(), self._rows[:0], self._counts[:0]
        self._tail_size = 0


def _extended(array: npt.NDArray[Any], size: int, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """`array` with `values` put behind its first `size` items; moved to a larger one where it has no room."""
    needed = size + len(values)
    if needed > len(array):
        grown = np.empty(max(needed, size + size // 2), array.dtype)
        grown[:size] = array[:size]
        array = grown
    array[size:needed] = values
    return array


def _interleaved(
    first: npt.NDArray[Any], first_to: npt.NDArray[np.intp], second: npt.NDArray[Any], second_to: npt.NDArray[np.intp]
) -> npt.NDArray[Any]:
    result = np.empty(len(first) + len(second), first.dtype)
    result[first_to] = first
    result[second_to] = second
    return result
