"""Exact search that reads a quarter of the bytes: an int8 pass with a proven bound, then float32 for the few.

A unit vector x is stored as a code c of int8 and a scale s, so that x = s·c + e, with the length of e beside it. A
question q is coded alike: q = t·d + f. Then

    q·x = s·t·(d·c) + f·(s·c) + q·e,   and so   |q·x - s·t·(d·c)| ≤ |f|·(1 + |e|) + |e|

since |q| = 1 and |s·c| ≤ |x| + |e|. Both are first turned by one fixed rotation, which changes no product but spreads
numbers that stand out over many dimensions; otherwise a few dominant ones would make every scale, and so every |e|,
large. The integer product d·c is exact; `_SLACK` covers the rounding of float32. So each row's cosine is known to lie
between two numbers. Rows whose upper bound lies below the k-th largest lower bound can't be among the first k; the
others' bounds are narrowed by q·(s·c), which is off by |e| at most, and the cosines of what is left then are computed
from their vectors in float32. The answer, order included, is that of a full float32 scan.

The int8 products are computed by the package numkong (the extra ``fast``); without it searches scan float32.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import threading
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..changes import Vectors
from ..columns import Rows

__all__ = ["Codes", "Question", "checksums", "entry_type", "has_kernel", "quantise"]

_SLACK = 2e-5
"""What rounding can add: of the bounds themselves, and of a float32 product of up to 4096 numbers, about √n·2⁻²⁴."""

_MIXED = 256
"""Dimensions that are mixed with one another, where the width is a multiple of it."""

_MOST_PACKED = 1 << 23
"""Numbers of which a copy is held. It is read in half the time as long as it stays in the processor's cache."""

_SHARE = 1 << 24
"""Numbers that are worth a thread."""


@cache
def has_kernel() -> bool:
    """True if int8 products can be computed fast, which takes the extra ``fast``."""
    try:
        _kernels()
    except ImportError:
        return False
    return True


@cache
def entry_type(dim: int) -> np.dtype[Any]:
    """One quantised vector, little-endian, without padding but for the one behind a code.

    ``code`` (int8, `dim` numbers), ``scale``, ``error`` (the length of e), ``owner`` (the row it belongs to), ``print``
    (a fingerprint of the vectors of that row) and ``check``, a checksum of all before.
    """
    end = dim + -dim % 8
    return np.dtype(
        {
            "names": ["code", "scale", "error", "owner", "print", "check"],
            "formats": [("i1", (dim,)), "<f4", "<f4", "<u4", "<u4", "<u8"],
            "offsets": [0, end, end + 4, end + 8, end + 12, end + 16],
            "itemsize": end + 24,
        }
    )


def quantise(vectors: Vectors, owners: Rows, prints: npt.NDArray[np.uint32] | None = None) -> npt.NDArray[Any]:
    """Entries of unit `vectors`, shape (m, dim), that belong to the rows `owners` with those fingerprints."""
    entries = np.zeros(len(vectors), entry_type(vectors.shape[1]))
    vectors = _rotated(vectors)
    code, scale = _coded(vectors)
    entries["code"], entries["scale"], entries["owner"] = code, scale, owners
    entries["print"] = 0 if prints is None else prints
    # Float64, and rounded up: the bound has to hold for the numbers as they are stored.
    rest = vectors.astype(np.float64) - code * entries["scale"].astype(np.float64)[:, np.newaxis]
    entries["error"] = np.nextafter(np.sqrt((rest * rest).sum(axis=1)).astype(np.float32), np.float32(np.inf))
    entries["check"] = checksums(entries)
    return entries


def checksums(entries: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """What ``check`` of each entry has to be: its bytes as 64-bit words, times fixed odd numbers, added modulo 2⁶⁴.

    An odd factor carries every single flipped bit into the sum.
    """
    end = entries.dtype.fields["check"][1] if entries.dtype.fields else 0
    words = entries.view(np.uint8).reshape(len(entries), entries.itemsize)[:, :end].view("<u8")
    factors = np.frombuffer(hashlib.shake_256(b"nanomem checksum").digest(end), "<u8") | np.uint64(1)
    sums: npt.NDArray[np.uint64] = words @ factors
    return sums


def _rotated(vectors: Vectors) -> Vectors:
    """`vectors` after a fixed rotation: dimensions are shuffled, some reversed, and mixed by a Hadamard matrix.

    Source of the idea: Ailon and Chazelle, "Approximate nearest neighbors and the fast Johnson-Lindenstrauss
    transform", STOC 2006.
    """
    dim = vectors.shape[1]
    places, signs, left, right = _rotation(dim)
    # A Hadamard matrix is the Kronecker product of two smaller ones, so two short steps stand for a long one.
    turned = left @ ((vectors[:, places] * signs).reshape(-1, len(left), len(right)) @ right)
    return turned.reshape(-1, dim).astype(np.float32, copy=False)


@cache
def _rotation(dim: int) -> tuple[Rows, Vectors, Vectors, Vectors]:
    # Not from a generator of random numbers, whose stream may change with numpy's version: codes are kept on disk.
    noise = np.frombuffer(hashlib.shake_256(b"nanomem rotation").digest(8 * dim), "<u8")
    signs = np.where(noise & 1, np.float32(1), np.float32(-1))
    mixed = math.gcd(dim, _MIXED)
    small = 1 << (mixed.bit_length() - 1) // 2
    return np.argsort(noise, kind="stable"), signs, _hadamard(small), _hadamard(mixed // small)


def _hadamard(size: int) -> Vectors:
    """The orthogonal Hadamard matrix of a power of two."""
    matrix = np.ones((1, 1), np.float32)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return (matrix / math.sqrt(size)).astype(np.float32)


def _coded(vectors: Vectors) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    scale = (np.abs(vectors).max(axis=1) / 127).astype(np.float32)
    scale[scale == 0] = 1
    return np.rint(vectors / scale[:, np.newaxis]).astype(np.int8), scale


class Question(NamedTuple):
    """A unit vector as it is compared with codes.

    Attributes:
        rotated: the vector as the codes have it.
        code: int8, shape (1, dim); `scale` and `error` as of an entry.
    """

    rotated: npt.NDArray[np.float32]
    code: npt.NDArray[np.int8]
    scale: float
    error: float

    @classmethod
    def of(cls, query: npt.NDArray[np.float32]) -> Question:
        rotated = _rotated(query[np.newaxis])
        code, [scale] = _coded(rotated)
        rest = rotated[0].astype(np.float64) - code[0] * float(scale)
        return cls(rotated[0], code, float(scale), math.sqrt(float(rest @ rest)))

    def reach(self, errors: Any) -> Any:
        """How far the cosine may lie from the product of the codes, for entries with these errors."""
        return errors * np.float32(1 + self.error) + np.float32(self.error + _SLACK)

    def narrow_reach(self, errors: Any) -> Any:
        """The same for `Codes.narrow_products`."""
        return errors + np.float32(_SLACK)


class Codes:
    """The codes and scales of entries, to be multiplied with those of questions.

    Few codes are held as a copy, in the order that suits the processor, from the second question on; of many the
    entries are read, by several threads if the process may use several.
    """

    def __init__(self, entries: npt.NDArray[Any]) -> None:
        self._codes = entries["code"]
        self._scales = np.ascontiguousarray(entries["scale"])
        self._packed: Any = None
        self._asked = False

    def products(self, question: Question, count: int) -> npt.NDArray[np.float32]:
        """What the cosine of each of the first `count` entries with `question` is about; `Question.reach` tells how
        closely."""
        if self._packed is None and self._asked and self._codes.size <= _MOST_PACKED:
            self._packed = _kernels().dots_pack(np.ascontiguousarray(self._codes), dtype="int8")
        self._asked = True
        if self._packed is None:
            raw = np.empty((1, count), np.float32)
            _multiply(self._codes[:count], question.code, raw)
        else:
            raw = np.asarray(_kernels().dots_packed(question.code, self._packed))
        result: npt.NDArray[np.float32] = np.multiply(
            raw[0, :count], self._scales[:count], dtype=np.float32, casting="unsafe"
        )
        result *= np.float32(question.scale)
        return result

    def narrow_products(self, question: Question, numbers: Rows) -> npt.NDArray[np.float32]:
        """The same for some entries, with the question as it is in place of its code: q·(s·c), which is |q·e| off."""
        products: npt.NDArray[np.float32] = self._codes[numbers].astype(np.float32) @ question.rotated
        products *= self._scales[numbers]
        return products


def _multiply(codes: npt.NDArray[np.int8], code: npt.NDArray[np.int8], out: npt.NDArray[np.float32]) -> None:
    """Write the product of `code` with each of `codes` to `out`, shape (1, len(codes))."""
    cdist = _kernels().cdist
    shares = min(_threads(), codes.size // _SHARE)
    if shares < 2:
        cdist(code, codes, metric="dot", out=out)
        return
    ends = [len(codes) * number // shares for number in range(shares + 1)]
    parts = [slice(start, end) for start, end in pairwise(ends)]
    done: set[int] = set()

    def multiply(number: int) -> None:
        cdist(code, codes[parts[number]], metric="dot", out=out[:, parts[number]])
        done.add(number)

    # Made anew each time: that takes a hundredth of what is shared, and no thread outlives a fork or waits at the end.
    helpers = [threading.Thread(target=multiply, args=(number,)) for number in range(1, shares)]
    started = []
    with contextlib.suppress(RuntimeError):  # the system has no more threads
        for helper in helpers:
            helper.start()
            started.append(helper)
    multiply(0)
    for helper in started:
        helper.join()
    for number in range(shares):
        if number not in done:
            multiply(number)


def _threads() -> int:
    """Threads that may compute: as many as OMP_NUM_THREADS says, else as the process has processors."""
    with contextlib.suppress(ValueError):
        return int(os.environ.get("OMP_NUM_THREADS", ""))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _kernels() -> Any:
    return import_module("numkong")
