"""What is left when bytes are missing or wrong."""

from __future__ import annotations

import base64
import json
import warnings

import numpy as np
import pytest

from nanomem_core.changes import Put
from nanomem_core.errors import CorruptionError
from nanomem_core.records import Record
from nanomem_plugins.arena.blocks import walk
from nanomem_plugins.arena.documents import id_hash, put_entry
from nanomem_plugins.arena.entries import encode_block
from nanomem_plugins.arena.format import BLOCK, COMMIT, HEADER, ROW, BlockHeader
from nanomem_plugins.arena.log import VaultFile
from nanomem_plugins.arena.storage import ArenaStorage

from .material import ANN, BOB, fact, fill, seen

pytestmark = pytest.mark.filterwarnings("ignore:.*(torn tail|damaged):RuntimeWarning")


def blocks(path):
    file = VaultFile.open(str(path), writable=False)
    try:
        return list(walk(file, HEADER, file.size()))
    finally:
        file.close()


def flip(path, offset, bit=0x10):
    data = bytearray(path.read_bytes())
    data[offset] ^= bit
    path.write_bytes(data)


def place_of(path, text):
    return path.read_bytes().index(text.encode())


def test_a_file_cut_anywhere_holds_the_whole_commits_before_the_cut(tmp_path):
    path = tmp_path / "memory.dat"
    store = fill(path)
    store.close()
    data = path.read_bytes()
    ends = [block.end for block in blocks(path)]
    assert ends[-1] == len(data)
    expected = {}
    for end in [HEADER, *ends]:
        path.write_bytes(data[:end])
        with ArenaStorage(path, read_only=True) as cut:
            expected[end] = seen(cut)
    assert len({repr(state) for state in expected.values()}) == len(ends)  # adopting a space shows nothing
    for length in range(len(data)):
        path.write_bytes(data[:length])
        whole = max((end for end in (HEADER, *ends) if end <= length), default=HEADER)
        with ArenaStorage(path, read_only=True) as cut:
            assert seen(cut) == expected[whole], length
            if length % 8 == 0:
                assert [damage for damage in cut.check() if damage.lost] == []
        assert len(path.read_bytes()) == length


@pytest.mark.parametrize("distance", [1, 100, 300])
def test_the_next_writer_cuts_a_torn_tail_and_says_so_once(tmp_path, distance):
    path = tmp_path / "memory.dat"
    fill(path).close()
    end = blocks(path)[-2].end
    path.write_bytes(path.read_bytes()[:-distance])
    torn = len(path.read_bytes().rstrip(b"\0")) - end
    with ArenaStorage(path) as store:
        (damage,) = store.check()
        assert (damage.offset, damage.length, damage.lost) == (end, torn, False)
        assert store.stats()["torn_tail_bytes"] == torn
        assert store.head(ANN) == 3
        with pytest.warns(RuntimeWarning, match=rf"memory\.dat at byte {end}: cut a torn tail, {torn} bytes"):
            store.commit(ANN, [fact("e", "after the tail")])
        assert store.check() == []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            store.commit(ANN, [fact("f", "and on")])
        assert [record.id for record in store.scan(ANN)] == ["a", "b", "c", "e", "f"]


def test_bytes_of_a_torn_tail_never_come_back(tmp_path):
    path = tmp_path / "memory.dat"
    fill(path).close()
    torn = path.read_bytes() + path.read_bytes()[blocks(path)[-1].offset :][:-64]
    path.write_bytes(torn)
    with ArenaStorage(path) as store:
        before = seen(store)
        store.commit(BOB, [fact("z", "short")])
        assert {scope: state for scope, state in seen(store).items() if scope == ANN} == {ANN: before[ANN]}
        assert store.check() == []


def test_a_flipped_bit_anywhere_is_named_and_hides_at_most_its_own_record(tmp_path):
    path = tmp_path / "memory.dat"
    store = fill(path)
    whole = seen(store)
    store.close()
    data = path.read_bytes()
    hidden = unnamed = 0
    for offset in range(len(data)):
        damaged = bytearray(data)
        damaged[offset] ^= 1 << offset % 8
        path.write_bytes(damaged)
        with ArenaStorage(path, read_only=True) as store:
            found = store.check()
            assert any(d.offset <= offset < d.offset + d.length for d in found), offset
            state = seen(store)
            lost = [d for d in found if d.lost]
            assert len(lost) <= 1
            if not lost:
                assert state == whole, offset
                continue
            hidden += 1
            missing = []
            for scope, (head, records, _, _) in whole.items():
                now = {record.id: record for record in store.scan(scope)}
                assert store.head(scope) == head
                assert all(now[id] == records[id] for id in now), offset
                missing += [(scope, id) for id in records if id not in now]
            assert len(missing) <= 1, offset
            assert lost[0].id in (None, *(id for _, id in missing)) or "vectors" in lost[0].what, offset
            unnamed += lost[0].id is None
            for scope, id in missing:
                # Only where the id itself is damaged, in the row and so in its hash, is the record merely absent.
                with pytest.raises(CorruptionError, match=r"memory\.dat at byte \d+"):
                    store.get(scope, id)
    assert hidden > 500
    assert unnamed < 25  # the ids in the documents


def test_repair_makes_whole_what_a_flipped_bit_damaged(tmp_path):
    source = tmp_path / "source.dat"
    store = fill(source)
    whole = seen(store)
    store.close()
    data = source.read_bytes()
    for offset in range(0, len(data), 37):
        path = tmp_path / f"{offset}.dat"
        damaged = bytearray(data)
        damaged[offset] ^= 0x20
        path.write_bytes(damaged)
        with ArenaStorage(path) as store:
            readable = {scope: {record.id: record for record in store.scan(scope)} for scope in whole}
            found = store.check()
            assert store.repair() == found
            assert store.check() == []
            for scope, records in readable.items():
                assert {record.id: record for record in store.scan(scope)} == records
                assert store.head(scope) == whole[scope][0]
                lost = set(whole[scope][1]) - set(records)
                for id in lost:
                    store.commit(scope, [fact(id, "told again")])
            quarantine = path.with_name(path.name + ".quarantine")
            assert quarantine.stat().st_mode & 0o777 == 0o600
            entries = [json.loads(line) for line in quarantine.read_bytes().splitlines()]
            assert any(entry["offset"] == damage.offset for entry in entries for damage in found)
            assert store.repair() == []


def test_the_text_of_a_damaged_record_is_kept_in_the_quarantine(tmp_path):
    path = tmp_path / "memory.dat"
    fill(path).close()
    flip(path, place_of(path, "Oslo"), 0x20)
    with ArenaStorage(path) as store:
        (damage,) = store.repair()
        assert (damage.id, damage.lost) == ("c", True)
        lines = (tmp_path / "memory.dat.quarantine").read_bytes().splitlines()
        kept = [json.loads(line) for line in lines]
        assert {entry["id"] for entry in kept} == {"c"}
        assert any(b"lives in oslo" in base64.b64decode(entry["base64"]) for entry in kept)
        assert store.get(ANN, "c") is None


def test_both_headers_of_a_block_in_the_middle_lost_hide_only_that_block(tmp_path):
    path = tmp_path / "memory.dat"
    fill(path).close()
    (middle,) = [block for block in blocks(path) if block.head == 2]
    flip(path, middle.offset + 20)
    flip(path, middle.end - BLOCK + 20)
    with pytest.warns(RuntimeWarning, match=rf"at byte {middle.offset}: {middle.length} damaged bytes"):
        store = ArenaStorage(path)
    assert [record.id for record in store.scan(ANN)] == ["a", "b", "d"]
    assert store.head(ANN) == 4
    (damage,) = [damage for damage in store.check() if damage.lost]
    assert (damage.offset, damage.length) == (middle.offset, middle.length)
    with pytest.raises(CorruptionError):
        store.compact()
    store.repair()
    assert store.check() == []
    assert store.head(ANN) == 4
    store.close()


def test_a_hole_in_the_last_block_makes_it_torn_and_in_an_acknowledged_one_damaged(tmp_path):
    path = tmp_path / "memory.dat"
    with fill(path) as store:
        store.commit(ANN, [fact("long", "words " * 400)])
        store.commit(ANN, [fact("last", "more words " * 300)])
    data = path.read_bytes()
    middle, last = blocks(path)[-2:]
    assert last.synced == middle.end

    def with_hole(block):
        holed = bytearray(data)
        start = (block.offset + 1024) // 512 * 512
        holed[start : start + 512] = bytes(512)
        path.write_bytes(holed)
        return ArenaStorage(path, read_only=True)

    with with_hole(last) as store:
        assert store.head(ANN) == 5
        assert store.get(ANN, "last") is None
        assert [damage.lost for damage in store.check()] == [False]
    with with_hole(middle) as store:
        assert store.head(ANN) == 6
        assert store.get(ANN, "last") is not None
        with pytest.raises(CorruptionError):
            store.get(ANN, "long")
        assert [(damage.id, damage.lost) for damage in store.check()] == [("long", True)]


def test_commits_that_no_fsync_confirmed_are_all_or_nothing(tmp_path):
    """Two commits of one group: neither was acknowledged when the power failed."""
    path = tmp_path / "memory.dat"
    with fill(path) as store:
        seq = store._arena.read(lambda table: table.next_seq, 0)
    whole = path.read_bytes()

    def block(id, number, offset, synced):
        entries = [put_entry(Record(id, f"{id} " * 500), id_hash(ANN, id), 0)]
        label = ("ann", "default")
        return encode_block(
            COMMIT,
            seq=seq + number,
            offset=offset,
            synced=synced,
            time=0.0,
            label=label,
            head=5 + number,
            entries=entries,
        )[1]

    def heads(first_synced, hole=None, wrong=None):
        data = bytearray(whole)
        start = len(data)
        data += block("one", 0, start, start)
        middle = len(data)
        data += block("two", 1, middle, middle if first_synced else start)
        if hole is not None:
            at = (start + hole) // 512 * 512
            data[at : at + 512] = bytes(512)
        if wrong is not None:
            data[start + wrong] ^= 1
        path.write_bytes(data)
        with ArenaStorage(path, read_only=True) as store:
            return store.head(ANN), [id for id in ("one", "two") if id in {r.id for r in store.scan(ANN)}]

    assert heads(False) == heads(True) == (6, ["one", "two"])
    assert heads(False, hole=1100) == (4, [])
    assert heads(True, hole=1100) == (6, ["two"])
    assert heads(False, wrong=1100) == heads(True, wrong=1100) == (6, ["two"])


def test_damaged_vectors_are_left_out_and_the_text_stays(tmp_path):
    path = tmp_path / "memory.dat"
    with fill(path) as store:
        row = store.columns(ANN).source.row("b")
        record = store.get(ANN, "b")
    block = next(block for block in blocks(path) if block.head == 3)
    flip(path, block.vectors_offset + 3)
    with ArenaStorage(path) as store:
        columns = store.columns(ANN)
        with pytest.warns(RuntimeWarning, match="vectors of a record are damaged"):
            matrix, owners = columns.source.vectors(np.arange(len(columns)))
        assert row not in owners
        assert len(matrix) == len(owners) == 4
        assert store.get(ANN, "b") == record
        assert [(damage.id, damage.lost) for damage in store.check()] == [("b", True)]
        store.repair()
        assert store.get(ANN, "b") == record
        assert store.check() == []


def test_damage_is_warned_of_once_for_each_place(tmp_path):
    path = tmp_path / "memory.dat"
    store = fill(path)
    offset = place_of(path, "Oslo")
    with open(path, "r+b") as stream:
        stream.seek(offset)
        stream.write(b"o")
    columns = store.columns(ANN)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [record.id for record in store.scan(ANN)] == ["a", "b", "d"]
        assert len(columns.source.records(np.arange(len(columns)))) == len(columns) - 1
        assert len(list(store.scan(ANN))) == 3
    assert ["left out" in str(warning.message) for warning in caught] == [True]
    with pytest.raises(CorruptionError) as error:
        store.get(ANN, "c")
    assert error.value.path == str(path)
    store.close()


def test_a_report_that_raises_does_not_take_a_block_in_twice(tmp_path):
    path = tmp_path / "memory.dat"
    fill(path).close()
    middle = next(block for block in blocks(path) if block.head == 2)
    flip(path, middle.offset + 20)
    flip(path, middle.end - BLOCK + 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            ArenaStorage(path)
    with ArenaStorage(path) as store:
        gaps = store.stats()["damaged"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert [record.id for record in store.scan(ANN)] == ["a", "b", "d"]
        assert store.stats()["damaged"] == gaps == 1


def test_a_damaged_deletion_still_deletes(tmp_path):
    path = tmp_path / "memory.dat"
    fill(path).close()
    block = next(block for block in blocks(path) if block.head == 3)
    flip(path, block.rows_offset + ROW + 5)
    with ArenaStorage(path) as store:
        assert store.get(ANN, "m") is None
        assert [damage.lost for damage in store.check()] == [False]


def test_a_record_written_again_is_no_loss_when_its_old_bytes_rot(tmp_path):
    path = tmp_path / "memory.dat"
    fill(path).close()
    flip(path, place_of(path, "likes tea"))
    with ArenaStorage(path) as store:
        assert store.get(ANN, "b").text == "likes coffee now"
        assert [damage.lost for damage in store.check()] == [False]


def test_a_header_in_a_text_is_no_block(tmp_path):
    path = tmp_path / "memory.dat"
    with fill(path) as store:
        before = seen(store)
    block = blocks(path)[2]
    fake = path.read_bytes()[block.offset : block.end]
    header = BlockHeader.decode(fake[:BLOCK])
    assert header == block
    # A whole valid block, in the place of a damaged one, but at another offset.
    data = bytearray(path.read_bytes())
    last = blocks(path)[-1]
    data[last.offset : last.offset + min(len(fake), last.length)] = fake[: last.length]
    path.write_bytes(data)
    with ArenaStorage(path, read_only=True) as store:
        assert store.head(BOB) == before[BOB][0]


def test_opening_warns_of_a_damaged_record_once(tmp_path):
    path = tmp_path / "memory.dat"
    with ArenaStorage(path, durability="os") as store:
        store.commit(ANN, [Put(Record("a", "the first")), Put(Record("b", "the second"))])
    flip(path, place_of(path, "the second"))
    with pytest.warns(RuntimeWarning, match="the text of a record is damaged; it was left out"):
        store = ArenaStorage(path, durability="os")
    with store, warnings.catch_warnings(action="error"):
        assert [each.id for each in store.scan(ANN)] == ["a"]


def test_a_quarantine_that_cannot_be_read_does_not_hinder_erasing(tmp_path):
    path = tmp_path / "memory.dat"
    with ArenaStorage(path, durability="os") as store:
        store.commit(ANN, [Put(Record("a", "the first"))])
        quarantine = tmp_path / "memory.dat.quarantine"
        quarantine.write_bytes(b"no JSON\n[1]\n")
        store.erase(ANN)
        assert not quarantine.exists()
