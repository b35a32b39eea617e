"""``docs/reference/formats/arena.md`` is enough to read a file: this reader was written from it, without the code."""

from __future__ import annotations

import json
import struct
import zlib
from hashlib import blake2b

import numpy as np

from .material import ANN, BOB, fill, vectors


def u32(data, offset):
    return struct.unpack_from("<I", data, offset)[0]


def u64(data, offset):
    return struct.unpack_from("<Q", data, offset)[0]


def f64(data, offset):
    return struct.unpack_from("<d", data, offset)[0]


def read(data):
    """Heads, live records by scope and id, the space, and the vectors of each record."""
    assert data[:8] == b"NMARENA\n"
    assert data[:128] == data[128:256]
    assert u32(data, 124) == zlib.crc32(data[:124])
    assert (u32(data, 8), u32(data, 12)) == (1, 0)
    number = u64(data, 40)
    alive, heads, space = {}, {}, None
    start = 256
    while any(data[start:]):
        header, length = data[start : start + 96], u32(data, start + 88)
        footer = data[start + length - 96 : start + length]
        assert (header[:4], footer[:4]) == (b"\xabBLK", b"\xbaBLK")
        assert header[4:92] == footer[4:92]
        for copy in (header, footer):
            assert u32(copy, 92) == zlib.crc32(copy[:92])
        assert u32(header, 76) == zlib.crc32(data[start + 96 : start + length - 96])
        assert (u64(header, 8), u64(header, 16)) == (number, start)
        rows = start + 96 + u32(header, 56)
        label = rows + 68 * u32(header, 40)
        name = data[label : label + u32(header, 48)]
        again = label + len(name) + u32(header, 60)
        assert u32(header, 72) == zlib.crc32(name)
        assert data[again : again + len(name)] == name
        assert not any(data[again + len(name) : start + length - 96])
        if header[4] == 2:
            space = json.loads(name)
        else:
            scope = tuple(json.loads(name))
            heads[scope] = u64(header, 32)
            for at in range(rows, label, 68):
                row = data[at : at + 68]
                assert u32(row, 64) == zlib.crc32(row[:64])
                doc = data[at + u32(row, 44) :][: u32(row, 48)]
                assert u32(row, 56) == zlib.crc32(doc)
                id = doc.split(b"\0")[0].decode()
                digest = blake2b("\0".join([*scope, id]).encode(), digest_size=8).digest()
                assert u64(row, 36) == int.from_bytes(digest, "little")
                if row[0] & 8:
                    assert doc == id.encode()
                    del alive[u64(row, 28)]
                    continue
                ends = []
                for bit in (64, 32):
                    ends.append(f64(doc, len(doc) - 8) if row[0] & bit else None)
                    doc = doc[:-8] if row[0] & bit else doc
                parts = [part.decode() for part in doc.split(b"\0", 4)]
                dim, count = u32(header, 44), u32(row, 0) >> 8
                first = at - u32(row, 52)
                assert u32(row, 60) == zlib.crc32(data[first : first + 2 * count * dim])
                matrix = np.frombuffer(data, "<f2", count * dim, first).reshape(count, dim)
                alive[u64(row, 28)] = scope, [*parts, *ends], row, np.array(matrix, np.float32)
        start, number = start + length, number + 1
    return heads, [alive[birth] for birth in sorted(alive)], space


def test_a_file_can_be_read_from_its_documentation(tmp_path):
    path = tmp_path / "memory.dat"
    with fill(path) as store:
        records = {scope: list(store.scan(scope)) for scope in (ANN, BOB)}
        for _ in range(2):
            heads, found, space = read(path.read_bytes())
            assert heads == {("ann", "default"): 4, ("bob", "coder"): 1}
            assert space == ["test-1", 4]
            for scope, expected in records.items():
                mine = [item for item in found if item[0] == (scope.user, scope.agent)]
                assert len(mine) == len(expected)
                for record, (_, document, row, _) in zip(expected, mine, strict=True):
                    id, chain, source, metadata, text, closed_at, valid_to = document
                    assert (id, chain or None) == (record.id, record.chain)
                    assert (chain.split("\x1f")[0] or None, source, text) == (record.entity, record.source, record.text)
                    assert json.loads(metadata or "{}") == record.metadata
                    assert (valid_to, closed_at) == (record.valid_to, record.closed_at)
                    assert row[0] & 7 == 2
                    assert struct.unpack_from("<ii", row, 4) == (record.revision, record.version)
                    assert (f64(row, 12), f64(row, 20)) == (record.valid_from, record.recorded_at)
                    assert bool(row[0] & 16) == record.declared
            given = vectors(len("likes coffee now"), 3)
            given /= np.linalg.norm(given, axis=1, keepdims=True)
            (matrix,) = [item[3] for item in found if item[1][0] == "b"]
            np.testing.assert_allclose(matrix, given, atol=1e-3)
            store.compact()
