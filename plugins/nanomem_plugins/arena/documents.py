"""What stands in the rows of an arena file: records and their documents, deletions, vectors."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterator, Sequence

import numpy as np

from nanomem_core.changes import Vectors
from nanomem_core.columns import kind_code
from nanomem_core.records import KINDS, Record, Scope

from .entries import CLOSED, DECLARED, DELETED, ENDED, Entry, Row
from .format import VectorDtype, compact_json

__all__ = [
    "decode_record",
    "delete_entry",
    "document_chain",
    "document_ends",
    "document_id",
    "encode_vectors",
    "id_hash",
    "put_entry",
]

_TIME = struct.Struct("<d")
_NUL = b"\xc0\x80"
"""What stands for a NUL in a source; UTF-8 never holds these bytes."""


def id_hash(scope: Scope, id: str) -> int:
    """64 bits that stand for an id of a scope in tables. Names hold no NUL, so the parts can't run together."""
    text = f"{scope.user}\0{scope.agent}\0{id}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


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
    chain = record.chain
    metadata = compact_json(dict(record.metadata)) if record.metadata else b""
    source = record.source.encode().replace(b"\0", _NUL)
    doc = b"\0".join(
        (record.id.encode(), b"" if chain is None else chain.encode(), source, metadata, record.text.encode())
    )
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


def document_chain(doc: bytes) -> str | None:
    """The chain of a document that is sound."""
    start = doc.index(b"\0") + 1
    return doc[start : doc.index(b"\0", start)].decode() or None


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
    valid_to, closed_at = _ends(row.flags, doc)
    times = (valid_to is not None) + (closed_at is not None)
    id, chain, source, metadata, text = doc[: len(doc) - _TIME.size * times].split(b"\0", 4)
    return Record(
        id=id.decode(),
        text=text.decode(),
        kind=KINDS[row.kind],
        # A chain is known by its entity, and whose it is.
        entity=chain.decode().partition("\x1f")[0] or None,
        declared=bool(row.flags & DECLARED),
        revision=row.revision,
        version=row.version,
        valid_from=row.valid_from,
        valid_to=valid_to,
        recorded_at=row.recorded_at,
        closed_at=closed_at,
        source=source.replace(_NUL, b"\0").decode(),
        metadata=json.loads(metadata) if metadata else {},
    )


def encode_vectors(matrices: Sequence[Vectors], dtype: VectorDtype) -> Iterator[memoryview]:
    """Each of some matrices (m, dim) as it is stored: rows one after the other, little-endian."""
    if not matrices:
        return
    stored = np.dtype(dtype).newbyteorder("<")
    data = np.concatenate(matrices, dtype=stored, casting="same_kind").view(np.uint8).data.cast("B")
    end = 0
    for matrix in matrices:
        start, end = end, end + matrix.size * stored.itemsize
        yield data[start:end]
