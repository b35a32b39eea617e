"""Nemori's files are read as they are, and what is written can be read by Nemori."""

import json
import os

import pytest

from nanomem_core.changes import Delete, Put
from nanomem_core.records import Record, Scope
from nanomem_core.testing.samples import HOSTILE_NAMES, ODD_METADATA, assert_columns_agree
from nanomem_core.times import parse_time
from nanomem_plugins.jsonl.storage import JsonlStorage

from .material import (
    ANA,
    EPISODE,
    EPISODE_2,
    FACT,
    FACT_2,
    NEMORI_KEYS,
    NOON,
    as_nemori,
    below,
    fact,
    lines,
    rewritten_by_nemori,
    texts,
    write_lines,
)


@pytest.fixture
def filled(tmp_path):
    write_lines(tmp_path / "episodes/ana_episodes.jsonl", EPISODE, EPISODE_2)
    write_lines(tmp_path / "semantic/ana_semantic.jsonl", FACT, FACT_2)
    return tmp_path


def assert_all_read(storage):
    records = {record.id: record for record in storage.scan(ANA)}
    assert list(records) == ["e-1", "e-2", "f-1", "f-2"]
    first = records["e-1"]
    assert first.text == f"Rome trip\n\n{EPISODE['content']}"
    assert (first.kind, first.valid_from) == ("episode", parse_time("2024-05-02T10:00:00Z"))
    assert first.recorded_at == parse_time("2024-05-03T08:00:00Z")
    assert first.metadata == {
        "merged_from": ["e-0"],
        "title": "Rome trip",
        "messages": EPISODE["original_messages"],
        "boundary_reason": EPISODE["boundary_reason"],
        "tags": ["travel"],
    }
    second = records["e-2"]
    assert second.valid_from == parse_time("2026-01-01T00:00:00Z")
    assert second.metadata["messages"] == EPISODE_2["source_messages"]
    assert second.metadata["boundary_reason"] == "topic"
    assert records["f-1"].metadata["confidence"] == 0.9
    assert records["f-2"].metadata == {"knowledge_type": "career", "confidence": 1.0, "source_episodes": ["e-2"]}
    assert records["f-2"].recorded_at == parse_time("2026-01-02T00:00:00Z")


def test_both_forms_are_read_and_reading_changes_nothing(filled):
    before = below(filled)
    with JsonlStorage(filled, read_only=True) as storage:
        assert_all_read(storage)
        assert storage.scopes() == [ANA]
    assert below(filled) == before
    with JsonlStorage(filled) as storage:
        assert_all_read(storage)
        assert storage.check() == []
    assert below(filled) == before


def test_the_first_write_brings_all_into_one_form_and_loses_nothing(filled):
    with JsonlStorage(filled) as storage:
        storage.commit(ANA, [fact("f-3", "new")])
        assert_all_read_and_one(storage)
    with JsonlStorage(filled, read_only=True) as storage:
        assert_all_read_and_one(storage)
    found = as_nemori(filled / "episodes/ana_episodes.jsonl", "episode")
    assert {key: found[0][key] for key in EPISODE if key != "metadata"} == {
        key: value for key, value in EPISODE.items() if key != "metadata"
    }
    assert [list(item) for item in found] == [NEMORI_KEYS["episode"]] * 2
    raw = lines(filled / "episodes/ana_episodes.jsonl")[1]
    assert raw["embedding"] == [0.5, 0.25]
    assert raw["created_at"] == EPISODE_2["created_at"], "the original form of a time is kept"
    facts = as_nemori(filled / "semantic/ana_semantic.jsonl", "fact")
    assert [item["memory_id"] for item in facts] == ["f-1", "f-2", "f-3"]
    assert [list(item) for item in facts] == [NEMORI_KEYS["fact"]] * 3


def assert_all_read_and_one(storage):
    assert storage.head(ANA) == 2
    *others, last = storage.scan(ANA)
    assert (len(others), last.text) == (4, "new")
    assert [record.version for record in others] == [1] * 4
    assert_columns_agree(storage, ANA)


def test_keys_of_others_outlive_an_update(tmp_path):
    write_lines(tmp_path / "semantic/ana_semantic.jsonl", FACT | {"mood": "calm"})
    with JsonlStorage(tmp_path) as storage:
        record = storage.get(ANA, "f-1")
        storage.commit(
            ANA, [Put(Record("f-1", "Ana is vegan", metadata=record.metadata, valid_from=record.valid_from))]
        )
    (item,) = lines(tmp_path / "semantic/ana_semantic.jsonl")
    assert (item["mood"], item["content"], item["revision_count"]) == ("calm", "Ana is vegan", 2)
    assert item["metadata"]["generation_method"] == "prediction_correction"


def test_an_edit_by_nemori_is_a_new_version(tmp_path):
    path = tmp_path / "semantic/ana_semantic.jsonl"
    with JsonlStorage(tmp_path) as storage:
        storage.commit(ANA, [fact("a", "tea", entity="drink", declared=True), fact("b", "red", entity="colour")])
        columns, epoch = storage.columns(ANA), storage.epoch(ANA)
        rewritten_by_nemori(
            path, "fact", lambda item: item.update(content="coffee") if item["memory_id"] == "a" else None
        )
        a, b = storage.scan(ANA)
        assert (a.text, a.version, a.revision, a.entity, a.declared) == ("coffee", 2, 1, "drink", True)
        assert (b.text, b.version) == ("red", 1)
        assert storage.epoch(ANA) != epoch
        assert storage.columns(ANA).source is not columns.source
        assert_columns_agree(storage, ANA)
        commit = storage.commit(ANA, [fact("c", "blue", entity="colour")])
        assert (commit.head, commit.records[0].revision) == (3, 2)
    with JsonlStorage(tmp_path) as storage:
        assert [(r.text, r.version) for r in storage.scan(ANA)] == [("coffee", 2), ("red", 1), ("blue", 1)]


def test_a_line_that_nemori_removed_is_gone_at_a_head_of_its_own(tmp_path):
    path = tmp_path / "semantic/ana_semantic.jsonl"
    with JsonlStorage(tmp_path) as storage, JsonlStorage(tmp_path) as other:
        storage.commit(ANA, [fact("a", "tea"), fact("b", "red")])
        assert len(texts(other)) == 2
        write_lines(path, lines(path)[1])
        assert texts(storage) == texts(other) == ["red"]
        assert_columns_agree(other, ANA)
        assert storage.commit(ANA, [fact("c", "blue")]).head == 3
        assert texts(other) == ["red", "blue"]
        assert other.head(ANA) == 3


def test_a_line_that_nemori_appends_is_seen_at_once(tmp_path):
    path = tmp_path / "semantic/ana_semantic.jsonl"
    with JsonlStorage(tmp_path) as storage:
        storage.commit(ANA, [fact("a", "tea")])
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(FACT) + "\n")
        assert texts(storage) == ["tea", FACT["content"]]
        assert_columns_agree(storage, ANA)
        storage.commit(ANA, [fact("b", "blue")])
        assert texts(storage) == ["tea", FACT["content"], "blue"]


@pytest.mark.parametrize("metadata", ODD_METADATA)
@pytest.mark.parametrize("kind", ["fact", "episode", "message", "summary"])
def test_metadata_survives_in_every_kind(tmp_path, kind, metadata):
    given = (
        metadata | {"tags": ["x"], "nanomem": 1} if metadata else {"tags": [], "title": "T", "confidence": 1, "role": 2}
    )
    with JsonlStorage(tmp_path) as storage:
        storage.commit(ANA, [Put(Record("a", "T\n\ntext", kind, metadata=given))])
    with JsonlStorage(tmp_path) as storage:
        assert json.dumps(dict(storage.get(ANA, "a").metadata)) == json.dumps(given)
        assert storage.get(ANA, "a").text == "T\n\ntext"


def test_an_episode_is_told_apart_from_its_title(tmp_path):
    metadata = {"title": "Rome", "messages": EPISODE["original_messages"], "message_ids": ["m-1"]}
    with JsonlStorage(tmp_path) as storage:
        storage.commit(ANA, [Put(Record("e", "Rome\n\nShe flew.", "episode", metadata=metadata))])
    (item,) = as_nemori(tmp_path / "episodes/ana_episodes.jsonl", "episode")
    assert (item["title"], item["content"], item["message_count"]) == ("Rome", "She flew.", 1)
    assert item["original_messages"] == EPISODE["original_messages"]


# Older files.


ARRAY = [EPISODE, EPISODE | {"episode_id": "e-3", "title": "Oslo"}]


@pytest.mark.parametrize("wrap", [list, lambda items: {"episodes": items}], ids=["array", "wrapped"])
@pytest.mark.parametrize(
    "access",
    [
        lambda s: s.scopes(),
        lambda s: s.head(ANA),
        lambda s: s.get(ANA, "e-1"),
        lambda s: list(s.scan(ANA, "fact")),
        lambda s: s.commit(ANA, [fact("new", "save before list")]),
        lambda s: s.columns(ANA),
    ],
)
def test_an_old_array_is_taken_over_by_any_access(tmp_path, wrap, access):
    (tmp_path / "episodes").mkdir()
    (tmp_path / "episodes/ana.json").write_text(json.dumps(wrap(ARRAY)))
    with JsonlStorage(tmp_path) as storage:
        access(storage)
        assert [r.id for r in storage.scan(ANA) if r.kind == "episode"] == ["e-1", "e-3"]
        assert not (tmp_path / "episodes/ana.json").exists()
        assert (tmp_path / "episodes/ana.json.migrated").exists()
        storage.commit(ANA, [Delete("e-1")])
    with JsonlStorage(tmp_path) as storage:
        assert storage.get(ANA, "e-1") is None, "what was deleted came back"
        storage.compact()
    assert b"Rome trip" not in b"".join(below(tmp_path).values())


def test_an_old_array_is_read_where_nothing_may_be_written(tmp_path):
    (tmp_path / "episodes").mkdir()
    (tmp_path / "episodes/ana.json").write_text(json.dumps(ARRAY))
    before = below(tmp_path)
    with JsonlStorage(tmp_path, read_only=True) as storage:
        assert [r.id for r in storage.scan(ANA)] == ["e-1", "e-3"]
    assert below(tmp_path) == before


def test_bad_elements_of_an_old_array_hide_nothing_and_are_set_aside(tmp_path):
    (tmp_path / "episodes").mkdir()
    (tmp_path / "episodes/ana.json").write_text(json.dumps([ARRAY[0], 17, {"title": "no content"}, ARRAY[1]]))
    with JsonlStorage(tmp_path) as storage:
        with pytest.warns(RuntimeWarning, match="ana.json, line") as warned:
            assert [r.id for r in storage.scan(ANA)] == ["e-1", "e-3"]
        assert len(warned) == 2
        assert storage.check() == []
    pieces = lines(tmp_path / "episodes/ana_episodes.jsonl.quarantine")
    assert [(piece["line"], piece["bytes"]) for piece in pieces] == [(2, "17"), (3, '{"title": "no content"}')]


def test_an_old_array_adds_to_newer_lines_and_never_replaces_them(tmp_path):
    write_lines(tmp_path / "episodes/ana_episodes.jsonl", EPISODE | {"content": "newer"})
    (tmp_path / "episodes/ana.json").write_text(json.dumps(ARRAY))
    with JsonlStorage(tmp_path) as storage:
        assert [(r.id, r.text) for r in storage.scan(ANA)] == [
            ("e-1", "Rome trip\n\nnewer"),
            ("e-3", f"Oslo\n\n{EPISODE['content']}"),
        ]


@pytest.mark.parametrize("user", ["Ann", "ANA", "Ann Lee", "Zoë", "x" * 200])
def test_a_file_under_the_bare_user_id_is_found_and_used(tmp_path, user):
    write_lines(tmp_path / f"semantic/{user}_semantic.jsonl", FACT | {"user_id": user})
    scope = Scope(user)
    with JsonlStorage(tmp_path) as storage:
        assert storage.scopes() == [scope]
        assert texts(storage, scope) == [FACT["content"]]
        storage.commit(scope, [fact("b", "more")])
    with JsonlStorage(tmp_path) as storage:
        assert texts(storage, scope) == [FACT["content"], "more"]
        assert storage.scopes() == [scope]
        assert storage.scopes() == [scope]
        storage.erase(scope)
        assert storage.scopes() == []
    assert FACT["content"].encode() not in b"".join(below(tmp_path).values())


def test_a_file_that_only_bears_the_name_is_left_alone(tmp_path):
    # As on a disk where upper and lower case are one: the file of "ana" answers to the name of "Ana" too.
    write_lines(tmp_path / "semantic/Ana_semantic.jsonl", FACT)
    scope = Scope("Ana")
    with JsonlStorage(tmp_path) as storage:
        assert texts(storage, scope) == []
        storage.commit(scope, [fact("b", "of Ana")])
        storage.erase(scope)
    assert lines(tmp_path / "semantic/Ana_semantic.jsonl") == [FACT]


# Names.


NAMES = [*HOSTILE_NAMES, "x_episodes_y", "a_semantic", "_episodes", "x" * 900, "漢" * 300, "ann.json", "agents"]


def test_names_are_distinct_also_where_case_is_not(tmp_path):
    with JsonlStorage(tmp_path / "store") as storage:
        for number, name in enumerate(NAMES):
            storage.commit(Scope(name), [fact("x", f"user {number}")])
            storage.commit(Scope("u", name), [fact("x", f"agent {number}")])
    files = [path.lower() for path in below(tmp_path / "store") if path.endswith(".jsonl")]
    assert len(files) == len(set(files)) == 2 * len(NAMES)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    with JsonlStorage(tmp_path / "store", read_only=True) as storage:
        assert set(storage.scopes()) == {Scope(n) for n in NAMES} | {Scope("u", n) for n in NAMES}
        for number, name in enumerate(NAMES):
            assert texts(storage, Scope(name)) == [f"user {number}"]
            assert texts(storage, Scope("u", name)) == [f"agent {number}"]


def test_plain_names_are_those_of_nemori(tmp_path):
    with JsonlStorage(tmp_path) as storage:
        for user in ("ana", "ann@example.org", "用户-一", "a.b-c_d"):
            storage.commit(Scope(user), [fact("a", "text"), Put(Record("e", "text", "episode"))])
            assert (tmp_path / f"semantic/{user}_semantic.jsonl").exists()
            assert (tmp_path / f"episodes/{user}_episodes.jsonl").exists()


@pytest.mark.skipif(os.name == "nt", reason="making links needs privileges")
def test_links_that_lead_outside_are_not_followed(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    write_lines(outside / "ana_semantic.jsonl", FACT)
    (root / "semantic").symlink_to(outside)
    before = below(outside)
    with JsonlStorage(root) as storage:
        for call in (lambda: storage.commit(ANA, [fact("b", "x")]), lambda: storage.erase(ANA)):
            with pytest.raises(OSError, match="link"):
                call()
    assert below(outside) == before


@pytest.mark.skipif(os.name == "nt", reason="making links needs privileges")
@pytest.mark.parametrize("place", [".nanomem", ".nanomem/scopes", ".nanomem/scopes/ana", ".nanomem/locks"])
def test_a_link_in_place_of_a_folder_of_ours_is_refused_by_writes(tmp_path, place):
    root, outside = tmp_path / "root", tmp_path / "outside"
    with JsonlStorage(root) as storage:
        storage.commit(ANA, [fact("a", "x")])
    (root / place).rename(outside)
    (root / place).symlink_to(outside)
    before = below(outside)
    with JsonlStorage(root) as storage:
        for call in (lambda: storage.commit(ANA, [fact("b", "x")]), lambda: storage.erase(ANA)):
            with pytest.raises(OSError, match="link"):
                call()
    assert below(outside) == before


def test_times_have_no_zone_since_nemori_compares_them(tmp_path):
    with JsonlStorage(tmp_path) as storage:
        storage.commit(ANA, [fact("a", "x", valid_from=NOON + 0.25), fact("b", "y", valid_from=1e18)])
    a, b = as_nemori(tmp_path / "semantic/ana_semantic.jsonl", "fact")
    assert (a["created_at"], b["created_at"]) == ("2026-03-10T11:00:00.250000", "9999-12-31T23:59:59.999999")
    with JsonlStorage(tmp_path) as storage:
        assert [r.valid_from for r in storage.scan(ANA)] == [NOON + 0.25, 1e18]
