"""What stands in the rows of an arena file: records and their documents, deletions, vectors."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from nanomem_core.changes import Vectors
from nanomem_core.columns import kind_code
from nanomem_core.records import KINDS, Record, Scope

from .format import CLOSED, DECLARED, DELETE, ENDED, PUT, Entry, Row, VectorDtype, compact_json, vector_stride

__all__ = [
    "decode_record",
    "delete_entry",
    "document_chain",
    "document_id",
    "encode_vectors",
    "id_hash",
    "put_entry",
]


def id_hash(scope: Scope, id: str) -> int:
    """64 bits that stand for an id of a scope in tables. Names hold no NUL, so the parts can't run together."""
    text = f"{scope.user}\0{scope.agent}\0{id}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def put_entry(scope: Scope, record: Record, birth: int, vectors: bytes, count: int) -> Entry:
    """The entry that writes `record`; `birth` 0 is that of a record which is new.

    Raises:
        InputError: the metadata holds what JSON can't.
    """
    flags = (
        (DECLARED if record.declared else 0)
        | (ENDED if record.valid_to is not None else 0)
        | (CLOSED if record.closed_at is not None else 0)
    )
    row = Row(
        PUT, kind_code(record.kind), flags, count, record.revision, record.version,
        record.valid_from, record.valid_to or 0.0, record.recorded_at, record.closed_at or 0.0,
        birth, id_hash(scope, record.id), 0, 0, 0, 0, 0,
    )  # fmt: skip
    return Entry(row, document(record), vectors)


def delete_entry(scope: Scope, id: str, birth: int) -> Entry:
    """The entry that deletes a record."""
    row = Row(DELETE, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, birth, id_hash(scope, id), 0, 0, 0, 0, 0)
    return Entry(row, compact_json(id) + b"\n")


def document(record: Record) -> bytes:
    """The document of a record: three lines of compact JSON, which are its id, its chain, and the rest."""
    body: dict[str, Any] = {"text": record.text, "entity": record.entity, "source": record.source}
    if record.metadata:
        body["metadata"] = dict(record.metadata)
    return b"\n".join((compact_json(record.id), compact_json(record.chain), compact_json(body), b""))


def document_id(doc: bytes) -> str | None:
    """The id at the begin of a document, or None if the document is damaged there."""
    try:
        id = json.loads(doc.split(b"\n", 1)[0])
    except ValueError:
        return None
    return id if isinstance(id, str) else None


def document_chain(doc: bytes) -> str | None:
    """The chain of a document that is sound."""
    chain: str | None = json.loads(doc.split(b"\n", 2)[1])
    return chain


def decode_record(row: Row, doc: bytes) -> Record:
    """The record of a sound row and its sound document."""
    id, _, body = doc.split(b"\n", 2)
    return Record(
        id=json.loads(id),
        kind=KINDS[row.kind],
        declared=row.declared,
        revision=row.revision,
        version=row.version,
        valid_from=row.valid_from,
        valid_to=row.valid_to if row.flags & ENDED else None,
        recorded_at=row.recorded_at,
        closed_at=row.closed_at if row.flags & CLOSED else None,
        **json.loads(body),
    )


def encode_vectors(vectors: Vectors, dtype: VectorDtype) -> bytes:
    """Rows (m, dim) as they are stored: each little-endian and filled up with zeros to a multiple of `ALIGN`."""
    count, dim = vectors.shape
    stored = np.zeros((count, vector_stride(dim, dtype)), np.uint8)
    numbers = vectors.astype(np.dtype(dtype).newbyteorder("<"), order="C")
    stored[:, : numbers.dtype.itemsize * dim] = numbers.view(np.uint8).reshape(count, -1)
    return stored.tobytes()
