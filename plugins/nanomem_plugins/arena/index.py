"""The index: a file derived from the vault, which lets a store open without reading every record.

It holds the columns of all rows, and sorted tables from hashes to rows and chains. It is mapped, not parsed. It may
be deleted at any time, and is never trusted: it names the vault it was made from, and every page of it has a checksum
that is looked at before the page is first used. Whatever doesn't fit, the vault is read instead.
"""

from __future__ import annotations

import bisect
import json
import mmap
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nanomem_core.fileio import atomic

__all__ = ["Index", "IndexDamagedError", "save"]

_MAGIC = b"NMAINDX\n"
_VERSION = 1
_PAGE = 4096
_PREFIX = struct.Struct("<8sIIQQQ")
"""Magic, version, CRC of the description and the page checksums, their offset, and the lengths of the two."""


class IndexDamagedError(Exception):
    """The index isn't what was written. Never leaves the store: the vault is read instead."""


class Index:
    """A mapped index.

    Attributes:
        meta: what the writer noted, JSON types.
    """

    def __init__(self, data: npt.NDArray[np.uint8]) -> None:
        try:
            self._describe(data)
        except (ValueError, KeyError, TypeError, struct.error) as error:
            raise IndexDamagedError(str(error)) from error

    def _describe(self, data: npt.NDArray[np.uint8]) -> None:
        magic, version, crc, offset, length, pages = _PREFIX.unpack(bytes(data[: _PREFIX.size]))
        tail = bytes(data[offset : offset + length + 4 * pages])
        if magic != _MAGIC or version != _VERSION or len(tail) != length + 4 * pages or zlib.crc32(tail) != crc:
            raise IndexDamagedError("the description is damaged")
        description = json.loads(tail[:length])
        self.meta: dict[str, Any] = description["meta"]
        self._crcs = np.frombuffer(tail, "<u4", pages, length)
        self._data = data[:offset]
        self._sound = bytearray(pages)
        self._sound[0] = 1  # the prefix, which was checked
        self._whole = False
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        self._starts: dict[str, int] = {}
        for name, (dtype, start, count) in description["sections"].items():
            self._arrays[name] = np.frombuffer(self._data, dtype, count, start)
            self._starts[name] = start

    @classmethod
    def load(cls, path: str) -> Index | None:
        """Map the index at `path`; None if there is none, or none that can be used."""
        try:
            with Path(path).open("rb") as stream:
                data = np.frombuffer(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
            return cls(data)
        except (OSError, ValueError, IndexDamagedError):
            return None

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def column(self, name: str) -> npt.NDArray[Any]:
        """A section as a read-only array, mapped. The whole index is verified first.

        Raises:
            IndexDamagedError: a page is damaged.
        """
        self.verify()
        return self._arrays[name]

    def item(self, name: str, number: int) -> Any:
        """One number of a section; only the page it is on is verified.

        Raises:
            IndexDamagedError: the page is damaged.
        """
        array = self._arrays[name]
        if not self._whole:
            self._verify_page((self._starts[name] + number * array.itemsize) // _PAGE)
        return array[number].item()

    def find(self, table: str, key: int) -> Iterator[int]:
        """The values that stand beside `key` in the sorted sections ``<table>_hash`` and ``<table>_value``."""
        keys = f"{table}_hash"
        hashes = self._arrays[keys].data
        count = len(hashes)
        if self._whole:
            # None of numpy's ways to look for one number is as fast.
            low = bisect.bisect_left(hashes, key)
        else:
            low = bisect.bisect_left(range(count), key, key=lambda number: self.item(keys, number))
        while low < count and hashes[low] == key:
            yield self.item(f"{table}_value", low)
            low += 1

    def holds(self, table: str, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which of `keys` `find` finds something for: faster than asking for each of many."""
        hashes = self._arrays[f"{table}_hash"]
        start = self._starts[f"{table}_hash"]
        if not self._whole:
            for page in range(start // _PAGE, -(-(start + hashes.nbytes) // _PAGE)):
                self._verify_page(page)
        places = np.searchsorted(hashes, keys)
        places[places == len(hashes)] = 0
        found: npt.NDArray[np.bool_] = hashes[places] == keys if len(hashes) else np.zeros(len(keys), np.bool_)
        return found

    def text(self, blob: str, start: int, end: int) -> str:
        """UTF-8 text in a section of bytes."""
        first = self._starts[blob]
        if not self._whole:
            for page in range((first + start) // _PAGE, (first + max(start, end - 1)) // _PAGE + 1):
                self._verify_page(page)
        return bytes(self._arrays[blob][start:end]).decode()

    def verify(self) -> None:
        """Verify every page that was not verified yet."""
        if not self._whole:
            for page in range(len(self._sound)):
                self._verify_page(page)
            self._whole = True

    def _verify_page(self, page: int) -> None:
        if not self._sound[page]:
            if zlib.crc32(self._data[page * _PAGE : (page + 1) * _PAGE].data) != self._crcs[page]:
                raise IndexDamagedError(f"page {page} is damaged")
            self._sound[page] = 1


def save(path: str, meta: Mapping[str, Any], sections: Iterable[tuple[str, npt.NDArray[Any]]]) -> None:
    """Replace the index. Sections are taken one by one, so that a generator keeps only one in memory.

    Nothing is forced to disk: what a loss of power makes of the file is found out by its checksums.

    Raises:
        OSError: it can't be written; the old one stays.
    """
    crcs: list[int] = []
    places: dict[str, tuple[str, int, int]] = {}
    with atomic.replacing(path, durable=False) as descriptor:
        offset = _PAGE
        crcs.append(zlib.crc32(b""))
        for name, array in sections:
            places[name] = (array.dtype.str, offset, len(array))
            data = np.ascontiguousarray(array).view(np.uint8)
            atomic.write_all(descriptor, data.data, offset)
            padding = -len(data) % _PAGE
            crcs.extend(zlib.crc32(data[at : at + _PAGE].data) for at in range(0, len(data) - len(data) % _PAGE, _PAGE))
            if padding:
                crcs.append(zlib.crc32(bytes(data[-(len(data) % _PAGE) :]) + bytes(padding)))
            offset += len(data) + padding
        description = json.dumps({"meta": meta, "sections": places}, separators=(",", ":")).encode()
        pages = np.array(crcs, "<u4")
        tail = description + pages.tobytes()
        atomic.write_all(descriptor, tail, offset)
        prefix = _PREFIX.pack(_MAGIC, _VERSION, zlib.crc32(tail), offset, len(description), len(pages))
        atomic.write_all(descriptor, prefix.ljust(_PAGE, b"\0"), 0)
