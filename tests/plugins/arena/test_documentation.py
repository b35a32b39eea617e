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
    while start < len(data):
        header, length = data[start : start + 128], u64(data, start + 116)
        footer = data[start + length - 128 : start + length]
        assert (header[:4], footer[:4]) == (b"\xabBLK", b"\xbaBLK")
        assert header[4:124] == footer[4:124]
        for copy in (header, footer):
            assert u32(copy, 124) == zlib.crc32(copy[:124])
        assert u32(header, 84) == zlib.crc32(data[start + 128 : start + length - 128])
        assert (u64(header, 8), u64(header, 16)) == (number, start)
        rows = start + 128 + u64(header, 56)
        label = rows + 96 * u32(header, 40)
        name = data[label : label + u32(header, 48)]
        again = label + len(name) + u64(header, 64)
        assert u32(header, 80) == zlib.crc32(name)
        assert data[again : again + len(name)] == name
        assert not any(data[again + len(name) : start + length - 128])
        if header[4] == 2:
            space = json.loads(name)
        else:
            scope = tuple(json.loads(name))
            heads[scope] = u64(header, 32)
            for at in range(rows, label, 96):
                row = data[at : at + 96]
                assert u32(row, 92) == zlib.crc32(row[:92])
                doc = data[u64(row, 64) : u64(row, 64) + u32(row, 80)]
                assert u32(row, 84) == zlib.crc32(doc)
                lines = [json.loads(line) for line in doc.splitlines()]
                digest = blake2b("\0".join([*scope, lines[0]]).encode(), digest_size=8).digest()
                assert u64(row, 56) == int.from_bytes(digest, "little")
                if row[0] == 2:
                    del alive[u64(row, 48)]
                    continue
                stride = -(-u32(header, 44) * 2 // 64) * 64
                first, count = u64(row, 72), u32(row, 4)
                assert u32(row, 88) == zlib.crc32(data[first : first + count * stride])
                matrix = [
                    np.frombuffer(data, "<f2", u32(header, 44), first + number * stride) for number in range(count)
                ]
                alive[u64(row, 48)] = scope, lines, row, np.array(matrix, np.float32)
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
                for record, (_, (id, chain, body), row, _) in zip(expected, mine, strict=True):
                    assert (id, chain) == (record.id, record.chain)
                    assert body["text"] == record.text
                    assert (body["entity"], body["source"]) == (record.entity, record.source)
                    assert body.get("metadata", {}) == record.metadata
                    assert row[1] == 2
                    assert struct.unpack_from("<ii", row, 8) == (record.revision, record.version)
                    assert f64(row, 16) == record.valid_from
                    assert (f64(row, 24) if row[2] & 2 else None) == record.valid_to
                    assert bool(row[2] & 1) == record.declared
            given = vectors(len("likes coffee now"), 3)
            given /= np.linalg.norm(given, axis=1, keepdims=True)
            (matrix,) = [item[3] for item in found if item[1][0] == "b"]
            np.testing.assert_allclose(matrix, given, atol=1e-3)
            store.compact()
