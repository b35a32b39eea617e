"""Moving records between memories and files."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nanomem_core.errors import FormatError, InputError, NotFoundError
from nanomem_core.memory import Memory
from nanomem_core.memory.parcels import Parcel
from nanomem_core.records import Record, Scope
from nanomem_core.testing.fakes import FrozenClock
from nanomem_core.testing.samples import HOSTILE_NAMES, ODD_METADATA, ODD_TEXTS
from tests.memories import DAY, EVERY_STORE, CountingEmbedder, Shelf, texts


def contents(memory: Memory) -> dict[Scope, list[Record]]:
    """Every record of every scope."""
    scopes = sorted(memory.storage.scopes(), key=str)
    return {scope: sorted(memory.storage.scan(scope), key=lambda record: record.id) for scope in scopes}


def fill(memory: Memory, clock: FrozenClock) -> None:
    """Records that use every field, in two scopes."""
    first = memory.add("Oslo", {"user_id": "ann", "n": [1, {"b": None}]}, entity="city", timestamp=1.5, id="c1")
    memory.add("Bergen", {"user_id": "ann"}, "cli", 2.25, entity="city", valid_to=clock.now + DAY)
    memory.add("Molde", {"user_id": "ann"}, entity="city", timestamp=0.5, revision=9)
    clock.advance(DAY)
    memory.update(first, "Oslo!")
    memory.retract(first, at=1.75, reason="moved")
    memory.add("a talk", kind="episode", id="talk")
    memory.add("long " * 1200)
    memory.purge(memory.add("secret"))
    memory.add("elsewhere", entity="city", user="bob", agent="helper")


@pytest.mark.parametrize("way", ["jsonl", "memory", "parcels"])
def test_every_field_and_vector_travels_and_nothing_is_embedded_again(
    shelf: Shelf, clock: FrozenClock, way: str
) -> None:
    embedder = CountingEmbedder()
    source, target = shelf.open(embedder), shelf.another().open(embedder)
    fill(source, clock)
    embedder.encoded.clear()
    path = shelf.folder / "out.jsonl"
    if way == "jsonl":
        assert source.export(path, all_scopes=True) == 7
        report = target.import_(path)
    elif way == "memory":
        report = target.import_(source)
    else:
        report = target.import_(source.parcels(all_scopes=True))
    assert report == {"incoming": 7, "added": 7, "skipped": 0, "renamed": 0}
    assert contents(target) == contents(source)
    if target.storage.keeps_vectors:
        assert embedder.encoded == []
    for question in ("Oslo!", "long " * 300, "a talk"):
        found = target.search(question, kind=None, top_k=9, mode="vector")
        expected = source.search(question, kind=None, top_k=9, mode="vector")
        assert texts(found) == texts(expected)
        assert [hit.cosine for hit in found] == pytest.approx([hit.cosine for hit in expected], abs=1e-3)
    assert target.history(id="c1") == source.history(id="c1")


def test_an_import_can_be_repeated(shelf: Shelf, clock: FrozenClock) -> None:
    source, target = shelf.open(), shelf.another().open()
    fill(source, clock)
    target.import_(source)
    before = contents(target)
    assert target.import_(source) == {"incoming": 7, "added": 0, "skipped": 7, "renamed": 0}
    assert contents(target) == before


def test_an_id_that_is_taken_by_another_content_is_renamed_once(shelf: Shelf) -> None:
    source, target = shelf.open(), shelf.another().open()
    source.add("theirs", id="a")
    target.add("ours", id="a")
    assert target.import_(source) == {"incoming": 1, "added": 1, "skipped": 0, "renamed": 1}
    assert texts(target.records()) == ["ours", "theirs"]
    assert target.records()[1].metadata == {"imported_id": "a"}
    assert target.import_(source) == {"incoming": 1, "added": 0, "skipped": 1, "renamed": 0}
    assert texts(target.records()) == ["ours", "theirs"]


def test_one_id_twice_in_one_import_loses_nothing(memory: Memory) -> None:
    one = Record("a", "one", valid_from=1, recorded_at=1)
    parcels = [Parcel(memory.scope, record) for record in (one, replace(one, text="two"), one)]
    assert memory.import_(parcels) == {"incoming": 3, "added": 2, "skipped": 1, "renamed": 1}
    assert sorted(texts(memory.records())) == ["one", "two"]


def test_odd_texts_metadata_and_names_survive_a_file(shelf: Shelf) -> None:
    source, target = shelf.open(), shelf.another().open()
    for number, name in enumerate(HOSTILE_NAMES):
        text = ODD_TEXTS[number % len(ODD_TEXTS)] or "x"
        record = Record(name, text, valid_from=1, recorded_at=2, metadata=ODD_METADATA[number % len(ODD_METADATA)])
        source.import_([Parcel(Scope(name, name), record)])
    path = shelf.folder / "out.jsonl"
    source.export(path, all_scopes=True)
    target.import_(path)
    assert contents(target) == contents(source)


def test_records_can_be_put_into_one_scope(shelf: Shelf, clock: FrozenClock) -> None:
    source, target = shelf.open(), shelf.another().open()
    fill(source, clock)
    target.import_(source, user="all")
    assert [str(scope) for scope in target.storage.scopes()] == ["all"]
    assert len(target.records(user="all", kind=None)) == 6


def test_a_file_of_another_embedder_is_embedded_anew(shelf: Shelf) -> None:
    shelf.open().add("tea")
    path = shelf.folder / "out.jsonl"
    shelf.open().export(path)
    embedder = CountingEmbedder(32)
    target = shelf.another().open(embedder)
    target.import_(path)
    assert target.search("tea", mode="vector")[0].cosine == pytest.approx(1, abs=1e-3)
    assert embedder.encoded == ["tea"]


def test_an_export_is_private_and_replaces_the_file(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "OUT.JSONL"
    path.write_text("old")
    memory.add("tea", {"a": 1})
    memory.add("coffee", {"a": 2})
    assert memory.export(path, {"a": 1}) == 1
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert (lines[0]["format"], lines[0]["version"], len(lines)) == ("nanomem-export", 1, 2)
    assert lines[1]["record"]["text"] == "tea"
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: expected a file written by `nanomem export`"),
        ("{", "line 1: expected a JSON object"),
        ('{"format": "other"}\n', "expected a file written by `nanomem export`"),
        ('{"format": "nanomem-export", "version": 2}\n', "version 2 of the export form; this release reads 1"),
        ('{"format": "nanomem-export", "version": 1, "embedder": "x"}\n', "line 1: not a record of an export"),
        ('{"format": "nanomem-export", "version": 1}\n"\udce4"', "expected UTF-8"),
        ('{"format": "nanomem-export", "version": 1}\n{"user": "a"}\n', "line 2: not a record of an export"),
        ('{"format": "nanomem-export", "version": 1}\n[1]\n', "line 2: expected a JSON object; found list"),
        ('{"format": "nanomem-export", "version": 1}\n{"user', "line 2: expected a JSON object"),
    ],
)
def test_a_file_that_is_no_export_is_refused_by_line(
    memory: Memory, tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(FormatError, match=message):
        memory.import_(path)
    assert memory.records() == []


def test_what_is_not_there_can_be_neither_imported_nor_merged(memory: Memory, tmp_path: Path) -> None:
    for call in (memory.import_, memory.merge):
        for name in ("absent.jsonl", "absent.dat"):
            with pytest.raises(NotFoundError, match="there is no such file"):
                call(tmp_path / name)
    assert not (tmp_path / "absent.dat").exists()


def test_an_export_can_be_limited(memory: Memory, tmp_path: Path) -> None:
    memory.add("early", timestamp=100, source="a.md:1-9")
    memory.add("middle", {"filename": "b.md"}, timestamp=200)
    memory.add("late", timestamp=300)
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["early", "middle", "late"]),
        ({"before": 200}, ["early"]),
        ({"after": 200}, ["middle", "late"]),
        ({"after": 100, "before": 300}, ["early", "middle"]),
        ({"source_doc": "a.md"}, ["early"]),
        ({"source_doc": "b.md"}, ["middle"]),
        ({"source_doc": "b"}, []),
        ({"where": {"timestamp": {"$gt": 100}}, "before": 300}, ["middle"]),
    ]
    for arguments, expected in cases:
        assert [parcel.record.text for parcel in memory.parcels(**arguments)] == expected
        assert memory.export(tmp_path / "out.jsonl", **arguments) == len(expected)


def test_moving_out_removes_exactly_what_was_copied(shelf: Shelf) -> None:
    memory = shelf.open()
    for number in range(6):
        memory.add(f"r{number}", {"even": number % 2 == 0})
    assert memory.export(shelf.folder / "out.jsonl", {"even": True}, purge=True) == 3
    assert texts(memory.records()) == ["r1", "r3", "r5"]
    memory.import_(shelf.folder / "out.jsonl")
    assert sorted(texts(memory.records())) == [f"r{number}" for number in range(6)]


# Stores beside this one.


@pytest.fixture
def arena(shelf: Shelf) -> Memory:
    if shelf.store != "arena":
        pytest.skip("the store has no place on disk")
    return shelf.open(CountingEmbedder())


def test_split_copies_or_moves_to_another_store(arena: Memory, shelf: Shelf) -> None:
    ids = [arena.add(f"r{number}", {"team": "ops" if number < 2 else "dev"}) for number in range(4)]
    assert arena.split({"team": "ops"}, shelf.folder / "ops.dat") == 2
    assert len(arena.records()) == 4
    assert arena.split({"team": "dev"}, shelf.folder / "dev.dat", purge=True) == 2
    assert [entry.id for entry in arena.records()] == ids[:2]
    assert arena.import_(shelf.folder / "dev.dat")["added"] == 2
    assert arena.embedder.encoded == ["r0", "r1", "r2", "r3"]  # type: ignore[attr-defined]


def test_split_by_key_makes_a_store_for_each_value(arena: Memory, shelf: Shelf) -> None:
    values: list[Any] = ["ops", "Ops", "a/b", "", None, 5, "5", ["x", "y"], {"$gt": 1}]
    for number, value in enumerate(values):
        arena.add(f"r{number}", {"team": value})
    rest = arena.add("of no team")
    counts = arena.split_by_key("team", shelf.folder / "teams", purge=True)
    assert sum(counts.values()) == len(values)
    assert set(counts) == {path.name for path in (shelf.folder / "teams").glob("*.dat")}
    assert counts["5.dat"] == 2
    assert [entry.id for entry in arena.records()] == [rest]
    for name in counts:
        arena.import_(shelf.folder / "teams" / name)
    assert sorted(str(entry.metadata.get("team")) for entry in arena.records()) == sorted(map(str, [*values, None]))


def test_split_by_key_takes_fields_of_the_record_too(arena: Memory, shelf: Shelf) -> None:
    arena.add("a", source="cli")
    arena.add("b", source="web")
    assert arena.split_by_key("source", shelf.folder / "by") == {"cli.dat": 1, "web.dat": 1}


def test_a_store_can_be_merged_by_its_path_and_taken_out_again(arena: Memory, shelf: Shelf) -> None:
    other = shelf.another().open(arena.embedder)
    other.add("theirs", entity="city", timestamp=1)
    arena.add("ours", entity="city", timestamp=2)
    path = str(other.storage.place)
    assert arena.merge(path, incoming_project="moved") == {"incoming": 1, "added": 1, "duplicates_skipped": 0}
    assert arena.unmerge(path, shelf.folder / "back.dat") == 1
    assert texts(arena.records()) == ["ours"]
    assert arena.import_(shelf.folder / "back.dat")["added"] == 1


def test_a_store_without_a_place_on_disk_has_no_other_of_its_kind(shelf: Shelf) -> None:
    if shelf.store != "dict":
        pytest.skip("the store has a place on disk")
    memory = shelf.open()
    memory.add("x", {"a": 1})
    for call in (lambda: memory.split({"a": 1}, "x.dat", purge=True), lambda: memory.merge(__file__)):
        with pytest.raises(InputError, match=r"use a \.jsonl file"):
            call()
    assert texts(memory.records()) == ["x"]


# Merge.


def test_merging_brings_records_into_the_chains_and_unmerging_takes_them_out(shelf: Shelf) -> None:
    memory, other = shelf.open(), shelf.another().open()
    memory.add("Oslo", entity="city", timestamp=10)
    memory.add("Molde", entity="city", timestamp=30)
    other.add("Bergen", {"user_id": "x"}, entity="city", timestamp=20)
    other.purge(other.add("secret"))
    before = contents(memory)
    report = memory.merge(other, incoming_user_id="ann", incoming_project="p")
    assert report == {"incoming": 1, "added": 1, "duplicates_skipped": 0}
    (merged,) = memory.records(filter={"project": "p"})
    assert merged.metadata["user_id"] == "ann"
    assert texts(memory.current(filter={"user_id": {"$exists": False}})) == ["Molde"]
    assert memory.unmerge("p") == 1
    assert contents(memory) == before


def test_nothing_older_becomes_current_by_a_merge(shelf: Shelf) -> None:
    memory, other = shelf.open(), shelf.another().open()
    memory.add("Oslo", entity="city", timestamp=10)
    memory.add("Molde", entity="city", timestamp=30)
    for time in (5, 20):
        other.add(f"theirs of {time}", entity="city", timestamp=time)
    memory.merge(other)
    assert texts(memory.history(entity="city")) == ["theirs of 5", "Oslo", "theirs of 20", "Molde"]
    assert [entry.revision for entry in memory.history(entity="city")] == [3, 1, 4, 2]
    assert memory.merge(other)["added"] == 0


def test_merging_can_leave_out_what_is_here_already(shelf: Shelf) -> None:
    memory, other = shelf.open(), shelf.another().open()
    memory.add("Lives in Oslo", entity="city")
    other.add_many([{"text": "lives in OSLO ", "entity": "city"}, {"text": "Lives in Oslo"}, "Lives in Oslo"])
    assert memory.merge(other, deduplicate=True) == {"incoming": 3, "added": 1, "duplicates_skipped": 2}
    assert len(memory.records()) == 2


def test_unmerge_refuses_an_empty_name(memory: Memory) -> None:
    memory.add("x", {"project": ""})
    for name in ("", "  "):
        with pytest.raises(InputError, match="would match every record"):
            memory.unmerge(name)
    assert memory.unmerge("absent") == 0
    assert len(memory.records()) == 1


# Another embedder.


def test_reembedding_changes_the_embedder_of_all_scopes(shelf: Shelf) -> None:
    memory = shelf.open()
    for user in ("ann", "bob"):
        memory.add_many([f"{user} {i}" for i in range(5)], user=user)
    embedder = CountingEmbedder(24)
    told: list[tuple[int, int]] = []
    other = shelf.open(embedder)
    assert other.reembed(lambda done, total: told.append((done, total))) == 10
    assert sorted(embedder.encoded) == sorted(f"{user} {i}" for user in ("ann", "bob") for i in range(5))
    assert told[-1][0] == told[-1][1]
    hit = other.search("ann 3", user="ann", mode="vector")[0]
    assert (hit.text, round(hit.cosine, 3)) == ("ann 3", 1)
    assert other.reembed() == 0


@pytest.mark.parametrize("store", EVERY_STORE, indirect=True)
def test_a_memory_is_not_exported_into_itself_and_loses_nothing(shelf: Shelf) -> None:
    memory = shelf.open()
    memory.add("a", {"k": 1})
    targets: list[Memory | Path] = [memory]
    if shelf.store != "dict":
        place = shelf.folder / {"arena": "memory.dat", "jsonl": "lines", "markdown": "notes"}[shelf.store]
        targets += [shelf.open(), place]
        if os.name == "posix":
            (shelf.folder / "link").symlink_to(place)
            targets.append(shelf.folder / "link")
    for target in targets:
        with pytest.raises(InputError, match="this memory itself"):
            memory.export(target, {"k": 1}, purge=True)
    assert texts(memory.records()) == ["a"]
