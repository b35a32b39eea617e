"""The bytes of an arena file."""

from __future__ import annotations

import hashlib
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.changes import Put
from nanomem_core.errors import FormatError, InputError
from nanomem_core.records import KINDS, Record
from nanomem_plugins.arena.columns import gather, widen
from nanomem_plugins.arena.documents import (
    decode_record,
    delete_entry,
    document_chain,
    document_ends,
    document_id,
    encode_vectors,
    id_hash,
    put_entry,
)
from nanomem_plugins.arena.entries import block_rows, encode_block, is_sound, packed_rows
from nanomem_plugins.arena.format import (
    BLOCK,
    COMMIT,
    HEADER,
    ROW,
    SECTOR,
    BlockHeader,
    FileHeader,
    block_label,
    vector_size,
    zero_sectors,
)
from nanomem_plugins.arena.storage import ArenaStorage

from .material import ANN, vectors

FILE_HEADER = FileHeader("float16", bytes(range(16)), 7, 3, 1_700_000_000.5)


def a_block(offset=HEADER, entries=None, **fields):
    if entries is None:
        record = Record("a", "text", entity="city", revision=2, version=3, valid_from=1.5, valid_to=9.0)
        (data,) = encode_vectors(vectors(1, 2).astype(np.float32), [2], "float16")
        entries = [put_entry(record, id_hash(ANN, "a"), 99, data, 2), delete_entry("gone", id_hash(ANN, "gone"), 7)]
    arguments = {"seq": 5, "synced": 0, "time": 1_700_000_000.0, "label": ("ann", "default"), "head": 4, "dim": 4}
    header, block = encode_block(COMMIT, offset=offset, entries=entries, **arguments | fields)
    assert header == BlockHeader.decode(block[:BLOCK])
    return bytes(block)


def test_the_file_header_says_what_was_written():
    data = FILE_HEADER.encode()
    assert len(data) == HEADER
    assert FileHeader.decode(data, "x") == FILE_HEADER


@pytest.mark.parametrize("place", [3, 20, 60, 126, 130, 200, 255])
def test_one_copy_of_the_file_header_is_enough(place):
    data = bytearray(FILE_HEADER.encode())
    data[place] ^= 1
    assert FileHeader.decode(bytes(data), "x") == FILE_HEADER


def test_a_file_of_a_newer_version_is_refused(tmp_path):
    path = tmp_path / "memory.dat"
    with ArenaStorage(path) as store:
        store.commit(ANN, [Put(Record("a", "text"))])
    data = path.read_bytes()
    newer = FileHeader.decode(data, "x").encode()

    copy = bytearray(newer[:124])
    copy[8:12] = struct.pack("<I", 2)
    both = (bytes(copy) + struct.pack("<I", zlib.crc32(copy))) * 2
    path.write_bytes(both + data[HEADER:])
    with pytest.raises(FormatError, match="version 2"):
        ArenaStorage(path)
    assert path.read_bytes() == both + data[HEADER:]


@pytest.mark.parametrize("content", [b"no", b"%PDF-1.7\n" + bytes(500), b"NMARENA\n" + bytes(500)])
def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "memory.dat"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"memory\.dat"):
        ArenaStorage(path)
    assert path.read_bytes() == content


def test_a_block_is_aligned_and_its_footer_repeats_its_header():
    block = a_block()
    header = BlockHeader.decode(block[:BLOCK])
    assert header is not None
    assert len(block) == header.length
    assert header.length % 32 == 0
    assert BlockHeader.decode(block[-BLOCK:], footer=True) == header
    assert BlockHeader.decode(block[-BLOCK:]) is None


def test_rows_of_a_block_say_what_was_written():
    block = a_block()
    header = BlockHeader.decode(block[:BLOCK])
    data = block[header.rows_offset - HEADER :]
    assert block_label(header, data) == ("ann", "default")
    (_, put, doc), (_, delete, gone) = block_rows(header, data)
    assert decode_record(put, doc) == Record(
        "a", "text", entity="city", revision=2, version=3, valid_from=1.5, valid_to=9.0
    )
    assert (put.birth, put.vectors, put.vectors_offset) == (99, 2, header.vectors_offset)
    assert (delete.birth, delete.deleted, document_id(gone)) == (7, True, "gone")
    assert (put.id_hash, delete.id_hash) == (id_hash(ANN, "a"), id_hash(ANN, "gone"))


def test_all_rows_of_a_block_are_decoded_at_once_as_one_by_one():
    entries = [
        put_entry(
            Record(f"r{n}", "x" * n, kind=KINDS[n], valid_from=n, recorded_at=2.0 * n), n + 1, n * 7, bytes(8 * n), n
        )
        for n in range(5)
    ]
    block = bytearray(a_block(entries=[*entries, delete_entry("gone", 1, 2)]))
    header = BlockHeader.decode(block[:BLOCK])
    block[header.rows_offset - HEADER + 2 * ROW + 9] ^= 4
    data = bytes(block[header.rows_offset - HEADER :])
    rows = list(packed_rows(data, header.rows))
    ends = range(ROW, ROW * len(rows) + 1, ROW)
    sound = [is_sound(data[end - ROW : end], row[0], row[-1]) for end, row in zip(ends, rows, strict=True)]
    assert sound == [True, True, False, True, True, True]
    one_by_one = list(block_rows(header, data))
    assert one_by_one[2][1:] == ("the row of a record is damaged", entries[2].doc)
    for number in {0, 1, 3, 4, 5}:
        place, row, doc = one_by_one[number]
        assert doc == [*entries, delete_entry("gone", 1, 2)][number].doc
        what, *fields, to_doc, doc_length, to_vectors, doc_crc, vectors_crc, _ = rows[number]
        assert (what, *fields) == (row.flags | row.vectors << 8, *row[2:8])
        assert (place + to_doc, doc_length, place - to_vectors, doc_crc, vectors_crc) == row[8:]


def test_a_row_of_no_known_kind_is_damaged():
    entry = put_entry(Record("a", "text"), 1, 1)._replace(flags=len(KINDS))
    block = a_block(entries=[entry])
    header = BlockHeader.decode(block[:BLOCK])
    data = block[header.rows_offset - HEADER :]
    (row,) = packed_rows(data, 1)
    assert not is_sound(data[:ROW], row[0], row[-1])
    assert [row for _, row, _ in block_rows(header, data)] == ["the row of a record is damaged"]


def test_a_commit_that_is_too_long_for_a_block_is_refused(monkeypatch):
    monkeypatch.setattr("nanomem_plugins.arena.entries.MAX_BLOCK", 1000)
    with pytest.raises(InputError, match="at most 1000 bytes in one commit; found 1120"):
        a_block(entries=[put_entry(Record("a", "x" * 800), 1, 0)])
    with pytest.raises(InputError, match="at most 16777215 of one record; found 16777216"):
        a_block(entries=[put_entry(Record("a", "x"), 1, 0, b"", 2**24)])


def test_the_bytes_of_a_block_do_not_change_between_releases():
    digest = hashlib.sha256(FILE_HEADER.encode() + a_block()).hexdigest()
    assert digest == "1b515825b96fbcc70d2dede17af62601789cbb32d92f9359d9fa4597f3d5961a"


def test_a_record_takes_68_bytes_beside_its_document_and_its_vectors():
    def length(count):
        record = Record("id", "x" * 100, source="api", metadata={"n": 1})
        return len(a_block(entries=[put_entry(record, 1, 0, bytes(768), 1)] * count))

    document = len("id") + len("api") + len('{"n":1}') + 100 + 4
    assert length(64) - length(32) == 32 * (68 + document + 768)


def test_a_record_without_a_birth_gets_one_from_its_place():
    entries = [put_entry(Record(id, "text"), 1, 0) for id in "ab"]
    block = a_block(entries=entries)
    header = BlockHeader.decode(block[:BLOCK])
    rows = [row for _, row, _ in block_rows(header, block[header.rows_offset - HEADER :])]
    assert [row.birth for row in rows] == [5 << 32, 5 << 32 | 1]


texts = st.text(max_size=30)
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=30)
numbers = st.integers(0, 2**31 - 1)
times = st.floats(-1e11, 1e11)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


@given(
    st.builds(
        Record,
        id=names,
        text=texts,
        kind=st.sampled_from(KINDS),
        entity=st.none() | st.sampled_from(["city", "用户", "a_b"]),
        declared=st.booleans(),
        revision=numbers,
        version=numbers,
        valid_from=times,
        valid_to=st.none() | times,
        recorded_at=times,
        closed_at=st.none() | times,
        source=texts,
        metadata=st.dictionaries(texts, json_values, max_size=3),
    )
)
def test_every_record_comes_back_as_it_was(record):
    entry = put_entry(record, 5, 1)
    block = a_block(entries=[entry])
    header = BlockHeader.decode(block[:BLOCK])
    ((_, row, doc),) = block_rows(header, block[header.rows_offset - HEADER :])
    assert decode_record(row, doc) == record
    assert document_id(doc) == record.id
    assert document_chain(doc) == record.chain
    never = float("inf")
    ends = (never, never) if record.valid_to is None else (record.valid_to, record.closed_at)
    told = record.recorded_at if ends[1] is None else ends[1]
    assert document_ends(row.flags, row.recorded_at, doc) == (ends[0], told)


def test_metadata_that_json_cannot_hold_is_refused():
    with pytest.raises(InputError, match="metadata"):
        put_entry(Record("a", "text", metadata={"x": object()}), 1, 0)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("dim", [1, 5, 32, 33, 384])
def test_vectors_come_back_as_unit_rows(dtype, dim):
    rows = vectors(1, 5, dim).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    first, second = encode_vectors(rows, [2, 3], dtype)
    size = vector_size(dim, dtype)
    assert (len(first), len(second)) == (2 * size, 3 * size)
    data = np.frombuffer(bytes(32) + first + second, np.uint8)
    found = gather(data, 32 + size * np.array([4, 0, 2]), dim, dtype)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, rows[[4, 0, 2]], atol=2e-3 if dtype == "float16" else 0)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


@given(st.integers(0, 60), st.lists(st.booleans(), min_size=1, max_size=12))
def test_sectors_of_zeros_are_counted_as_the_disk_has_them(lead, written):
    lead *= 32
    image = bytearray(SECTOR * len(written) + lead)
    for number, any_data in enumerate(written):
        if any_data:
            image[lead + number * SECTOR + number] = 1
    block = bytes(image[lead:])
    expected = sum(
        not any(image[max(start, lead) : start + SECTOR])
        for start in range(lead // SECTOR * SECTOR, len(image), SECTOR)
    )
    assert zero_sectors(block, lead) == expected


@given(st.integers(0, 80), st.data())
def test_a_sector_that_was_not_written_is_noticed(lead, data):
    offset = HEADER + 32 * lead
    block = a_block(offset, [put_entry(Record(str(n), "x" * n + "\0" * 9), n, 0, bytes(704), 1) for n in range(6)])
    header = BlockHeader.decode(block[:BLOCK])
    assert zero_sectors(block, offset) == header.zeros
    first, last = offset // SECTOR, (offset + len(block) - 1) // SECTOR
    sector = data.draw(st.integers(first, last))
    holed = bytearray(block)
    start, end = max(0, sector * SECTOR - offset), (sector + 1) * SECTOR - offset
    before = any(holed[start:end])
    holed[start:end] = bytes(len(holed[start:end]))
    assert zero_sectors(bytes(holed), offset) == header.zeros + before


def test_every_finite_half_is_widened_as_numpy_does_it() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    bits = bits[np.isfinite(bits.view(np.float16))]
    widened = np.empty(len(bits), np.float32)
    widen(bits.view(np.int16), widened)
    assert np.array_equal(widened.view(np.uint32), bits.view(np.float16).astype(np.float32).view(np.uint32))
