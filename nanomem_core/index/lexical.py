"""Keyword search over rows: an inverted index in numpy arrays, scored by BM25.

Postings lie in two parts: a main part sorted by term, and a tail in order of arrival, which every query reads whole and
which is merged into the main part when it has grown to an eighth of it. So adding one text costs little, whatever is
there already, and a query reads the postings of its terms and a short tail.

An index may be kept in a file, so that a new process need not read every text. Layout, little-endian: magic
``NMWORDS2``, u32 CRC-32 of what follows from byte 16 on, u32 zero, 16 bytes that tell of which texts it is, u64 rows,
u64 terms, u64 postings; then for each term the BLAKE2b (8 bytes) of its UTF-8, i64 starts (one more than terms), u32
lengths of rows, u32 rows and u8 counts of postings. No word stands in it as such.
"""

from __future__ import annotations

import contextlib
import struct
import threading
import zlib
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..fileio import atomic
from ..tokens import Tokenizer

__all__ = ["LexicalIndex"]

_K1 = 0.9
"""How soon further occurrences of a term in a text stop counting."""

_B = 0.4
"""How far a long text is held back, from 0 (not at all) to 1 (in proportion to its length)."""

_Uint32s = npt.NDArray[np.uint32]
_Uint8s = npt.NDArray[np.uint8]

_SMALLEST_TAIL = 4096
_MOST_COUNTED = np.iinfo(np.uint8).max
"""Further occurrences of a term in a text would raise its score by less than a hundredth."""


_MAGIC = b"NMWORDS2"
_HEADER = struct.Struct("<8sI4x16sQQQ")
_UNCHECKED = 16
"""Bytes of the header up to the first that the checksum covers."""

_WORTH_SAVING = 1024
"""Rows that must be new, at least, before the file is written again."""


class _Vocabulary(dict[str, int]):
    """Numbers the terms in the order in which they are met, behind those whose digests are `kept`, in their order."""

    def __init__(self, kept: npt.NDArray[np.uint64]) -> None:
        self._kept = kept
        self._order = np.argsort(kept)
        self._sorted = kept[self._order]
        self.size = len(kept)

    def __missing__(self, term: str) -> int:
        number = self._kept_number(term)
        if number is None:
            number, self.size = self.size, self.size + 1
        self[term] = number
        return number

    def find(self, term: str) -> int | None:
        """The number of a term, None for one that was never met."""
        return self[term] if term in self else self._kept_number(term)

    def digests(self) -> npt.NDArray[np.uint64]:
        """The digest of each term, by number."""
        new = [_digest(term) for term, number in self.items() if number >= len(self._kept)]
        return np.concatenate([self._kept, np.array(new, np.uint64)])

    def _kept_number(self, term: str) -> int | None:
        if not len(self._sorted):
            return None
        digest = _digest(term)
        place = int(np.searchsorted(self._sorted, np.uint64(digest)))
        found = place < len(self._sorted) and int(self._sorted[place]) == digest
        return int(self._order[place]) if found else None


def _digest(term: str) -> int:
    return int.from_bytes(blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


class LexicalIndex:
    """The words of rows 0, 1, 2, …; texts are added, never removed: a row that is gone is left out by the mask.

    Safe to use from several threads.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._vocabulary = _Vocabulary(np.empty(0, np.uint64))
        self._lengths = np.empty(0, np.uint32)  # tokens of each row, with room to grow
        self._size = 0
        self._saved = 0  # rows that the file holds
        # The main part: the postings of term t are those from _starts[t] to _starts[t + 1], rows ascending.
        self._starts = np.zeros(1, np.int64)
        self._rows = np.empty(0, np.uint32)
        self._counts = np.empty(0, np.uint8)
        # The tail, with room to grow.
        self._tail_terms = np.empty(0, np.uint32)
        self._tail_rows = np.empty(0, np.uint32)
        self._tail_counts = np.empty(0, np.uint8)
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

    def load(self, path: Path, stamp: Callable[[int], bytes | None]) -> int:
        """Take over what the file holds, into an index that is empty; returns the rows that need no `add`.

        `stamp` gives 16 bytes that tell of which texts the first so many rows are, None where there aren't so many. A
        file of other texts, and one that is damaged or cut off, is passed over.
        """
        data = b""
        with contextlib.suppress(OSError):
            data = atomic.read(path) or b""
        if len(data) < _HEADER.size:
            return 0
        magic, check, stamped, rows, terms, postings = _HEADER.unpack_from(data)
        if magic != _MAGIC or zlib.crc32(memoryview(data)[_UNCHECKED:]) != check or stamp(rows) != stamped:
            return 0
        parts, start = [], _HEADER.size
        for dtype, count in _parts(rows, terms, postings):
            parts.append(np.frombuffer(data, dtype, count, start))
            start += parts[-1].nbytes
        with self._lock:
            kept, self._starts, lengths, self._rows, self._counts = parts
            self._lengths = lengths.copy()  # the one that is written to
            self._vocabulary = _Vocabulary(kept)
            self._size = self._saved = rows
        return self._size

    def save(self, path: Path, stamp: Callable[[int], bytes | None]) -> None:
        """Keep the index in the file if so many rows are new that it is worth while; for `stamp` see `load`.

        A folder that can't be written is no error.
        """
        if self._size - self._saved < max(_WORTH_SAVING, self._saved // 4):
            return
        with self._lock:
            stamped = stamp(self._size)
            if stamped is None:
                return
            self._merge()
            self._saved = self._size  # also where it fails: the next attempt is due when it has grown again
            digests = self._vocabulary.digests()
            lengths = self._lengths[: self._size]
            parts: list[npt.NDArray[Any]] = [digests, self._starts, lengths, self._rows, self._counts]
        sizes = (len(lengths), len(digests), len(parts[-1]))
        body = b"".join(
            [stamped, struct.pack("<QQQ", *sizes)]
            + [part.astype(dtype).tobytes() for part, (dtype, _) in zip(parts, _parts(*sizes), strict=True)]
        )
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic.write(path, struct.pack("<8sI4x", _MAGIC, zlib.crc32(body)) + body, durable=False)

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
            terms = [term for token in tokens if (term := self._vocabulary.find(token)) is not None]
            rows, counts, owners = self._postings(terms)
            lengths = self._lengths[: len(where)]
            whole = len(where) == self._size and bool(where.all())
        if not whole:
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

    def _postings(self, terms: list[int]) -> tuple[_Uint32s, _Uint8s, npt.NDArray[np.intp]]:
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
        added = np.bincount(terms, minlength=self._vocabulary.size)
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


def _parts(rows: int, terms: int, postings: int) -> tuple[tuple[str, int], ...]:
    """Type and length of each array of a file."""
    return ("<u8", terms), ("<i8", terms + 1), ("<u4", rows), ("<u4", postings), ("u1", postings)


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
