"""Exact search that reads a quarter of the bytes: an int8 pass with a proven bound, then float32 for the few.

A unit vector x is stored as a code c of int8 and a scale s, so that x = s·c + e, with the length of e beside it. A
question q is coded alike: q = t·d + f. Then

    q·x = s·t·(d·c) + f·(s·c) + q·e,   and so   |q·x - s·t·(d·c)| ≤ |f|·(1 + |e|) + |e|

since |q| = 1 and |s·c| ≤ |x| + |e|. Both are first turned by one fixed rotation, which changes no product but spreads
numbers that stand out over many dimensions; otherwise a few dominant ones would make every scale, and so every |e|,
large. The integer product d·c is exact; `SLACK` covers the rounding of float32. So each row's cosine is known to lie
between two numbers. Rows whose upper bound lies below the k-th largest lower bound can't be among the first k; the
others' cosines are computed from their vectors in float32. The answer, order included, is that of a full float32 scan.

The int8 products are computed by the package numkong (the extra ``fast``); without it searches scan float32.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from ..changes import Vectors
from ..columns import Rows

__all__ = ["SLACK", "checksums", "entry_type", "has_kernel", "quantise", "quantised_bounds"]

SLACK = 2e-5
"""What rounding can add: of the bounds themselves, and of a float32 product of up to 4096 numbers, about √n·2⁻²⁴."""

_ALIGN = 64
_MIXED = 256
"""Dimensions that are mixed with one another, where the width is a multiple of it."""


@cache
def has_kernel() -> bool:
    """True if int8 products can be computed fast, which takes the extra ``fast``."""
    try:
        import_module("numkong")
    except ImportError:
        return False
    return True


@cache
def entry_type(dim: int) -> np.dtype[Any]:
    """One quantised vector, little-endian, padded to 64 bytes.

    ``code`` (int8, `dim` numbers), ``scale``, ``error`` (the length of e), ``owner`` (the row it belongs to), ``print``
    (a fingerprint of the vectors of that row) and ``check``, a checksum of all before.
    """
    end = dim + -dim % 8
    return np.dtype(
        {
            "names": ["code", "scale", "error", "owner", "print", "check"],
            "formats": [("i1", (dim,)), "<f4", "<f4", "<u4", "<u4", "<u8"],
            "offsets": [0, end, end + 4, end + 8, end + 12, end + 16],
            "itemsize": end + 24 + -(end + 24) % _ALIGN,
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
    places, signs, mixer = _rotation(dim)
    turned = (vectors[:, places] * signs).reshape(-1, len(mixer)) @ mixer
    return turned.reshape(-1, dim).astype(np.float32, copy=False)


@cache
def _rotation(dim: int) -> tuple[Rows, npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    # Not from a generator of random numbers, whose stream may change with numpy's version: codes are kept on disk.
    noise = np.frombuffer(hashlib.shake_256(b"nanomem rotation").digest(8 * dim), "<u8")
    signs = np.where(noise & 1, np.float32(1), np.float32(-1))
    mixer = np.ones((1, 1), np.float32)
    while len(mixer) < _MIXED and dim % (2 * len(mixer)) == 0:
        mixer = np.block([[mixer, mixer], [mixer, -mixer]])
    return np.argsort(noise, kind="stable"), signs, mixer / np.float32(np.sqrt(len(mixer)))


def _coded(vectors: Vectors) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    scale = (np.abs(vectors).max(axis=1) / 127).astype(np.float32)
    scale[scale == 0] = 1
    return np.rint(vectors / scale[:, np.newaxis]).astype(np.int8), scale


def quantised_bounds(
    codes: npt.NDArray[np.int8],
    scales: npt.NDArray[np.float32],
    errors: npt.NDArray[np.float32],
    query: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """For each entry, given as columns, two numbers between which its cosine with the unit vector `query` lies."""
    query = _rotated(query[np.newaxis])[0]
    code, scale = _coded(query[np.newaxis])
    rest = query.astype(np.float64) - code[0] * float(scale[0])
    error = float(np.sqrt(rest @ rest))
    middle = np.asarray(_product()(codes, code)).reshape(-1).astype(np.float32)
    middle *= scales
    middle *= scale[0]
    reach = errors * np.float32(1 + error)
    reach += np.float32(error + SLACK)
    low = middle - reach
    middle += reach
    return low, middle


@cache
def _product() -> Callable[[npt.NDArray[np.int8], npt.NDArray[np.int8]], Any]:
    numkong = import_module("numkong")
    return lambda codes, code: numkong.cdist(codes, code, metric="dot")
