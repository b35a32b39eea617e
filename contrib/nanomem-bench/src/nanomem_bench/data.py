"""What the arms store and are asked: vectors, texts and questions, made from a seed and laid down in a folder.

A folder holds ``vectors.npy`` (n, dim) and ``queries.npy`` (`QUERIES`, dim), float32 and of unit length, and
``texts.txt`` and ``queries.txt`` with a line for each of their rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nanomem_core.errors import InputError
from nanomem_core.interfaces import Embedder

__all__ = ["BUCKETS", "KINDS", "QUERIES", "TEXT", "K", "Material", "Spec", "blocks", "make", "make_from_text"]

K = 10
"""Hits that every search asks for."""

QUERIES = 500
BUCKETS = 100
"""Record p has the metadata ``{"bucket": p % BUCKETS}``, so a filter on one bucket matches 1 %."""

TEXT = "text"
"""The kind of data that comes from a file and the configured embedder."""

_SPREADS = {"clustered": (100, 0.7), "duplicates": (20, 0.01)}
"""Kind → records for each centre, and the length of the noise around a centre of length 1."""

KINDS = ("random", *_SPREADS, "dominant")
"""``dominant``: three dimensions twenty times as large as the others, as some models have them."""

_CHUNK = 50_000
_WORDS = 20_000
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


@dataclass(frozen=True, slots=True)
class Spec:
    """What a store holds.

    Attributes:
        chains: declared entities that the records are values of, in turn; 0 for records outside any chain.
    """

    n: int
    dim: int
    data: str = "random"
    chains: int = 0

    def __str__(self) -> str:
        kind = "" if self.data == "random" else f", {self.data}"
        chains = f", {self.chains:,} chains" if self.chains else ""
        return f"{self.n:,} × {self.dim}{kind}{chains}"


class Material:
    """A folder that `make` laid down, read as far as it is asked for."""

    def __init__(self, folder: Path, chains: int = 0) -> None:
        self._folder = folder
        self._chains = chains

    @cached_property
    def vectors(self) -> npt.NDArray[np.float32]:
        """Mapped, so that data which was only stored does not count as memory of the store."""
        rows: npt.NDArray[np.float32] = np.load(self._folder / "vectors.npy", mmap_mode="r")
        return rows

    @cached_property
    def queries(self) -> npt.NDArray[np.float32]:
        rows: npt.NDArray[np.float32] = np.load(self._folder / "queries.npy")
        return rows

    @cached_property
    def texts(self) -> list[str]:
        return _read_lines(self._folder / "texts.txt")

    @cached_property
    def questions(self) -> list[str]:
        return _read_lines(self._folder / "queries.txt")

    @cached_property
    def by_question(self) -> dict[str, npt.NDArray[np.float32]]:
        """The vector of each question, for products that ask an embedder."""
        return dict(zip(self.questions, self.queries, strict=True))

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])

    def vector(self, position: int) -> npt.NDArray[np.float32]:
        """What record `position` is made of; beyond the end the material starts again."""
        row: npt.NDArray[np.float32] = np.array(self.vectors[position % len(self)])
        return row

    def text(self, position: int) -> str:
        return self.texts[position % len(self)]

    def query(self, number: int) -> npt.NDArray[np.float32]:
        """The vector of question `number`; after the last one the questions start again."""
        row: npt.NDArray[np.float32] = self.queries[number % len(self.queries)]
        return row

    def question(self, number: int) -> str:
        return self.questions[number % len(self.questions)]

    def entity(self, position: int) -> str | None:
        return f"attribute {position % self._chains}" if self._chains else None

    def bucket(self, position: int) -> int:
        return position % BUCKETS

    def matrix(self, positions: range) -> npt.NDArray[np.float32]:
        """The vectors of `positions`, shape (len(positions), dim)."""
        rows: npt.NDArray[np.float32] = self.vectors[np.arange(positions.start, positions.stop) % len(self)]
        return rows


def blocks(start: int, stop: int, size: int) -> Iterator[range]:
    """The positions from `start` to `stop`, at most `size` at once."""
    for first in range(start, stop, size):
        yield range(first, min(first + size, stop))


def _read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")


def make(spec: Spec, folder: Path, seed: int) -> None:
    """Lay down generated data. The same spec and seed always give the same files."""
    folder.mkdir(parents=True, exist_ok=True)
    centre_rng, rng, word_rng = np.random.default_rng([seed, spec.n, spec.dim, KINDS.index(spec.data)]).spawn(3)
    per_centre, spread = _SPREADS.get(spec.data, (0, 0.0))
    centres = _unit(centre_rng.standard_normal((max(1, spec.n // per_centre) if per_centre else 0, spec.dim)))
    vectors = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float32, (spec.n, spec.dim))
    for first in range(0, spec.n, _CHUNK):
        part = vectors[first : first + _CHUNK]
        part[:] = _rows(spec.data, rng, len(part), spec.dim, centres, spread)
    vectors.flush()
    np.save(folder / "queries.npy", _rows(spec.data, rng, QUERIES, spec.dim, centres, spread))
    _write_lines(folder / "texts.txt", _sentences(word_rng, spec.n, 16))
    # The number keeps questions apart, since the arms look up the vector of a question by its text.
    questions = _sentences(word_rng, QUERIES, 5)
    _write_lines(folder / "queries.txt", (f"{text} {number}" for number, text in enumerate(questions)))


def _rows(
    data: str, rng: np.random.Generator, count: int, dim: int, centres: npt.NDArray[np.float32], spread: float
) -> npt.NDArray[np.float32]:
    noise = rng.standard_normal((count, dim), dtype=np.float32)
    if len(centres):
        noise *= spread / np.sqrt(dim)
        noise += centres[rng.integers(len(centres), size=count)]
    elif data == "dominant":
        noise[:, :3] *= 20
    return _unit(noise)


def _unit(rows: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def _sentences(rng: np.random.Generator, count: int, words: int) -> Iterator[str]:
    """Made-up words with the frequencies of a language (Zipf), so that a word index has real work."""
    base = len(_SYLLABLES)
    vocabulary = [
        _SYLLABLES[n % base] + _SYLLABLES[n // base % base] + _SYLLABLES[n // base**2 % base] for n in range(_WORDS)
    ]
    weights = 1 / np.arange(1, _WORDS + 1)
    for first in range(0, count, _CHUNK):
        chosen = rng.choice(_WORDS, size=(min(_CHUNK, count - first), words), p=weights / weights.sum())
        for line in chosen.tolist():
            yield " ".join(vocabulary[word] for word in line)


def make_from_text(path: Path, embedder: Embedder, folder: Path, top: int) -> Spec:
    """Lay down the lines of a file, at most `top`, with their embeddings; some are held out as questions.

    Raises:
        InputError: the file has fewer than 50 lines that are not blank.
    """
    lines = [" ".join(line.split()) for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    lines = [line for line in lines if line]
    if len(lines) < 50:
        raise InputError(f"{path}: expected at least 50 lines of text to embed; found {len(lines)}")
    step = max(2, len(lines) // QUERIES)
    questions = lines[::step][:QUERIES]
    held_out = {number * step for number in range(len(questions))}
    texts = [line for number, line in enumerate(lines) if number not in held_out][:top]
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "vectors.npy", _embed(embedder, texts))
    np.save(folder / "queries.npy", np.stack([embedder.embed_query(question) for question in questions]))
    _write_lines(folder / "texts.txt", texts)
    _write_lines(folder / "queries.txt", questions)
    return Spec(len(texts), embedder.dim, TEXT)


def _embed(embedder: Embedder, texts: Sequence[str]) -> npt.NDArray[np.float32]:
    return np.concatenate([embedder.embed_batch(texts[first : first + 256]) for first in range(0, len(texts), 256)])


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("\n".join(lines), encoding="utf-8")
