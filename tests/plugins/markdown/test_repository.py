"""DeerMem's repository contract over the store."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nanomem_core.errors import ConflictError, CorruptionError, InputError, LockTimeoutError, StorageError
from nanomem_core.fileio import atomic
from nanomem_core.memory import Memory
from nanomem_core.records import Record, Scope
from nanomem_core.registry.manager import PluginManager
from nanomem_core.testing import DiskRecorder
from nanomem_core.testing.disk import LOSSES, Loss
from nanomem_core.testing.samples import full_run
from nanomem_plugins.lexical.embedder import LexicalEmbedder
from nanomem_plugins.markdown.files import find_files
from nanomem_plugins.markdown.storage import MarkdownStorage

from .material import edit, fact_path, failing_from, write_fact, write_manifest

ANN = {"user_id": "ann", "agent_name": "default"}
SCOPE = Scope("ann")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "memory"


@pytest.fixture
def store(root: Path) -> Iterator[MarkdownStorage]:
    with MarkdownStorage(root, check="always") as storage:
        yield storage


def put(store: MarkdownStorage, id: str, content: str | None = None, **fields: Any) -> dict[str, Any]:
    """A new fact; the stored form."""
    user_id, agent_name = fields.pop("user_id", "ann"), fields.pop("agent_name", "default")
    fact = {"id": id, "content": f"text of {id}" if content is None else content, **fields}
    return store.upsert_fact(fact, user_id=user_id, agent_name=agent_name)["upsertedFacts"][0]


def ids(store: MarkdownStorage, **scope: Any) -> list[str]:
    return [fact["id"] for fact in store.list_facts(limit=1000, **(ANN | scope))]


def manifest(root: Path, user: str = "ann") -> dict[str, Any]:
    return json.loads((root / "users" / user / "memory.json").read_bytes())


def tree(root: Path) -> dict[str, bytes]:
    """Every file that DeerMem knows of."""
    files = (path for path in root.rglob("*") if path.is_file() and ".nanomem" not in path.parts)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files if ".derived" not in path.parts}


def memory_over(store: MarkdownStorage, **options: Any) -> Memory:
    return Memory(store, LexicalEmbedder(), taggers=(), plugins=PluginManager(), user="ann", **options)


# Documents.


def test_two_agents_have_their_own_facts_and_one_memory_json(store: MarkdownStorage, root: Path) -> None:
    assert store.save({"facts": [{"id": "a", "content": "of one"}]}, user_id="ann", agent_name="one")
    assert store.save({"facts": [{"id": "b", "content": "of two"}]}, user_id="ann", agent_name="two")
    assert [fact["id"] for fact in store.load(user_id="ann", agent_name="one")["facts"]] == ["a"]
    assert [fact["id"] for fact in store.load(user_id="ann", agent_name="two")["facts"]] == ["b"]
    assert store.load(user_id="ann")["facts"] == []
    store.close()
    assert [path for path in tree(root) if path.endswith(".json")] == ["users/ann/memory.json"]


def test_memory_json_has_exactly_five_keys_and_no_fact(store: MarkdownStorage, root: Path) -> None:
    put(store, "a")
    store.close()
    found = manifest(root)
    assert list(found) == ["version", "revision", "lastUpdated", "user", "history"]
    assert (found["version"], found["revision"]) == ("2.0", 1)
    assert "text of a" not in json.dumps(found)


def test_a_file_names_its_user_and_agent_and_has_its_title_as_heading(store: MarkdownStorage, root: Path) -> None:
    for id, title, heading in (("a", {}, "first line"), ("b", {"title": "Mine"}, "Mine")):
        fact = put(store, id, "first line\nsecond", agent_name="Research-Agent", **title)
        text = fact_path(root, id, agent="research-agent").read_text()
        assert "\nuser_id: ann\nagent_name: research-agent\n" in text
        assert f"\n---\n\n# {heading}\n\nfirst line\nsecond\n" in text
        assert fact["title"] == heading


def test_saving_an_agents_facts_leaves_the_summaries_alone(store: MarkdownStorage) -> None:
    store.update_summaries({"user": {"workContext": {"summary": "Builds boats"}}}, user_id="ann")
    before = store.load(user_id="ann")
    other = {"facts": [{"id": "a", "content": "x"}], "user": {"workContext": {"summary": "Sells boats"}}}
    assert store.save(other, **ANN)
    assert store.load(user_id="ann")["user"] == before["user"]


def test_a_fact_that_a_saved_document_leaves_out_is_gone_with_its_file(store: MarkdownStorage, root: Path) -> None:
    put(store, "a")
    put(store, "b")
    document = store.load(**ANN)
    document["facts"] = [fact for fact in document["facts"] if fact["id"] == "b"]
    assert store.save(document, expected_revision=document["revision"], **ANN)
    assert ids(store) == ["b"]
    assert not fact_path(root, "a").exists()


def test_saving_what_was_loaded_writes_nothing(store: MarkdownStorage, root: Path) -> None:
    put(store, "a", topics=["x"], mood={"deep": [1]})
    store.close()
    before = tree(root)
    with MarkdownStorage(root) as again:
        assert again.save(again.load(**ANN), **ANN)
        assert again.save(again.load(user_id="ann"), user_id="ann")
    assert tree(root) == before


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"facts": None},
        {"facts": [None]},
        {"facts": {}},
        None,
        [],
        {"facts": [{}]},
        {"facts": [{"id": "a.b", "content": "x"}]},
        {"facts": [{"id": "b", "content": "x"}, {"id": "b", "content": "y"}]},
    ],
)
def test_a_document_of_another_form_is_not_saved_and_facts_stay(
    store: MarkdownStorage, document: Any, caplog: pytest.LogCaptureFixture
) -> None:
    put(store, "a")
    with caplog.at_level(logging.WARNING, "nanomem"):
        assert store.save(document, **ANN) is False
    assert "not saved" in caplog.text
    assert ids(store) == ["a"]


def test_a_document_of_the_user_holds_no_facts(store: MarkdownStorage) -> None:
    assert store.save({"facts": [{"id": "a", "content": "x"}]}, user_id="ann") is False
    assert store.save({"user": {"topOfMind": {"summary": "Sailing"}}, "facts": []}, user_id="ann") is True
    assert store.get_summaries(user_id="ann")["user"]["topOfMind"]["summary"] == "Sailing"
    assert store.save({"history": {}}, user_id="ann") is True
    assert store.get_summaries(user_id="ann")["user"]["topOfMind"]["summary"] == ""


def test_a_broken_memory_json_is_corruption_and_is_left_as_it_is(root: Path) -> None:
    path = write_fact(root, "a")
    (root / "users/ann/memory.json").write_text("{broken")
    before = path.read_bytes()
    with MarkdownStorage(root) as store:
        for call in (store.load, store.get_summaries):
            with pytest.raises(CorruptionError, match=r"memory\.json"):
                call(user_id="ann")
        with pytest.raises(CorruptionError):
            put(store, "b")
        assert store.get_fact("a", **ANN)["content"] == "Project uses Python 3.12."
    assert (root / "users/ann/memory.json").read_text() == "{broken"
    assert path.read_bytes() == before


# Preconditions.


def test_a_stale_manifest_revision_is_a_conflict_and_nothing_is_written(store: MarkdownStorage) -> None:
    put(store, "a")
    put(store, "b")
    before = store.load(**ANN)
    for call in (
        lambda: store.save({"facts": []}, expected_revision=1, **ANN),
        lambda: store.save({}, expected_revision=1, user_id="ann"),
        lambda: store.update_summaries({"user": {"topOfMind": {"summary": "x"}}}, 1, user_id="ann"),
        lambda: store.apply_changes({"deletes": ["a"]}, 1, **ANN),
        lambda: store.apply_changes({"deletes": ["a"]}, 1, True, **ANN),
        lambda: store.delete_fact("a", 1, **ANN),
    ):
        with pytest.raises(ConflictError) as caught:
            call()
        assert (caught.value.id, caught.value.expected, caught.value.found) == (None, 1, 2)
    assert store.load(**ANN) == before


def test_a_summary_patch_keeps_its_siblings_and_goes_with_its_facts_or_not_at_all(store: MarkdownStorage) -> None:
    store.update_summaries({"user": {"topOfMind": {"summary": "Sailing"}}}, user_id="ann")
    change = {
        "upserts": [{"id": "a", "content": "x"}],
        "summaries": {"user": {"workContext": {"summary": "Builds boats"}}},
    }
    with pytest.raises(ConflictError):
        store.apply_changes(change, 7, True, **ANN)
    assert ids(store) == []
    store.apply_changes(change, 1, **ANN)
    summaries = store.get_summaries(user_id="ann")
    assert summaries["user"]["workContext"]["summary"] == "Builds boats"
    assert summaries["user"]["topOfMind"]["summary"] == "Sailing"
    assert summaries["revision"] == 2
    stale = {"upserts": [{"id": "a", "content": "y"}], "summaries": {"user": {"workContext": {"summary": "z"}}}}
    with pytest.raises(ConflictError) as caught:
        store.apply_changes(stale, **ANN)
    assert caught.value.id == "a"
    assert store.get_summaries(user_id="ann") == summaries


def test_deltas_list_what_changed_and_each_commit_counts_one(store: MarkdownStorage) -> None:
    first = store.apply_changes({"upserts": [{"id": id, "content": id} for id in "abc"]}, **ANN)
    assert (first["complete"], first["version"], first["revision"]) == (False, "2.0", 1)
    assert [fact["id"] for fact in first["upsertedFacts"]] == ["a", "b", "c"]
    second = store.upsert_fact({"id": "a", "content": "new"}, 1, 1, **ANN)
    assert (second["revision"], second["deletedFactIds"]) == (2, [])
    assert [(fact["id"], fact["revision"], fact["content"]) for fact in second["upsertedFacts"]] == [("a", 2, "new")]
    third = store.delete_fact("b", 2, 1, **ANN)
    assert (third["revision"], third["upsertedFacts"], third["deletedFactIds"]) == (3, [], ["b"])
    assert second["upsertedFacts"][0] == store.get_fact("a", **ANN)
    assert third["lastUpdated"] == store.load(**ANN)["lastUpdated"]


def test_an_id_that_exists_is_a_conflict_without_its_revision(store: MarkdownStorage) -> None:
    put(store, "a", "first")
    with pytest.raises(ConflictError) as caught:
        store.upsert_fact({"id": "a", "content": "second"}, **ANN)
    assert (caught.value.id, caught.value.expected, caught.value.found) == ("a", 0, 1)
    assert store.get_fact("a", **ANN)["content"] == "first"


def _create(root: Path, start: Any, content: str, results: Any) -> None:
    with MarkdownStorage(root) as store:
        start.wait()
        try:
            store.upsert_fact({"id": "a", "content": content}, **ANN)
            results.put(content)
        except ConflictError:
            results.put(None)


def test_of_two_processes_that_create_one_id_the_second_conflicts(root: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(2), context.Queue()
    processes = [context.Process(target=_create, args=(root, start, text, results)) for text in ("one", "two")]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    [winner] = [text for text in found if text is not None]
    with MarkdownStorage(root) as store:
        assert store.get_fact("a", **ANN)["content"] == winner
        assert store.load(**ANN)["revision"] == 1


def test_point_operations_rebase_onto_a_newer_manifest_and_stale_facts_conflict(root: Path) -> None:
    with MarkdownStorage(root) as one, MarkdownStorage(root) as two:
        put(one, "a")
        put(one, "b")
        a, b = one.get_fact("a", **ANN), two.get_fact("b", **ANN)
        one.upsert_fact({**a, "content": "new a"}, 2, a["revision"], **ANN)
        two.apply_changes({"upserts": [{**b, "content": "new b"}]}, 2, True, **ANN)
        assert [fact["content"] for fact in one.list_facts(**ANN)] == ["new a", "new b"]
        with pytest.raises(ConflictError) as caught:
            two.apply_changes({"upserts": [{**a, "content": "stale a"}]}, 2, True, **ANN)
        assert caught.value.id == "a"
        with pytest.raises(ConflictError) as caught:
            two.apply_changes({"upserts": [{**b, "revision": 2, "content": "newer b"}]}, 2, **ANN)
        assert caught.value.id is None


def test_an_unchanged_fact_is_neither_written_nor_counted(store: MarkdownStorage, root: Path) -> None:
    put(store, "a", topics=["x"])
    before, fact = tree(root), store.get_fact("a", **ANN)
    journal = (root / "users/ann/.nanomem/journal").read_bytes()
    delta = store.upsert_fact(fact, expected_fact_revision=1, **ANN)
    assert (delta["revision"], delta["upsertedFacts"], delta["deletedFactIds"]) == (1, [], [])
    assert store.apply_changes({}, **ANN)["revision"] == 1
    same = store.get_summaries(user_id="ann")
    assert store.update_summaries({"user": same["user"]}, user_id="ann")["revision"] == 1
    assert tree(root) == before
    assert (root / "users/ann/.nanomem/journal").read_bytes() == journal, "nobody is told of a commit"
    assert store.head(SCOPE) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"topics": "python"},
        {"revision": []},
        {"confidence": float("nan")},
        {"confidence": True},
        {"confidence": 1.5},
        {"content": ""},
        {"content": "x" * (1 << 21)},
        {"status": "archived"},
        {"id": "a/b"},
        {"id": "a\n"},
        {"id": "x" * 101},
        {"id": "con"},
        {"id": "LPT1"},
        {"createdAt": "yesterday-ish"},
        {"scope": {"userId": "bob"}},
        {"mood": object()},
    ],
)
def test_an_invalid_fact_is_refused_and_nothing_is_written(
    store: MarkdownStorage, root: Path, wrong: dict[str, Any]
) -> None:
    put(store, "good")
    before = tree(root)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        store.apply_changes(
            {"upserts": [{"id": "new", "content": "fine"}, {"id": "bad", "content": "x", **wrong}]}, **ANN
        )
    with pytest.raises(ValueError, match=next(iter(wrong))):
        store.upsert_fact({"id": "bad", "content": "x", **wrong}, **ANN)
    assert tree(root) == before


@pytest.mark.parametrize(
    "change",
    [
        None,
        [],
        {"upsert": []},
        {"upserts": {}},
        {"upserts": [{"id": "a", "content": "x"}, {"id": "a", "content": "y"}]},
        {"upserts": [{"id": "a", "content": "x"}], "deletes": ["a"]},
        {"deletes": ["a", "a"]},
        {"deletes": ["a/b"]},
        {"deletes": [3]},
        {"deletes": ["a"], "deleteRevisions": {"b": 1}},
        {"deletes": ["a"], "deleteRevisions": {"a": 0}},
        {"upserts": [{"id": "a", "content": "x"}], "upsertRevisions": {"a": "1"}},
        {"summaries": {"facts": {}}},
    ],
)
def test_a_change_set_of_another_form_is_refused(store: MarkdownStorage, change: Any) -> None:
    with pytest.raises(InputError):
        store.apply_changes(change, **ANN)


def test_deleting_what_is_missing_is_no_error_unless_a_revision_is_expected(store: MarkdownStorage) -> None:
    assert store.delete_fact("a", **ANN)["deletedFactIds"] == []
    with pytest.raises(ConflictError) as caught:
        store.delete_fact("a", expected_fact_revision=3, **ANN)
    assert (caught.value.id, caught.value.expected, caught.value.found) == ("a", 3, 0)


def test_every_call_on_facts_names_an_agent_and_in_strict_scope_a_user(root: Path) -> None:
    with MarkdownStorage(root, strict_user_scope=True) as store:
        calls: list[Callable[..., object]] = [
            lambda **scope: store.get_fact("a", **scope),
            lambda **scope: store.list_facts(**scope),
            lambda **scope: store.upsert_fact({"id": "a", "content": "x"}, **scope),
            lambda **scope: store.delete_fact("a", **scope),
            lambda **scope: store.apply_changes({}, **scope),
            lambda user_id=None, **scope: store.search_facts(
                "x", [{"userId": user_id, "agentName": scope["agent_name"]}]
            ),
        ]
        for call in calls:
            for agent in (None, "", "a b", "abc\n", "ä"):
                with pytest.raises(ValueError, match="agent_name"):
                    call(user_id="ann", agent_name=agent)
            with pytest.raises(ValueError, match="user_id"):
                call(agent_name="default")
        wholes: list[Callable[[], object]] = [
            store.load,
            store.reload,
            store.get_summaries,
            store.clear_all,
            store.migrate,
            lambda: store.update_summaries({}),
        ]
        for whole in wholes:
            with pytest.raises(ValueError, match="user_id"):
                whole()
        assert store.save({"facts": []}, agent_name="default") is False
        assert store.users() == []


def test_an_agents_name_is_the_same_in_any_case_and_the_default_has_two_names(store: MarkdownStorage) -> None:
    put(store, "a", agent_name="Lead-Agent")
    assert ids(store, agent_name="lead-agent") == ["a"]
    assert ids(store) == []
    put(store, "b", agent_name="__default__")
    assert ids(store, agent_name="default") == ["b"]


def test_no_user_is_the_user_default(store: MarkdownStorage) -> None:
    store.upsert_fact({"id": "a", "content": "x"}, agent_name="default")
    assert store.get(Scope(), "a") is not None


def test_what_is_handed_out_is_the_callers_own(store: MarkdownStorage) -> None:
    put(store, "a", topics=["x"], mood={"deep": [1]})
    fact, document = store.get_fact("a", **ANN), store.load(**ANN)
    fact["topics"].append("y")
    fact["mood"]["deep"].append(2)
    document["user"]["workContext"]["summary"] = "changed"
    assert store.get_fact("a", **ANN)["topics"] == ["x"]
    assert store.get_fact("a", **ANN)["mood"] == {"deep": [1]}
    assert store.load(**ANN)["user"]["workContext"]["summary"] == ""


def test_facts_are_listed_by_id_in_pages_and_by_the_value_of_a_key(store: MarkdownStorage) -> None:
    store.apply_changes(
        {"upserts": [{"id": f"f{n}", "content": "x", "category": "goal" if n % 2 else "skill"} for n in range(9)]},
        **ANN,
    )
    assert ids(store) == [f"f{n}" for n in range(9)]
    page = store.list_facts(cursor=2, limit=3, **ANN)
    assert [fact["id"] for fact in page] == ["f2", "f3", "f4"]
    assert [f["id"] for f in store.list_facts({"category": "goal"}, 1, 2, **ANN)] == ["f3", "f5"]
    assert (
        len(store.list_facts({"category": "skill"}, **ANN)) == len(store.list_facts({"category": "other"}, **ANN)) == 5
    )
    assert store.list_facts({"nothing": None}, **ANN) == []
    with pytest.raises(InputError):
        store.list_facts(limit=-1, **ANN)


def test_a_lock_that_is_kept_is_an_error_to_try_again_and_reads_are_served(root: Path) -> None:
    with MarkdownStorage(root, lock_timeout=0.05) as store, MarkdownStorage(root, lock_timeout=0.05) as other:
        put(store, "a")
        with other.transaction(SCOPE):
            with pytest.raises(LockTimeoutError):
                put(store, "b")
            assert store.get_fact("a", **ANN)["content"] == "text of a"
            assert len(store.list_facts(**ANN)) == 1
        put(store, "b")


# Change and history.


def test_an_update_keeps_the_old_value_where_history_shows_it(store: MarkdownStorage, root: Path) -> None:
    put(store, "a", "Works at Alder")
    fact = store.get_fact("a", **ANN)
    changed = store.upsert_fact({**fact, "content": "Works at Birch"}, expected_fact_revision=1, **ANN)
    assert changed["upsertedFacts"][0]["revision"] == 2
    assert changed["upsertedFacts"][0]["title"] == "Works at Birch"
    assert changed["upsertedFacts"][0]["createdAt"] == fact["createdAt"]
    values = memory_over(store).history(id="a")
    assert [(value.text, value.superseded) for value in values] == [("Works at Alder", True), ("Works at Birch", False)]
    assert ids(store) == ["a"]
    assert fact_path(root, values[0].id, place="history").exists()


def test_every_byte_inside_a_content_comes_back(store: MarkdownStorage, root: Path) -> None:
    content = "a\x0cb\x1cc\x85d\u2028e\u2029f\rg\r\nh\n\n# i\n---\nj"
    put(store, "a", content, title="one\rtwo")
    store.close()
    with MarkdownStorage(root) as again:
        fact = again.get_fact("a", **ANN)
        assert (fact["content"], fact["title"]) == (content, "one two")
        again.upsert_fact({**fact, "confidence": 0.9}, expected_fact_revision=1, **ANN)
        assert again.get_fact("a", **ANN)["content"] == content


def test_a_change_of_something_else_than_the_content_makes_no_history(store: MarkdownStorage) -> None:
    put(store, "a", confidence=0.5)
    store.upsert_fact({"id": "a", "content": "text of a", "confidence": 0.9}, expected_fact_revision=1, **ANN)
    assert store.get_fact("a", **ANN)["confidence"] == 0.9
    assert len(memory_over(store).history(id="a")) == 1


def test_deleting_a_fact_brings_no_older_value_of_it_back(store: MarkdownStorage) -> None:
    put(store, "a", "first")
    for number, text in enumerate(("second", "third"), 1):
        store.upsert_fact({"id": "a", "content": text}, expected_fact_revision=number, **ANN)
    assert store.delete_fact("a", **ANN)["deletedFactIds"] == ["a"]
    assert ids(store) == []
    assert list(store.scan(SCOPE)) == []


def test_two_facts_of_one_guessed_chain_are_changed_in_one_commit(store: MarkdownStorage) -> None:
    from nanomem_core.changes import Put

    records = [Record(id, f"likes {id}", entity="taste", valid_from=n, recorded_at=n) for n, id in enumerate("ab")]
    store.commit(SCOPE, [Put(record) for record in records])
    facts = [{**fact, "content": fact["content"] + "!"} for fact in store.list_facts(**ANN)]
    delta = store.apply_changes({"upserts": facts}, **ANN)
    assert [fact["content"] for fact in delta["upsertedFacts"]] == ["likes a!", "likes b!"]
    revisions = [record.revision for record in store.scan(SCOPE) if record.chain == "taste"]
    assert len(set(revisions)) == len(revisions) == 4


def test_a_category_of_its_own_is_other_in_the_file_and_itself_in_memory(store: MarkdownStorage, root: Path) -> None:
    put(store, "a", category="knowledge")
    memory = memory_over(store)
    memory.add("Knows Greek", {"category": "skill"}, id="b")
    memory.add("Odd", {"category": "other", "categoryExtension": "x", "confidence": 0.5}, id="c")
    memory.add("Odder", {"category": " y ", "categoryExtension": 3}, id="d")
    assert "category: other\ncategoryExtension: knowledge\n" in fact_path(root, "a").read_text()
    assert "category: other\ncategoryExtension: skill\n" in fact_path(root, "b").read_text()
    store.close()
    with MarkdownStorage(root) as again:
        metadata = {record.id: dict(record.metadata) for record in again.scan(SCOPE)}
        assert metadata["a"]["category"] == "knowledge"
        assert metadata["b"] == {"category": "skill"}
        assert metadata["c"] == {"category": "other", "categoryExtension": "x", "confidence": 0.5}
        assert metadata["d"] == {"category": " y ", "categoryExtension": 3}
        assert memory_over(again).records(filter={"category": "knowledge"})[0].id == "a"
        fact = again.get_fact("b", **ANN)
        assert (fact["category"], fact["categoryExtension"]) == ("other", "skill")
        again.upsert_fact({**fact, "category": "goal"}, expected_fact_revision=1, **ANN)
        assert "categoryExtension" not in again.get_fact("b", **ANN)


def test_metadata_and_fields_that_no_fact_has_survive_an_update(store: MarkdownStorage) -> None:
    memory = memory_over(store)
    memory.add(
        "Alder", {"confidence": "high", "user_id": "x", "tags": ["a"]}, "notes.md:1", 5.0, id="a", entity="employer"
    )
    before = store.get(SCOPE, "a")
    fact = store.get_fact("a", **ANN)
    store.upsert_fact({**fact, "category": "goal"}, expected_fact_revision=1, **ANN)
    after = store.get(SCOPE, "a")
    assert {**after.metadata} == {**before.metadata, "category": "goal", "confidence": after.metadata["confidence"]}
    assert (after.entity, after.declared, after.valid_from, after.source) == ("employer", True, 5.0, "notes.md:1")


def test_a_hand_edit_is_seen_by_the_contract_and_its_revision_is_the_one_to_expect(
    store: MarkdownStorage, root: Path
) -> None:
    put(store, "a", "first")
    edit(fact_path(root, "a"), b"first", b"second")
    document = store.reload(**ANN)
    assert [(fact["content"], fact["revision"]) for fact in document["facts"]] == [("second", 2)]
    with pytest.raises(ConflictError):
        store.upsert_fact({"id": "a", "content": "third"}, expected_fact_revision=1, **ANN)
    store.upsert_fact({"id": "a", "content": "third"}, expected_fact_revision=2, **ANN)
    assert [value.text for value in memory_over(store).history(id="a")] == ["first", "second", "third"]


def test_a_file_of_another_agent_or_name_is_set_apart_and_the_others_are_served(root: Path) -> None:
    write_manifest(root)
    write_fact(root, "good")
    other = write_fact(root, "other")
    edit(other, b"agent_name: __default__", b"agent_name: somebody")
    renamed = write_fact(root, "renamed")
    renamed.rename(renamed.with_name("new-name.md"))
    with MarkdownStorage(root) as store:
        assert [fact["id"] for fact in store.reload(**ANN)["facts"]] == ["good"]
        assert {Path(damage.path).name: damage.what for damage in store.quarantined()} == {
            "other.md": "agent_name: expected '__default__'; found 'somebody'",
            "new-name.md": "id: expected 'new-name', the name of the file; found 'renamed'",
        }
        assert store.rebuild_index() == {"supported": True, "indexed": 1, "failed": 2}


# Capacity.


def test_at_the_cap_the_least_fact_goes_to_the_history_with_a_line_that_says_so(root: Path) -> None:
    with MarkdownStorage(root, max_facts=2) as store:
        put(store, "a", confidence=0.9)
        put(store, "b", "a secret", confidence=0.2)
        delta = store.upsert_fact({"id": "c", "content": "c", "confidence": 0.8}, **ANN)
        assert [fact["id"] for fact in delta["upsertedFacts"]] == ["c"]
        assert delta["evictedFactIds"] == ["b"]
        assert ids(store) == ["a", "c"]
        [line] = (root / "users/ann/agents/__default__/.nanomem/evictions.jsonl").read_text().splitlines()
        told = json.loads(line)
        assert (told["id"], told["policy"], told["score"]) == ("b", "confidence", {"confidence": 0.2})
        assert "secret" not in line
        memory = memory_over(store)
        assert [(value.text, value.status) for value in memory.history(id="b")] == [("a secret", "ended")]
        assert memory.restore("b")
        assert ids(store) == ["a", "b", "c"]


def test_at_the_cap_a_tie_favours_the_newest_and_a_person_goes_before_a_guess(root: Path) -> None:
    with MarkdownStorage(root, max_facts=2) as store:
        put(store, "z")
        put(store, "b")
        put(store, "a")
        assert ids(store) == ["a", "b"]
        put(store, "told", source="manual", confidence=0.1)
        assert ids(store) == ["a", "told"]
        delta = store.upsert_fact({"id": "guess", "content": "g", "confidence": 0.4}, **ANN)
        assert (delta["upsertedFacts"], delta["evictedFactIds"]) == ([], ["guess"])
        assert ids(store) == ["a", "told"]


def test_a_confidence_of_zero_is_the_least_and_not_taken_for_none(root: Path) -> None:
    with MarkdownStorage(root, max_facts=3) as store:
        for id, confidence in (("low", 0.3), ("zero", 0.0), ("none", None)):
            put(store, id, **({} if confidence is None else {"confidence": confidence}))
        assert "\nconfidence: 0.0\n" in fact_path(root, "zero").read_text()
        assert store.list_facts({"confidence": 0.0}, **ANN) == [store.get_fact("zero", **ANN)]
    with MarkdownStorage(root, max_facts=3) as store:
        assert memory_over(store).context().splitlines() == [
            "Facts:",
            "- [context | 0.50] text of none",
            "- [context | 0.30] text of low",
            "- [context | 0.00] text of zero",
        ]
        assert store.upsert_fact({"id": "new", "content": "x"}, **ANN)["evictedFactIds"] == ["zero"]


def test_an_update_is_not_capped(root: Path) -> None:
    with MarkdownStorage(root) as store:
        for id in "abc":
            put(store, id)
    with MarkdownStorage(root, max_facts=1) as store:
        store.upsert_fact({"id": "a", "content": "new"}, expected_fact_revision=1, **ANN)
        assert ids(store) == ["a", "b", "c"]


def test_what_was_evicted_may_be_written_again(root: Path) -> None:
    with MarkdownStorage(root, max_facts=1) as store:
        put(store, "a", confidence=0.1)
        put(store, "b", confidence=0.9)
        store.upsert_fact({"id": "a", "content": "text of a", "confidence": 1.0}, **ANN)
        assert ids(store) == ["a"]
        assert store.get(SCOPE, "a").valid_to is None


def test_creators_that_race_at_the_cap_never_exceed_it(root: Path) -> None:
    errors: list[BaseException] = []
    stored: set[str] = set()
    evicted: set[str] = set()

    def create(name: str) -> None:
        try:
            with MarkdownStorage(root, max_facts=5) as store:
                for number in range(6):
                    delta = store.upsert_fact({"id": f"{name}{number}", "content": "x"}, **ANN)
                    stored.update(fact["id"] for fact in delta["upsertedFacts"])
                    evicted.update(delta.get("evictedFactIds", ()))
                    assert len(ids(store)) <= 5
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=create, args=(name,)) for name in "xyz"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    with MarkdownStorage(root) as store:
        assert len(ids(store)) == 5
        assert set(ids(store)) == stored - evicted
        assert len(list(store.scan(SCOPE))) == 18


def test_deleting_a_fact_takes_it_out_of_the_line_of_evictions(root: Path) -> None:
    with MarkdownStorage(root, max_facts=1) as store:
        put(store, "a", confidence=0.1)
        put(store, "b", confidence=0.9)
        memory_over(store).restore("a")
        store.delete_fact("a", **ANN)
        assert (root / "users/ann/agents/__default__/.nanomem/evictions.jsonl").read_text() == ""


def test_hybrid_keeps_what_searches_find(root: Path) -> None:
    with MarkdownStorage(root, max_facts=2, eviction="hybrid-v1") as store:
        put(store, "a", "apples", createdAt="2020-01-01T00:00:00Z")
        put(store, "b", "pears", createdAt="2020-01-02T00:00:00Z")
        usage = root / "users/ann/agents/__default__/.nanomem/usage.json"
        usage.write_text("{broken")
        assert store.search_facts("apples", [SCOPE], mode="text")[0]["fact"]["id"] == "a"
        put(store, "c", "plums", source="manual")
        assert ids(store) == ["a", "c"]


# Crashes and races.

MIXED = {
    "upserts": [{"id": "a", "content": "changed", "revision": 1}, {"id": "c", "content": "new"}],
    "deletes": ["b"],
    "summaries": {"user": {"topOfMind": {"summary": "Sailing"}}},
}


def everything(store: MarkdownStorage) -> tuple[Any, ...]:
    texts = {fact["id"]: fact["content"] for fact in store.list_facts(**ANN)}
    told = store.get_summaries(user_id="ann")
    history = sorted(record.text for record in store.scan(SCOPE))
    return texts, told["user"]["topOfMind"]["summary"], told["revision"], store.head(SCOPE), history


def test_a_change_set_that_is_stopped_at_any_step_is_done_wholly_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = ({"a": "text of a", "b": "text of b"}, "", 2, 2, ["text of a", "text of b"])
    new = ({"a": "changed", "c": "new"}, "Sailing", 3, 3, ["changed", "new", "text of a"])
    seen = []
    for number in range(200):
        root = tmp_path / str(number)
        with MarkdownStorage(root) as store:
            put(store, "a")
            put(store, "b")
            with monkeypatch.context() as patch:
                count = failing_from(number, patch)
                try:
                    store.apply_changes(MIXED, **ANN)
                    acknowledged = True
                except StorageError:
                    acknowledged = False
                with MarkdownStorage(root) as reader:
                    seen.append(everything(reader))
        with MarkdownStorage(root) as again:
            assert everything(again) == seen[-1] == (new if acknowledged else old)
            again.compact()
            assert [path for path in root.rglob("*") if ".tmp" in path.name] == []
        if next(count) <= number:
            break
    assert seen[0] == old
    assert seen[-1] == new
    assert len(seen) > 10


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("loss", LOSSES)
def test_a_kill_or_a_power_cut_at_any_step_leaves_a_change_set_whole_or_not_at_all(tmp_path: Path, loss: Loss) -> None:
    root = tmp_path / "memory"
    root.mkdir()
    with DiskRecorder(root) as disk, MarkdownStorage(root) as store:
        put(store, "a")
        put(store, "b")
        old, before = everything(store), len(disk.operations)
        store.apply_changes(MIXED, **ANN)
        new, after = everything(store), len(disk.operations)
    assert old[:3] == ({"a": "text of a", "b": "text of b"}, "", 2)
    assert new[:3] == ({"a": "changed", "c": "new"}, "Sailing", 3)
    seen = []
    for length in range(before, len(disk.operations) + 1, 1 if full_run() else 2):
        place = tmp_path / str(length)
        disk.state(length, loss).write_to(place)
        for _ in range(2):
            with MarkdownStorage(place) as store:
                seen.append(everything(store))
                assert seen[-1] in ((new,) if length >= after else (old, new))
                assert store.check() == []
                store.compact()
                files = [path for path in place.rglob("*") if path.is_file()]
                assert len([path for path in files if path.suffix == ".md"]) == len(list(store.scan(SCOPE)))
                assert [path for path in files if ".tmp" in path.name] == []
    assert seen[0] == old
    assert seen[-1] == new


@pytest.mark.parametrize(
    "change",
    [
        {"upserts": [{"id": "b", "content": "new"}]},
        {"upserts": [{"id": "a", "content": "changed", "revision": 1}]},
        {"deletes": ["a"]},
    ],
    ids=["create", "update", "delete"],
)
def test_the_load_after_a_reload_that_raced_a_commit_shows_the_commit(
    root: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    with MarkdownStorage(root) as store, MarkdownStorage(root) as other:
        put(store, "a")
        other.load(**ANN)
        listings = []

        def listing(*arguments: Any) -> Any:
            found = find_files(*arguments)
            listings.append(found)
            if len(listings) == 1:
                store.apply_changes(change, **ANN)
            return found

        monkeypatch.setattr("nanomem_plugins.markdown.state.find_files", listing)
        other.reload(**ANN)
        assert listings, "the commit was made in the middle of it"
        assert other.load(**ANN) == store.load(**ANN)
        assert other.head(SCOPE) == store.head(SCOPE) == 2, "it was not taken for an edit"


def test_a_change_by_a_store_that_has_read_nothing_keeps_all_other_facts(root: Path) -> None:
    with MarkdownStorage(root) as store:
        for number in range(5):
            put(store, f"f{number}")
    with MarkdownStorage(root) as fresh:
        delta = fresh.upsert_fact({"id": "f2", "content": "changed"}, expected_fact_revision=1, **ANN)
        assert [fact["id"] for fact in delta["upsertedFacts"]] == ["f2"]
    with MarkdownStorage(root) as again:
        assert {fact["id"]: fact["content"] for fact in again.load(**ANN)["facts"]} == {
            **{f"f{number}": f"text of f{number}" for number in range(5)},
            "f2": "changed",
        }


# Clearing, leaving and coming back.


def test_clearing_leaves_nothing_but_what_is_an_agents_own(store: MarkdownStorage, root: Path) -> None:
    put(store, "a", "first")
    store.upsert_fact({"id": "a", "content": "second"}, expected_fact_revision=1, **ANN)
    put(store, "b", agent_name="coder")
    memory_over(store).add("We spoke of boats", kind="episode")
    store.update_summaries({"user": {"topOfMind": {"summary": "Sailing"}}}, user_id="ann")
    config = root / "users/ann/agents/coder/config.yaml"
    config.write_text("model: x\n")
    put(store, "other", user_id="bob")
    document = store.clear_all(user_id="ann")
    assert document == store.load(**ANN)
    assert document["facts"] == []
    assert not any(child["summary"] for child in document["user"].values())
    assert [scope for scope in store.scopes() if scope.user == "ann"] == []
    assert config.read_text() == "model: x\n"
    assert ids(store, user_id="bob") == ["other"]
    assert store.clear_all(user_id="nobody")["facts"] == []
    assert not (root / "users/nobody").exists()


def test_a_create_that_races_a_clear_comes_before_or_after_it(root: Path) -> None:
    with MarkdownStorage(root) as store, MarkdownStorage(root) as other:
        put(store, "a")
        store.clear_all(user_id="ann")
        assert ids(other) == []
        with pytest.raises(ConflictError):
            other.upsert_fact({"id": "a", "content": "from a snapshot before"}, expected_fact_revision=1, **ANN)
        with pytest.raises(ConflictError):
            other.save({"facts": [{"id": "a", "content": "x"}]}, expected_revision=1, **ANN)
        assert ids(store) == []


def test_what_is_exported_cleared_and_imported_is_the_same(store: MarkdownStorage) -> None:
    given = {
        "id": "a",
        "content": "Prefers tea\n\nwith milk",
        "title": "Drinks",
        "category": "other",
        "categoryExtension": "knowledge",
        "confidence": 0.0,
        "topics": ["tea"],
        "source": {"type": "conversation", "threadId": "thread_1"},
        "lastConfirmedAt": "2026-01-01T00:00:00Z",
        "confirmationCount": 3,
        "expected_valid_days": 30,
        "sourceError": "said coffee",
        "consolidatedFrom": ["x"],
        "createdAt": "2025-01-01T00:00:00.123456Z",
        "mood": {"deep": [1, None, 0.5]},
    }
    put(store, **given)
    put(store, "b", source={"type": "import", "threadId": None, "url": "x"})
    put(store, "c", createdAt="2025-01-01T00:00:00Z")
    store.upsert_fact({"id": "c", "content": "changed"}, expected_fact_revision=1, **ANN)
    before = store.load(**ANN)
    assert before["facts"][0].items() >= given.items()
    assert before["facts"][2]["updatedAt"] > "2026"
    store.clear_all(user_id="ann")
    assert store.save(json.loads(json.dumps(before)), **ANN)
    assert store.load(**ANN)["facts"] == before["facts"]


def test_what_a_memory_exported_is_the_same_after_clearing_and_importing(store: MarkdownStorage, root: Path) -> None:
    given = {"expected_valid_days": 30, "confirmationCount": 3, "title": "Drinks", "mood": {"deep": [1]}}
    put(store, "a", "first", source="thread_1", **given)
    store.upsert_fact({**store.get_fact("a", **ANN), "content": "second"}, expected_fact_revision=1, **ANN)
    memory = memory_over(store)
    before, values = store.load(**ANN)["facts"], [value.text for value in memory.history(id="a")]
    assert before[0].items() >= given.items()
    assert before[0]["source"] == {"type": "conversation", "threadId": "thread_1"}
    memory.export(root.parent / "all.jsonl")
    store.clear_all(user_id="ann")
    assert ids(store) == []
    memory.import_(root.parent / "all.jsonl")
    untimed = [{key: value for key, value in fact.items() if key != "updatedAt"} for fact in before]
    found = store.load(**ANN)["facts"]
    assert [{key: value for key, value in fact.items() if key != "updatedAt"} for fact in found] == untimed
    assert [value.text for value in memory.history(id="a")] == values == ["first", "second"]


def test_importing_an_older_export_over_newer_facts_restores_them(store: MarkdownStorage) -> None:
    put(store, "a", "first")
    export = store.load(**ANN)
    store.upsert_fact({"id": "a", "content": "second"}, expected_fact_revision=1, **ANN)
    put(store, "b")
    assert store.save(export, **ANN)
    [fact] = store.load(**ANN)["facts"]
    assert (fact["content"], fact["revision"]) == ("first", 3)
    assert [value.text for value in memory_over(store).history(id="a")] == ["first", "second", "first"]


# Search and prompts.


def test_a_search_finds_what_every_spelling_of_a_question_asks_for(store: MarkdownStorage) -> None:
    upserts = [{"id": f"n{n}", "content": f"note number {n}", "confidence": 0.9} for n in range(300)]
    store.apply_changes({"upserts": upserts}, **ANN)
    put(store, "port", 'Use port (x) NOT "y" AND z-index', category="constraint", confidence=0.1)
    for query in ("port (x)", '"port" x', "NOT y", "AND", "z-index", "port*", "what is [port]?", "NEAR(port)"):
        hits = store.search_facts(query, [SCOPE], 3, "text", {"category": "constraint"})
        assert [hit["fact"]["id"] for hit in hits] == ["port"], query
        assert hits[0]["matchType"] == "text"
    assert store.search_facts("note number 299", [SCOPE], 1)[0]["fact"]["id"] == "n299"
    assert len(store.search_facts("note", [SCOPE], 400, "fts5")) == 300
    assert len(store.search_facts("note port", [SCOPE], 400, "text")) == 301
    put(store, "rule", "Of what is said in passing make a note that is short, and keep it", category="constraint")
    assert store.search_facts("note", [SCOPE], 1, "text")[0]["fact"]["id"] != "rule"
    for mode in ("text", "vector", "hybrid"):
        hits = store.search_facts("note", [SCOPE], 1, mode, {"category": "constraint", "confidence": 0.5})
        assert [hit["fact"]["id"] for hit in hits] == ["rule"], "chosen before the cut"
    assert store.search_facts("", [SCOPE]) == []


def test_a_search_sees_the_asked_scopes_only_and_forgets_what_is_deleted(store: MarkdownStorage) -> None:
    put(store, "a", "green tea")
    put(store, "a", "black tea", user_id="bob")
    put(store, "old", "white wine")
    store.upsert_fact({"id": "old", "content": "red wine"}, expected_fact_revision=1, **ANN)

    def found(*scopes: Any) -> list[str]:
        return sorted(hit["fact"]["content"] for hit in store.search_facts("tea", scopes, 10, "text"))

    bob = {"userId": "bob", "agentName": "default"}
    assert found(SCOPE) == ["green tea"]
    assert found(bob) == ["black tea"]
    assert found(SCOPE, bob, SCOPE) == ["black tea", "green tea"]
    # What the fact said before leads to what it says now, and is no hit itself.
    assert [hit["fact"]["content"] for hit in store.search_facts("white", [SCOPE], 10, "text")] == ["red wine"]
    store.delete_fact("a", **ANN)
    assert found(SCOPE, bob) == ["black tea"]


def test_a_search_needs_no_file_of_those_it_derives_and_makes_damaged_ones_anew(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MarkdownStorage(root) as store:
        put(store, "a", "green tea")
        put(store, "b", "red wine")
        assert [hit["fact"]["id"] for hit in store.search_facts("tea", [SCOPE], 1)] == ["a"]
    derived = [path for path in (root / ".derived").iterdir() if path.suffix in (".json", ".bin")]
    assert {path.suffix for path in derived} == {".json", ".bin"}
    for path in derived:
        path.write_bytes(b"\xff" * 100)
    real = os.open

    def full(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if ".derived" in str(path) and flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(28, "No space left on device")
        return real(path, flags, *arguments, **options)

    with monkeypatch.context() as patch, MarkdownStorage(root) as store:
        patch.setattr(os, "open", full)
        for mode in ("text", "vector", "hybrid"):
            assert [hit["fact"]["id"] for hit in store.search_facts("tea", [SCOPE], 1, mode)] == ["a"]
    with MarkdownStorage(root) as store:
        assert [hit["fact"]["id"] for hit in store.search_facts("tea", [SCOPE], 1)] == ["a"]
    assert [path for path in derived if b"\xff" * 100 in path.read_bytes()] == []


@pytest.mark.parametrize("wrong", [{"mode": "magic"}, {"top_k": -1}, {"scopes": ["ann"]}])
def test_a_search_of_another_form_is_refused(store: MarkdownStorage, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        store.search_facts("tea", **{"scopes": [SCOPE], **wrong})


def test_a_prompt_holds_the_summaries_of_memory_json_and_the_facts(store: MarkdownStorage) -> None:
    store.update_summaries(
        {"user": {"workContext": {"summary": "Builds <boats>"}}, "history": {"recentMonths": {"summary": "Sailed"}}},
        user_id="ann",
    )
    put(store, "a", "Prefers tea", category="preference", confidence=0.9)
    put(store, "b", "Use uv", category="correction", sourceError="ran pip", confidence=0.95)
    assert memory_over(store).context() == (
        "User Context:\n- Work: Builds &lt;boats&gt;\n\n"
        "History:\n- Recent: Sailed\n\n"
        "Facts:\n- [correction | 0.95] Use uv (avoid: ran pip)\n- [preference | 0.90] Prefers tea"
    )


def test_capabilities_name_what_it_can_do(store: MarkdownStorage) -> None:
    assert store.capabilities() >= {"history", "incremental_changes", "search"}


# Options.


@pytest.mark.parametrize("options", [{"max_facts": 0}, {"eviction": "oldest"}])
def test_an_option_of_the_wrong_form_is_refused(root: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        MarkdownStorage(root, **options)


def test_files_are_private(store: MarkdownStorage, root: Path) -> None:
    put(store, "a")
    modes = {path: path.stat().st_mode & 0o777 for path in root.rglob("*")}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert atomic.read(fact_path(root, "a")) is not None
