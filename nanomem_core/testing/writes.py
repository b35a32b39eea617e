"""The part of the storage contract about writing: preconditions, numbers, `update`, `erase` and `compact`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ..changes import Change, Delete, Put, plan_commit
from ..errors import ConflictError, InputError
from ..interfaces import Snapshot, Storage
from ..records import Scope
from .fixtures import ANN, BOB, MakeStorage, StorageFixtures
from .samples import assert_columns_agree, bytes_below, fact, put, put_all, remaining, remove

__all__ = ["RemovalContract", "WriteContract"]


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

    @pytest.mark.parametrize(
        "last", [Put(fact("a"), 0), Put(fact("new"), 5), Put(fact("bad", valid_from=float("nan")))]
    )
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
            ("old", "again", 2, 1),
        ]
        assert commit.deleted == ()
        for handle in (storage, opened()):
            assert handle.head(ANN) == 2
            assert {record.id: record for record in handle.scan(ANN)} == {r.id: r for r in commit.records}

    @pytest.mark.parametrize("kind", ["fact", "purged"])
    def test_what_is_deleted_and_put_again_in_one_commit_is_there_once(
        self, storage: Storage, opened: MakeStorage, kind: str
    ) -> None:
        put_all(storage, ANN, [fact("other")])
        storage.commit(ANN, [put(storage, fact("a", "" if kind == "purged" else "old", kind=kind))])
        opened().commit(ANN, [Delete("a"), put(storage, fact("a", "new"), 0)])
        for handle in (storage, opened()):
            assert [(r.id, r.text, r.version) for r in handle.scan(ANN)] == [
                ("other", "text of other", 1),
                ("a", "new", 2),
            ]
            assert_columns_agree(handle, ANN)

    def test_a_purged_id_counts_as_absent(self, storage: Storage, opened: MakeStorage) -> None:
        put_all(storage, ANN, [fact("a", entity="city")])
        put_all(storage, ANN, [fact("a", "", kind="purged")])
        with pytest.raises(ConflictError):
            storage.commit(ANN, [put(storage, fact("a"), 2)])
        assert opened().commit(ANN, [put(storage, fact("a", "anew"), 0)]).records[0].version == 3

    def test_changes_that_come_to_nothing_keep_the_head(self, storage: Storage, opened: MakeStorage) -> None:
        put_all(storage, ANN, [fact("a")])
        nothings: list[list[Change]] = [[], [Delete("absent")], [put(storage, fact("b")), Delete("b")]]
        for changes in nothings:
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

    def test_a_plan_for_another_scope_is_refused(self, storage: Storage, opened: MakeStorage) -> None:
        put_all(storage, ANN, [fact("a")])
        with pytest.raises(InputError), storage.transaction(ANN) as transaction:
            transaction.apply(plan_commit(transaction, BOB, [put(storage, fact("b"))]))
        for handle in (storage, opened()):
            assert [(len(list(handle.scan(scope))), handle.head(scope)) for scope in (ANN, BOB)] == [(1, 1), (0, 0)]

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
            secret = f"zebra {scope} zebra"
            put_all(storage, scope, [fact("a", secret), fact("b", metadata={"z": secret}), fact("c", source=secret)])
        put_all(storage, ANN, [fact("a", "written again")])
        storage.erase(ANN)
        for handle in (storage, opened()):
            assert remaining(handle, ANN) == (0, [])
            assert handle.get(ANN, "a") is None
            assert len(list(handle.scan(BOB))) == 3
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
