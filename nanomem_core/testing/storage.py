"""The contract of storages, as test classes. A plugin's whole suite is one class and one fixture::

    from functools import partial
    from nanomem_core.testing import StorageContract

    class TestMyStorage(StorageContract):
        @pytest.fixture
        def make_storage(self, tmp_path):
            return partial(MyStorage, tmp_path)

Each call of what the fixture returns opens the *same* store again. Keep its files below ``tmp_path``: the contract
looks there for bytes that should be gone. It is called in other processes too, so it must be picklable (a
`functools.partial`, not a lambda); a store that lives in memory sets ``on_disk = False`` instead.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ..changes import Delete, Put
from ..errors import ClosedError, ConflictError, InputError
from ..interfaces import Snapshot, Storage
from ..records import Scope
from .samples import (
    HOSTILE_NAMES,
    NOON,
    ODD_METADATA,
    ODD_TEXTS,
    SPACE,
    assert_columns_agree,
    assert_same_record,
    bytes_below,
    fact,
    put,
    put_all,
    remaining,
    remove,
)

__all__ = ["ANN", "BOB", "MakeStorage", "ReadContract", "RemovalContract", "StorageFixtures", "WriteContract"]

MakeStorage = Callable[[], Storage]

ANN = Scope("ann", "helper")
BOB = Scope("bob", "helper")


class StorageFixtures:
    """What every contract of storages stands on."""

    on_disk: ClassVar[bool] = True
    """False for a store that only this process sees."""

    @pytest.fixture
    def make_storage(self) -> MakeStorage:
        """Open the store again; a plugin's test class overrides this."""
        raise NotImplementedError(f"{type(self).__name__}: expected a fixture make_storage; see {__name__}")

    @pytest.fixture
    def opened(self, make_storage: MakeStorage) -> Iterator[MakeStorage]:
        """Like `make_storage`, but closed after the test, and ready to take vectors."""
        with ExitStack() as stack:

            def open_again() -> Storage:
                storage = stack.enter_context(make_storage())
                if storage.keeps_vectors:
                    storage.adopt(SPACE)
                return storage

            yield open_again

    @pytest.fixture
    def storage(self, opened: MakeStorage) -> Storage:
        return opened()


class ReadContract(StorageFixtures):
    """What is put comes back: `scopes`, `head`, `get` and `scan`."""

    def test_an_unknown_scope_is_empty(self, storage: Storage) -> None:
        assert storage.scopes() == []
        assert storage.head(ANN) == 0
        assert storage.get(ANN, "a") is None
        assert list(storage.scan(ANN)) == []
        assert storage.snapshot(ANN) == Snapshot(0, ())
        assert len(storage.columns(ANN)) == 0
        assert storage.scopes() == [], "reading made a scope"

    def test_a_record_comes_back_as_it_was_put(self, storage: Storage, opened: MakeStorage) -> None:
        given = fact(
            "job",
            "Works at Alder",
            kind="episode",
            entity="employer",
            declared=True,
            revision=7,
            valid_from=NOON - 0.123456,
            valid_to=NOON + 86_400.25,
            recorded_at=NOON + 1 / 3,
            closed_at=NOON + 2 / 3,
            source="notes.md:1-50",
            metadata={"user_id": "ann", "tags": ["a", 1, None]},
        )
        commit = put_all(storage, ANN, [given, fact("bare")])
        stored = commit.records[0]
        assert stored.to_dict() == given.to_dict() | {"version": 1}
        for handle in (storage, opened()):
            assert_same_record(handle.get(ANN, "job"), stored)
            assert_same_record(handle.get(ANN, "bare"), commit.records[1])
            assert list(handle.scan(ANN)) == list(commit.records)

    def test_times_of_all_centuries_come_back_exactly(self, storage: Storage, opened: MakeStorage) -> None:
        moments = [-62_135_596_800.0, -1.5, 0.0, 1e-9, 1_773_140_400.1234567, 253_402_300_799.0]
        commit = put_all(storage, ANN, [fact(f"t{i}", valid_from=time, recorded_at=time) for i, time in enumerate(moments)])
        assert list(opened().scan(ANN)) == list(commit.records)
        assert_columns_agree(opened(), ANN)

    def test_odd_texts_come_back_byte_for_byte(self, storage: Storage, opened: MakeStorage) -> None:
        commit = put_all(storage, ANN, [fact(f"t{i}", text) for i, text in enumerate(ODD_TEXTS)])
        assert [record.text for record in storage.scan(ANN)] == list(ODD_TEXTS)
        assert [record.text for record in opened().scan(ANN)] == list(ODD_TEXTS)
        for record in commit.records:
            assert_same_record(opened().get(ANN, record.id), record)

    def test_a_text_of_200_000_characters_comes_back(self, storage: Storage, opened: MakeStorage) -> None:
        text = "".join(f"{i} 漢字 🫖\n" for i in range(20_000))[:200_000]
        put_all(storage, ANN, [fact("long", text)])
        found = opened().get(ANN, "long")
        assert found is not None
        assert found.text == text

    def test_metadata_comes_back_as_the_same_json(self, storage: Storage, opened: MakeStorage) -> None:
        commit = put_all(storage, ANN, [fact(f"m{i}", metadata=data) for i, data in enumerate(ODD_METADATA)])
        for record, data in zip(commit.records, ODD_METADATA, strict=True):
            for handle in (storage, opened()):
                found = handle.get(ANN, record.id)
                assert found is not None
                assert json.dumps(dict(found.metadata)) == json.dumps(data)

    def test_odd_sources_come_back(self, storage: Storage, opened: MakeStorage) -> None:
        commit = put_all(storage, ANN, [fact(f"s{i}", source=text) for i, text in enumerate(ODD_TEXTS[:-1])])
        assert list(opened().scan(ANN)) == list(commit.records)

    def test_scan_is_in_the_order_of_first_writing(self, storage: Storage, opened: MakeStorage) -> None:
        put_all(storage, ANN, [fact("c"), fact("a")])
        put_all(storage, ANN, [fact("b")])
        put_all(storage, ANN, [fact("a", "written again"), fact("c", "written again")])
        for handle in (storage, opened()):
            assert [record.id for record in handle.scan(ANN)] == ["c", "a", "b"]

    def test_scan_can_be_limited_to_one_kind(self, storage: Storage) -> None:
        put_all(storage, ANN, [fact("f1"), fact("m1", kind="message"), fact("e1", kind="episode"), fact("m2", kind="message")])
        assert [record.id for record in storage.scan(ANN, "message")] == ["m1", "m2"]
        assert [record.id for record in storage.scan(ANN, "summary")] == []
        assert [record.id for record in storage.snapshot(ANN, "fact").records] == ["f1"]

    def test_a_scan_shows_one_head_whatever_is_written_meanwhile(self, storage: Storage, opened: MakeStorage) -> None:
        put_all(storage, ANN, [fact(id) for id in "abc"])
        scan = storage.scan(ANN)
        found = [next(scan)]
        put_all(opened(), ANN, [fact("d"), fact("b", "changed")])
        remove(opened(), ANN, "c")
        found.extend(scan)
        assert [(record.id, record.text) for record in found] == [(id, f"text of {id}") for id in "abc"]

    def test_heads_count_the_commits_of_each_scope(self, storage: Storage, opened: MakeStorage) -> None:
        heads = [put_all(storage, ANN, [fact(f"a{i}")]).head for i in range(3)]
        assert heads == [1, 2, 3]
        assert put_all(storage, BOB, [fact("b")]).head == 1
        for handle in (storage, opened()):
            assert (handle.head(ANN), handle.head(BOB)) == (3, 1)

    def test_scopes_names_each_scope_that_holds_a_record(self, storage: Storage, opened: MakeStorage) -> None:
        put_all(storage, ANN, [fact("a")])
        put_all(storage, BOB, [fact("a")])
        for handle in (storage, opened()):
            assert sorted(map(str, handle.scopes())) == ["ann/helper", "bob/helper"]
        remove(storage, BOB, "a")
        for handle in (storage, opened()):
            assert handle.scopes() == [ANN]
            assert handle.head(BOB) == 2

    def test_scopes_with_similar_names_share_nothing(self, storage: Storage, opened: MakeStorage, tmp_path: Path) -> None:
        beside = sorted(tmp_path.parent.iterdir())
        scopes = [Scope(name, agent) for name in HOSTILE_NAMES for agent in ("default", "a")]
        scopes += [Scope("default", name) for name in HOSTILE_NAMES if name not in ("default", "a")]
        for scope in scopes:
            put_all(storage, scope, [fact("x", f"of {scope!r}")])
        again = opened()
        assert len(again.scopes()) == len(scopes)
        assert set(again.scopes()) == set(scopes)
        for scope in scopes:
            assert [record.text for record in again.scan(scope)] == [f"of {scope!r}"]
        again.erase(scopes[0])
        remove(again, scopes[1], "x")
        assert set(opened().scopes()) == set(scopes[2:])
        assert sorted(tmp_path.parent.iterdir()) == beside, "a name led out of the store"

    def test_ids_with_similar_names_are_different_records(
        self, storage: Storage, opened: MakeStorage, tmp_path: Path
    ) -> None:
        beside = sorted(tmp_path.parent.iterdir())
        put_all(storage, ANN, [fact(id, f"of {id!r}") for id in HOSTILE_NAMES])
        again = opened()
        assert [record.id for record in again.scan(ANN)] == list(HOSTILE_NAMES)
        for id in HOSTILE_NAMES[::2]:
            remove(again, ANN, id)
        assert [(r.id, r.text) for r in opened().scan(ANN)] == [(id, f"of {id!r}") for id in HOSTILE_NAMES[1::2]]
        assert sorted(tmp_path.parent.iterdir()) == beside, "an id led out of the store"

    def test_a_reopened_store_is_the_same(self, make_storage: MakeStorage) -> None:
        with make_storage() as first:
            put_all(first, ANN, [fact("a", entity="city"), fact("b", entity="city")])
            put_all(first, BOB, [fact("a")])
            remove(first, ANN, "a")
            before = [remaining(first, scope) for scope in (ANN, BOB)]
        with make_storage() as second:
            assert [remaining(second, scope) for scope in (ANN, BOB)] == before
            assert put_all(second, ANN, [fact("c", entity="city")]).records[0].revision == 3

    def test_a_closed_store_refuses_every_call(self, make_storage: MakeStorage) -> None:
        storage = make_storage()
        put_all(storage, ANN, [fact("a")])
        storage.close()
        storage.close()
        calls: list[Callable[[], Any]] = [
            storage.scopes,
            lambda: storage.head(ANN),
            lambda: storage.get(ANN, "a"),
            lambda: list(storage.scan(ANN)),
            lambda: storage.columns(ANN),
            lambda: storage.commit(ANN, [Put(fact("b"))]),
            lambda: storage.erase(ANN),
        ]
        for call in calls:
            with pytest.raises(ClosedError):
                call()

    def test_a_sound_store_reports_no_damage(self, storage: Storage) -> None:
        put_all(storage, ANN, [fact("a"), fact("b")])
        remove(storage, ANN, "a")
        before = remaining(storage, ANN)
        assert storage.check() == []
        assert storage.repair() == []
        assert remaining(storage, ANN) == before

    def test_stats_are_json_and_name_the_store(self, storage: Storage) -> None:
        put_all(storage, ANN, [fact("a")])
        assert json.loads(json.dumps(storage.stats()))["storage"] == storage.name

    @pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
    def test_files_are_for_their_owner_only(self, storage: Storage, tmp_path: Path) -> None:
        put_all(storage, ANN, [fact("a"), fact("b")])
        remove(storage, ANN, "a")
        storage.compact()
        open_to_others = [p for p in tmp_path.rglob("*") if p.is_file() and stat.S_IMODE(p.stat().st_mode) & 0o077]
        assert open_to_others == []


class WriteContract(StorageFixtures):
    """Preconditions, numbering, and that a commit is all or nothing."""

    def test_zero_demands_that_the_id_is_absent(self, storage: Storage) -> None:
        assert storage.commit(ANN, [put(storage, fact("a"), 0)]).head == 1
        with pytest.raises(ConflictError) as caught:
            storage.commit(ANN, [put(storage, fact("a"), 0)])
        assert (caught.value.id, caught.value.expected, caught.value.found) == ("a", 0, 1)
        assert storage.head(ANN) == 1

    def test_a_number_demands_that_version(self, storage: Storage, opened: MakeStorage) -> None:
        put_all(storage, ANN, [fact("a")])
        storage.commit(ANN, [put(storage, fact("a", "second"), 1)])
        for change in (put(storage, fact("a"), 1), Delete("a", 1), put(storage, fact("a"), 3), Delete("none", 1)):
            with pytest.raises(ConflictError):
                opened().commit(ANN, [change])
        assert storage.head(ANN) == 2
        opened().commit(ANN, [Delete("a", 2)])
        assert storage.get(ANN, "a") is None

    def test_a_head_can_be_demanded(self, storage: Storage, opened: MakeStorage) -> None:
        storage.commit(ANN, [put(storage, fact("a"))], expect_head=0)
        with pytest.raises(ConflictError) as caught:
            opened().commit(ANN, [put(storage, fact("b"))], expect_head=0)
        assert (caught.value.id, caught.value.expected, caught.value.found) == (None, 0, 1)
        opened().commit(ANN, [put(storage, fact("b"))], expect_head=1)
        assert [record.id for record in storage.scan(ANN)] == ["a", "b"]

    @pytest.mark.parametrize("last", [Put(fact("a"), 0), Put(fact("new"), 5), Put(fact("bad", valid_from=float("nan")))])
    def test_a_refused_commit_writes_nothing(self, storage: Storage, opened: MakeStorage, last: Put) -> None:
        put_all(storage, ANN, [fact("a"), fact("b")])
        before = remaining(storage, ANN)
        with pytest.raises((ConflictError, InputError)):
            storage.commit(ANN, [put(storage, fact("c")), put(storage, fact("a", "changed")), Delete("b"), last])
        assert remaining(storage, ANN) == before
        assert remaining(opened(), ANN) == before

    def test_versions_count_the_writings_of_an_id(self, storage: Storage, opened: MakeStorage) -> None:
        versions = [put_all(storage, ANN, [fact("a", f"text {i}")]).records[0].version for i in range(4)]
        assert versions == [1, 2, 3, 4]
        found = opened().get(ANN, "a")
        assert found is not None
        assert (found.version, found.text) == (4, "text 3")

    def test_revisions_count_the_arrivals_in_a_chain(self, storage: Storage, opened: MakeStorage) -> None:
        def arrive(handle: Storage, id: str, **fields: Any) -> int:
            return put_all(handle, ANN, [fact(id, **fields)]).records[0].revision

        assert arrive(storage, "a", entity="city") == 1
        assert arrive(opened(), "b", entity="city") == 2
        assert arrive(storage, "c", entity="employer") == 1
        assert arrive(storage, "d", entity="city", metadata={"user_id": "u"}) == 1
        assert arrive(storage, "e", entity="city", revision=10) == 10
        assert arrive(opened(), "f", entity="city") == 11
        assert arrive(storage, "a", entity="city", text="staying in a chain keeps the number") == 1
        assert arrive(storage, "a", entity="employer", text="moving gives a new one") == 2
        assert arrive(storage, "g", entity="city") == 12
        assert arrive(storage, "h") == 1

    def test_the_tip_of_a_chain_is_its_highest_stored_number(self, storage: Storage, opened: MakeStorage) -> None:
        put_all(storage, ANN, [fact(id, entity="city") for id in "abc"])
        put_all(storage, BOB, [fact(id, entity="city") for id in "abcdef"])
        assert _tip(storage, "city") == 3
        remove(storage, ANN, "b")
        assert _tip(opened(), "city") == 3
        remove(storage, ANN, "c")
        assert [_tip(handle, "city") for handle in (storage, opened())] == [1, 1]
        put_all(storage, ANN, [fact("a", entity="employer")])
        assert [_tip(handle, "city") for handle in (storage, opened())] == [0, 0]
        assert _tip(storage, "employer") == 1
        assert _tip(storage, "cit") == 0

    def test_later_changes_of_a_commit_see_the_earlier_ones(self, storage: Storage, opened: MakeStorage) -> None:
        put_all(storage, ANN, [fact("old")])
        commit = storage.commit(
            ANN,
            [
                put(storage, fact("a", "first", entity="city"), 0),
                put(storage, fact("a", "second", entity="city"), 1),
                put(storage, fact("b", entity="city")),
                put(storage, fact("gone")),
                Delete("gone", 1),
                Delete("old"),
                put(storage, fact("old", "again"), 0),
                Delete("never there"),
            ],
        )
        assert [(r.id, r.text, r.version, r.revision) for r in commit.records] == [
            ("a", "second", 2, 1),
            ("b", "text of b", 1, 2),
            ("old", "again", 1, 1),
        ]
        assert commit.deleted == ()
        for handle in (storage, opened()):
            assert handle.head(ANN) == 2
            assert {record.id: record for record in handle.scan(ANN)} == {r.id: r for r in commit.records}

    def test_a_purged_id_counts_as_absent(self, storage: Storage, opened: MakeStorage) -> None:
        put_all(storage, ANN, [fact("a", entity="city")])
        put_all(storage, ANN, [fact("a", "", kind="purged")])
        with pytest.raises(ConflictError):
            storage.commit(ANN, [put(storage, fact("a"), 2)])
        assert opened().commit(ANN, [put(storage, fact("a", "anew"), 0)]).records[0].version == 3

    def test_changes_that_come_to_nothing_keep_the_head(self, storage: Storage, opened: MakeStorage) -> None:
        put_all(storage, ANN, [fact("a")])
        for changes in ([], [Delete("absent")], [put(storage, fact("b")), Delete("b")]):
            commit = storage.commit(ANN, changes)
            assert (commit.head, commit.records, commit.deleted) == (1, (), ())
        assert opened().head(ANN) == 1

    def test_a_transaction_left_without_a_plan_writes_nothing(self, storage: Storage, opened: MakeStorage) -> None:
        put_all(storage, ANN, [fact("a")])
        with storage.transaction(ANN) as transaction:
            assert transaction.head == 1
            assert transaction.get("a") == storage.get(ANN, "a")
            assert transaction.get("b") is None
        with pytest.raises(ZeroDivisionError), storage.transaction(ANN):
            raise ZeroDivisionError
        put_all(opened(), ANN, [fact("b")])
        assert storage.head(ANN) == 2

    def test_an_update_is_recomputed_when_somebody_wrote_meanwhile(self, storage: Storage, opened: MakeStorage) -> None:
        put_all(storage, ANN, [fact("a")])
        other, seen = opened(), []

        def compute(snapshot: Snapshot) -> list[Put]:
            seen.append((snapshot.head, [record.id for record in snapshot.records]))
            if len(seen) < 3:
                put_all(other, ANN, [fact(f"meanwhile {len(seen)}")])
            return [put(storage, fact("sum", f"{len(snapshot.records)} records"))]

        assert storage.update(ANN, compute).head == 4
        assert seen == [(1, ["a"]), (2, ["a", "meanwhile 1"]), (3, ["a", "meanwhile 1", "meanwhile 2"])]
        found = opened().get(ANN, "sum")
        assert found is not None
        assert found.text == "3 records"

    def test_an_update_gives_up_after_three_attempts(self, storage: Storage, opened: MakeStorage) -> None:
        other, calls = opened(), []

        def compute(snapshot: Snapshot) -> list[Put]:
            calls.append(snapshot.head)
            put_all(other, ANN, [fact(f"meanwhile {len(calls)}")])
            return [put(storage, fact("never"))]

        with pytest.raises(ConflictError):
            storage.update(ANN, compute)
        assert calls == [0, 1, 2]
        assert storage.get(ANN, "never") is None


class RemovalContract(StorageFixtures):
    """`erase` and `compact`: what is gone is gone from every file, and all else stays."""

    def test_erase_removes_one_scope_and_no_other(self, storage: Storage, opened: MakeStorage, tmp_path: Path) -> None:
        for scope in (ANN, BOB, Scope("ann"), Scope("ann", "helper2")):
            put_all(storage, scope, [fact("a", f"zebra {scope} zebra"), fact("b", metadata={"z": f"zebra {scope} zebra"})])
        put_all(storage, ANN, [fact("a", "written again")])
        storage.erase(ANN)
        for handle in (storage, opened()):
            assert remaining(handle, ANN) == (0, [])
            assert handle.get(ANN, "a") is None
            assert len(list(handle.scan(BOB))) == 2
            assert len(handle.scopes()) == 3
        assert [path for path, content in bytes_below(tmp_path) if b"zebra ann/helper zebra" in content] == []
        storage.erase(ANN)
        assert put_all(storage, ANN, [fact("a")]).head == 1
        assert opened().head(ANN) == 1

    def test_a_scope_that_was_erased_and_filled_again_shows_its_new_content(
        self, storage: Storage, opened: MakeStorage
    ) -> None:
        for id in "abc":
            put_all(storage, ANN, [fact(id)])
        assert_columns_agree(storage, ANN)
        storage.erase(ANN)
        for id in "xyz":
            put_all(storage, ANN, [fact(id)])
        for handle in (storage, opened()):
            assert [record.id for record in handle.scan(ANN)] == list("xyz")
            assert_columns_agree(handle, ANN)

    def test_compact_keeps_everything_but_what_was_deleted(
        self, storage: Storage, opened: MakeStorage, tmp_path: Path
    ) -> None:
        for scope in (ANN, BOB):
            put_all(storage, scope, [fact(f"r{i}", f"zebra {i} zebra", entity="city") for i in range(20)])
            put_all(storage, scope, [fact("r3", "written again", entity="city")])
            remove(storage, scope, "r5", "r19")
            put_all(storage, scope, [fact("r7", "", kind="purged")])
        before = [remaining(storage, scope) for scope in (ANN, BOB)]
        assert storage.compact() >= 0
        for handle in (storage, opened()):
            assert [remaining(handle, scope) for scope in (ANN, BOB)] == before
            assert _tip(handle, "city") == 19
            for scope in (ANN, BOB):
                assert_columns_agree(handle, scope)
        for number in (3, 5, 7, 19):
            gone = b"zebra %d zebra" % number
            assert [path for path, content in bytes_below(tmp_path) if gone in content] == []
        assert put_all(opened(), ANN, [fact("after", entity="city")]).records[0].revision == 20
        assert storage.head(ANN) == before[0][0] + 1

    def test_compact_may_be_repeated(self, storage: Storage) -> None:
        put_all(storage, ANN, [fact("a"), fact("b")])
        remove(storage, ANN, "a")
        storage.compact()
        before = remaining(storage, ANN)
        storage.compact()
        assert remaining(storage, ANN) == before


def _tip(storage: Storage, chain: str) -> int:
    with storage.transaction(ANN) as transaction:
        return transaction.tip(chain)
