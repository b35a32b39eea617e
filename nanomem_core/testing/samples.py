"""Material that the contracts share: names and texts that break careless stores, and comparisons of stores."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..changes import Commit, Delete, Put
from ..columns import Rows, kind_code
from ..interfaces import Storage, VectorSpace
from ..records import Record, Scope
from .fakes import HashEmbedder

__all__ = [
    "EMBEDDER",
    "HOSTILE_NAMES",
    "NOON",
    "ODD_METADATA",
    "ODD_TEXTS",
    "SPACE",
    "assert_columns_agree",
    "assert_same_record",
    "assert_vectors_kept",
    "bytes_below",
    "fact",
    "full_run",
    "put",
    "put_all",
    "remaining",
    "remove",
]

NOON = 1_773_140_400.0
"""2026-03-10T11:00:00Z."""

HOSTILE_NAMES = (
    "../../outside",
    "..",
    ".",
    "a/b",
    "a\\b",
    "/etc/x",
    "C:\\temp\\x",
    "con",
    "nul.md",
    "x" * 300,
    "x" * 299 + "y",
    "trailing. ",
    "trailing.",
    "trailing",
    "ann@example.org",
    "用户-一",
    "A",
    "a",
    "ab",
    "Straße",
    "strasse",
    "STRASSE",
    "é",
    "e\u0301",
    "hi..there",
    "%2e%2e",
    "-rf",
    "~",
    "a\nb",
    "a b",
    'a"b',
    "a*?<>|:b",
    "\u202egnp.exe",
    "🫖",
    "default",
)
"""Users, agents and ids that are all legal and all different, though many are alike to a file system."""

ODD_TEXTS = (
    "",
    " ",
    "\n",
    "\r\n",
    "ends in newlines\n\n",
    "one\rtwo\r\nthree\nfour\x0bfive\x0csix\x1cseven\x85eight\u2028nine\u2029ten",
    "a NUL \0 inside",
    "\0",
    "\ufeffstarts with a byte order mark",
    "---\ntitle: not a header\n---\n# Not a heading",
    '{"id": "f2"}{"id": "f3"}',
    "```json\n{}\n```",
    "tabs\tand \x07 bells \x1b[31m",
    "漢字 – ünïcode 🫖 👩‍👩‍👧‍👦 e\u0301 é",
    "\U0010ffff\ufffe\uffff",
    "한국어 नमस्ते ไทย עברית العربية",
    "'; DROP TABLE facts; --",
    "x" * 70_000,
)

ODD_METADATA: tuple[dict[str, Any], ...] = (
    {},
    {"": "", " ": None, "é": [], "\0": {}},
    {"n": [0, -1, 2**63, 10**30, 0.1, -0.0, 1e-320, 1.7976931348623157e308], "b": [True, False, None]},
    {"deep": {"list": [[[{"a": [1, {"b": "漢字\n\0🫖"}]}]]]}},
    {"user_id": "ann", "project": "x"},
    {"text with spaces": "---\n", "quotes": "\"'`", "yaml": "yes", "number": "1", "date": "2026-01-01"},
)

EMBEDDER = HashEmbedder(16, "contract-1")
SPACE = VectorSpace(EMBEDDER.id, EMBEDDER.dim)


def full_run() -> bool:
    """True if ``NANOMEM_FULL=1`` asks for every state rather than a sample."""
    return os.environ.get("NANOMEM_FULL") == "1"


def fact(id: str, text: str | None = None, **fields: Any) -> Record:
    """A record with times set; `text` defaults to one that names the id."""
    return Record(id, f"text of {id}" if text is None else text, **{"valid_from": NOON, "recorded_at": NOON, **fields})


def put(storage: Storage, record: Record, expect: int | None = None) -> Put:
    """A `Put` as core makes it: with a vector for each of the first three lines, if the store keeps vectors."""
    if not storage.keeps_vectors or record.kind == "purged":
        return Put(record, expect)
    return Put(record, expect, EMBEDDER.embed_batch(_lines(record)))


def _lines(record: Record) -> list[str]:
    return record.text.split("\n")[:3]


def put_all(storage: Storage, scope: Scope, records: Iterable[Record]) -> Commit:
    """Commit `records` at once, after the store was told whose vectors they have."""
    if storage.keeps_vectors:
        storage.adopt(SPACE)
    return storage.commit(scope, [put(storage, record) for record in records])


def remove(storage: Storage, scope: Scope, *ids: str) -> Commit:
    """Commit the deletion of `ids` at once."""
    return storage.commit(scope, [Delete(id) for id in ids])


def remaining(storage: Storage, scope: Scope) -> tuple[int, list[Record]]:
    """The head of a scope and its records in order."""
    return storage.head(scope), list(storage.scan(scope))


def assert_same_record(found: Record | None, expected: Record) -> None:
    """`found` equals `expected`, and its metadata is the same JSON (1, 1.0 and true are not the same)."""
    assert found == expected
    assert found is not None
    assert json.dumps(dict(found.metadata)) == json.dumps(dict(expected.metadata))


def assert_columns_agree(storage: Storage, scope: Scope) -> None:
    """The columns of a scope say what `head`, `scan` and `get` say."""
    columns, source = storage.columns(scope), storage.columns(scope).source
    records = {record.id: record for record in storage.scan(scope)}
    assert columns.scope == scope
    assert columns.head == storage.head(scope)
    others = ("scope", "head", "chains", "source")
    arrays = [getattr(columns, name) for name in columns.__slots__ if name not in others and name[0] != "_"]
    assert {len(array) for array in arrays} == {len(columns)}
    live: Rows = np.flatnonzero(columns.live)
    assert sorted(source.ids(live)) == sorted(records)
    assert [record.id for record in source.records(live)] == source.ids(live)
    for found in source.records(live):
        assert_same_record(found, records[found.id])
    for id, record in records.items():
        row = source.row(id)
        assert row is not None
        assert columns.live[row]
        assert columns.kind[row] == kind_code(record.kind)
        assert bool(columns.declared[row]) is record.declared
        code = int(columns.chain[row])
        assert (columns.chains[code] if code >= 0 else None) == record.chain
        assert columns.revision[row] == record.revision
        assert columns.valid_from[row] == record.valid_from
        assert columns.recorded_at[row] == record.recorded_at
        assert columns.valid_to[row] == (math.inf if record.valid_to is None else record.valid_to)
        told = record.recorded_at if record.closed_at is None else record.closed_at
        assert columns.closed_at[row] == (math.inf if record.valid_to is None else told)
        assert storage.get(scope, id) == record


def assert_vectors_kept(storage: Storage, scope: Scope, embedder: HashEmbedder = EMBEDDER) -> None:
    """Every record written by `put` has its vectors, in order and to the precision of float16."""
    columns = storage.columns(scope)
    rows: Rows = np.flatnonzero(columns.live & (columns.kind != kind_code("purged")))
    matrix, owners = columns.source.vectors(rows)
    assert len(matrix) == len(owners)
    for row, record in zip(rows, columns.source.records(rows), strict=True):
        expected = embedder.embed_batch(_lines(record))
        found = np.asarray(matrix, np.float32)[np.asarray(owners) == row]
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-3)


def bytes_below(folder: Path) -> Sequence[tuple[Path, bytes]]:
    """Every file below `folder`, with its content; names count as content too."""
    return [(path, str(path).encode() + path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file()]
