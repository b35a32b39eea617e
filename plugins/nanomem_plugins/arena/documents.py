"""What stands in the rows of an arena file: records and their documents, deletions, vectors."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from nanomem_core.changes import Vectors
from nanomem_core.columns import kind_code
from nanomem_core.records import KINDS, Record, Scope

from .entries import CLOSED, DECLARED, DELETED, ENDED, KIND, Entry, Row
from .format import VectorDtype, compact_json

__all__ = [
    "decode_record",
    "delete_entry",
    "document_chain",
    "document_ends",
    "document_id",
    "encode_vectors",
    "id_hash",
    "id_hashes",
    "put_entry",
]

_TIME = struct.Struct("<d")
_JSON = json.JSONDecoder()
_NUL = b"\xc0\x80"
"""What stands for a NUL in a source; UTF-8 never holds these bytes."""


def id_hash(scope: Scope, id: str) -> int:
    """64 bits that stand for an id of a scope in tables. Names hold no NUL, so the parts can't run together."""
    return id_hashes(scope, (id,))[0]


def id_hashes(scope: Scope, ids: Iterable[str]) -> list[int]:
    """`id_hash` of each of `ids`."""
    start = hashlib.blake2b(f"{scope.user}\0{scope.agent}\0".encode(), digest_size=8)
    found = []
    for id in ids:
        whole = start.copy()
        whole.update(id.encode())
        found.append(int.from_bytes(whole.digest(), "little"))
    return found


def put_entry(record: Record, number: int, birth: int, data: bytes | memoryview = b"", vectors: int = 0) -> Entry:
    """The entry that writes `record`, whose id hash is `number`; `birth` 0 is that of a record which is new.

    Raises:
        InputError: the metadata holds what JSON can't.
    """
    flags = kind_code(record.kind)
    if record.declared:
        flags |= DECLARED
    if record.valid_to is not None:
        flags |= ENDED
    if record.closed_at is not None:
        flags |= CLOSED
    return Entry(
        flags, vectors, record.revision, record.version, record.valid_from, record.recorded_at, birth, number,
        document(record), data,
    )  # fmt: skip


def delete_entry(id: str, number: int, birth: int) -> Entry:
    """The entry that deletes a record."""
    return Entry(DELETED, 0, 0, 0, 0.0, 0.0, birth, number, id.encode())


def document(record: Record) -> bytes:
    """The document of a record: id, chain, source, metadata and text, parted by NUL, and the times at which it ended.

    Only the text may hold a NUL of its own.
    """
    metadata = record.metadata
    written = compact_json(metadata if type(metadata) is dict else dict(metadata)) if metadata else ""
    start = f"{record.id}\0{record.chain or ''}\0"
    if "\0" in record.source:
        source = record.source.encode().replace(b"\0", _NUL)
        doc = b"".join((start.encode(), source, f"\0{written}\0{record.text}".encode()))
    else:
        doc = f"{start}{record.source}\0{written}\0{record.text}".encode()
    for time in (record.valid_to, record.closed_at):
        if time is not None:
            doc += _TIME.pack(time)
    return doc


def document_id(doc: bytes) -> str | None:
    """The id at the begin of a document, or None if the document is damaged there."""
    try:
        return doc.partition(b"\0")[0].decode() or None
    except UnicodeDecodeError:
        return None


def document_chain(data: bytes, start: int = 0) -> str | None:
    """The chain of a sound document that begins at `start` in `data`."""
    place = data.index(0, start) + 1
    return data[place : data.index(0, place)].decode() if data[place] else None


def document_ends(flags: int, recorded_at: float, doc: bytes) -> tuple[float, float]:
    """`valid_to` and `closed_at` of a document that is sound, as columns have them."""
    ended, closed = _ends(flags, doc)
    if ended is None:
        return math.inf, math.inf
    return ended, recorded_at if closed is None else closed


def _ends(flags: int, doc: bytes) -> tuple[float | None, float | None]:
    end = len(doc)
    ended = closed = None
    if flags & CLOSED:
        end -= _TIME.size
        closed = _TIME.unpack_from(doc, end)[0]
    if flags & ENDED:
        ended = _TIME.unpack_from(doc, end - _TIME.size)[0]
    return ended, closed


def decode_record(row: Row, doc: bytes) -> Record:
    """The record of a sound row and its sound document."""
    valid_to = closed_at = None
    end = len(doc)
    if row.flags & (ENDED | CLOSED):
        valid_to, closed_at = _ends(row.flags, doc)
        end -= _TIME.size * ((valid_to is not None) + (closed_at is not None))
    id, chain, source, metadata, text = doc[:end].split(b"\0", 4)
    # By position, and the JSON without a look for its encoding: answers wait for this.
    return Record(
        id.decode(),
        text.decode(),
        KINDS[row.flags & KIND],
        chain.decode().partition("\x1f")[0] if chain else None,  # a chain is known by its entity, and whose it is
        bool(row.flags & DECLARED),
        row.revision,
        row.version,
        row.valid_from,
        valid_to,
        row.recorded_at,
        closed_at,
        source.replace(_NUL, b"\0").decode(),
        _JSON.raw_decode(metadata.decode())[0] if metadata else {},
    )


def encode_vectors(rows: Vectors, counts: Sequence[int], dtype: VectorDtype) -> Iterator[memoryview]:
    """The vectors of each of some records as they are stored: rows one after the other, little-endian.

    Args:
        rows: the vectors of all of them, shape (sum of `counts`, dim).
        counts: how many each has.
    """
    stored = np.ascontiguousarray(rows, np.dtype(dtype).newbyteorder("<"))
    data = stored.view(np.uint8).data.cast("B") if stored.size else memoryview(b"")
    size = stored.shape[1] * stored.itemsize
    end = 0
    for count in counts:
        start, end = end, end + count * size
        yield data[start:end]
