"""The part of the storage contract about reading: `scopes`, `head`, `get`, `scan`, and handles that are closed."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..changes import Put
from ..errors import ClosedError
from ..interfaces import Snapshot, Storage
from ..records import Scope
from .fixtures import ANN, BOB, MakeStorage, StorageFixtures
from .samples import (
    HOSTILE_NAMES,
    NOON,
    ODD_METADATA,
    ODD_TEXTS,
    assert_columns_agree,
    assert_same_record,
    fact,
    put_all,
    remaining,
    remove,
)

__all__ = ["ReadContract"]


class ReadContract(StorageFixtures):
    """What is put comes back."""

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
        commit = put_all(
            storage, ANN, [fact(f"t{i}", valid_from=time, recorded_at=time) for i, time in enumerate(moments)]
        )
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
        put_all(
            storage,
            ANN,
            [fact("f1"), fact("m1", kind="message"), fact("e1", kind="episode"), fact("m2", kind="message")],
        )
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

    def test_scopes_with_similar_names_share_nothing(
        self, storage: Storage, opened: MakeStorage, tmp_path: Path
    ) -> None:
        beside = sorted(tmp_path.parent.iterdir())
        scopes = [Scope(name, agent) for name in HOSTILE_NAMES for agent in ("default", "a")]
        scopes += [Scope("default", name) for name in HOSTILE_NAMES if name not in ("default", "a")]
        for number, scope in enumerate(scopes):
            put_all(storage, scope, [fact("x", f"of {scope!r}"), fact(f"own {number}")])
        again = opened()
        assert len(again.scopes()) == len(scopes)
        assert set(again.scopes()) == set(scopes)
        for number, scope in enumerate(scopes):
            assert [(record.id, record.text) for record in again.scan(scope)] == [
                ("x", f"of {scope!r}"),
                (f"own {number}", f"text of own {number}"),
            ]
        again.erase(scopes[0])
        remove(again, scopes[1], "x", "own 1")
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
        facts = json.loads(json.dumps(storage.stats()))
        expected = {"storage": storage.name, "path": storage.place, "read_only": storage.read_only}
        assert {name: facts[name] for name in expected} == expected

    def test_what_core_derives_may_be_deleted_at_any_time(self, storage: Storage, opened: MakeStorage) -> None:
        folder = storage.derived()
        if folder is None:
            pytest.skip(f"{storage.name} offers no folder for it")
        put_all(storage, ANN, [fact("a"), fact("b")])
        before = remaining(storage, ANN)
        for present in (True, False):
            if present:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "vectors").write_bytes(b"\0" * 100)
            else:
                shutil.rmtree(folder)
            assert remaining(opened(), ANN) == before
            assert opened().scopes() == [ANN]
            assert opened().check() == []

    @pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
    def test_files_are_for_their_owner_only(self, storage: Storage, tmp_path: Path) -> None:
        put_all(storage, ANN, [fact("a"), fact("b")])
        remove(storage, ANN, "a")
        storage.compact()
        open_to_others = [p for p in tmp_path.rglob("*") if p.is_file() and stat.S_IMODE(p.stat().st_mode) & 0o077]
        assert open_to_others == []
