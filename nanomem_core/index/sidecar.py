"""Vectors of stores that keep none, held beside them so that a text is embedded once.

A vector is found by its text and its space: the file's name tells the space, an entry's key is a digest of the text. So
an entry can't be outdated, and the file may be deleted at any time. Layout, little-endian: a 16-byte header (magic
``NMVECS1\\n``, u32 dimension, u32 zero), then entries of 16-byte BLAKE2b key, u32 CRC-32 of the vector's bytes, u32
zero, and `dim` float32. Entries that are cut off or damaged are passed over; the vector is computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import threading
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..changes import Vectors
from ..fileio import atomic
from ..fileio.locks import Lock
from ..interfaces import VectorSpace

__all__ = ["VectorSidecar", "keep_only"]

_MAGIC = b"NMVECS1\n"
_HEADER = struct.Struct("<8sII")
_KEY_SIZE = 16
_Remembered = dict[bytes, npt.NDArray[np.float32]]


class VectorSidecar:
    """Remembers the vectors of texts in one space; in memory only if `folder` is None.

    Safe to use from several threads. Several processes may add to one file; each sees what was there when it began
    and what it added.
    """

    def __init__(self, folder: Path | None, space: VectorSpace) -> None:
        digest = hashlib.blake2b(f"{space.embedder}\n{space.dim}".encode(), digest_size=8).hexdigest()
        self._path = None if folder is None else folder / f"vectors-{digest}.bin"
        self._dim = space.dim
        self._header = _HEADER.pack(_MAGIC, space.dim, 0)
        self._entry = np.dtype(
            [("key", f"V{_KEY_SIZE}"), ("crc", "<u4"), ("zero", "<u4"), ("vector", "<f4", (space.dim,))], align=False
        )
        self._lock = threading.Lock()
        self._vectors: _Remembered | None = None

    def encoder(self, encode: Callable[[Sequence[str]], Vectors]) -> Callable[[Sequence[str]], Vectors]:
        """`encode`, called only for texts whose vector isn't remembered."""

        def remembered(texts: Sequence[str]) -> Vectors:
            keys = [_key(text) for text in texts]
            with self._lock:
                known = self._load()
                missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
            if missing:
                fresh = dict(zip(missing, encode(list(missing.values())), strict=True))
                with self._lock:
                    known.update(fresh)
                    # Derived: a full disk, or a folder that takes no files, is no reason for a search to fail.
                    with contextlib.suppress(OSError):
                        self._append(fresh)
            return np.stack([known[key] for key in keys]) if keys else np.empty((0, self._dim), np.float32)

        return remembered

    def knows(self, texts: Sequence[str]) -> bool:
        """True if the vectors of all `texts` are remembered."""
        with self._lock:
            known = self._load()
        return all(_key(text) in known for text in texts)

    def keep(self, texts: Iterable[str]) -> None:
        """Forget the vectors of all other texts, in the files too (see `keep_only`)."""
        keys = {_key(text) for text in texts}
        with self._lock:
            if self._path is None:
                self._vectors = {key: row for key, row in self._load().items() if key in keys}
            else:
                _keep_in_files(self._path.parent, keys)
                self._vectors = None

    def _load(self) -> _Remembered:
        if self._vectors is None:
            data = None if self._path is None else atomic.read(self._path)
            self._vectors = {} if data is None else self._parse(data)
        return self._vectors

    def _parse(self, data: bytes) -> _Remembered:
        if data[: _HEADER.size] != self._header:
            return {}
        count = (len(data) - _HEADER.size) // self._entry.itemsize
        entries = np.frombuffer(data, self._entry, count, _HEADER.size)
        return {
            entry["key"].tobytes(): entry["vector"]
            for entry in entries
            if zlib.crc32(entry["vector"].tobytes()) == entry["crc"]
        }

    def _packed(self, vectors: _Remembered) -> bytes:
        entries = np.zeros(len(vectors), self._entry)
        for entry, (key, row) in zip(entries, vectors.items(), strict=True):
            entry["key"], entry["vector"] = np.void(key), row
            entry["crc"] = zlib.crc32(entry["vector"].tobytes())
        return entries.tobytes()

    def _append(self, vectors: _Remembered) -> None:
        if self._path is None:
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with Lock(self._path.with_suffix(".lock")):
            binary = getattr(os, "O_BINARY", 0)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | binary, 0o600)
            try:
                if os.read(descriptor, _HEADER.size) != self._header:
                    os.ftruncate(descriptor, 0)
                    atomic.write_all(descriptor, self._header, 0)
                size = os.lseek(descriptor, 0, os.SEEK_END)
                # A write that was cut off leaves part of an entry, which the next one replaces.
                whole = size - (size - _HEADER.size) % self._entry.itemsize
                atomic.write_all(descriptor, self._packed(vectors), whole)
            finally:
                os.close(descriptor)


def keep_only(folder: Path, texts: Iterable[str]) -> None:
    """Forget in the sidecars of all spaces in `folder` the vectors of all other texts, so that nothing derived from an
    erased text is left.
    """
    _keep_in_files(folder, {_key(text) for text in texts})


def _keep_in_files(folder: Path, keys: Container[bytes]) -> None:
    for path in folder.glob("vectors-*.bin"):
        with Lock(path.with_suffix(".lock")):
            data = atomic.read(path) or b""
            kept = [entry for entry in _entries(data) if entry[:_KEY_SIZE] in keys]
            if kept:
                atomic.write(path, data[: _HEADER.size] + b"".join(kept))
            else:
                atomic.remove(path)


def _entries(data: bytes) -> Iterator[bytes]:
    """The whole entries of a file of any space."""
    if not data.startswith(_MAGIC) or len(data) < _HEADER.size:
        return
    _, dim, _ = _HEADER.unpack_from(data)
    size = _KEY_SIZE + 8 + 4 * dim
    for start in range(_HEADER.size, len(data) - size + 1, size):
        yield data[start : start + size]


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=_KEY_SIZE).digest()
