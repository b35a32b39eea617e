"""Whose folder is whose, on every disk."""

import hashlib
import json
import os
from contextlib import suppress
from functools import partial

import pytest

from nanomem_core.changes import Put
from nanomem_core.errors import InputError, StorageError
from nanomem_core.memory import Memory
from nanomem_core.records import Scope
from nanomem_core.testing.samples import HOSTILE_NAMES
from nanomem_plugins.markdown.layout import Layout, agent_folder, document_path, is_plain_id

from .material import deermem_fact, fact, opened, texts, write_fact


@pytest.fixture
def root(tmp_path):
    return tmp_path / "memory"


def folder_of_deermem(user):
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "-" for c in user)
    return plain if plain == user else f"{plain}-{hashlib.sha256(user.encode()).hexdigest()[:16]}"


@pytest.mark.parametrize("user", ["ann", "ann-2", "user_7", "ann@example.org", "用户-一", "a/b", "hi..there"])
def test_the_folder_of_a_user_is_the_one_that_deermem_uses(root, user):
    assert Layout(root).user(user).path == root / "users" / folder_of_deermem(user)


@pytest.mark.parametrize("user", ["Ann", "con", "x" * 300, "C:\\temp", "a-b-0123456789abcdef"])
def test_a_name_that_deermem_would_let_collide_gets_a_folder_of_its_own(root, user):
    folder = Layout(root).user(user).path
    assert folder.parent == root / "users"
    assert folder.name != folder_of_deermem(user)
    assert folder.name == folder.name.lower()


def test_no_two_names_share_a_folder_not_even_where_case_is_ignored(root):
    layout = Layout(root)
    names = [*HOSTILE_NAMES, *(folder_of_deermem(name) for name in HOSTILE_NAMES)]
    with opened(root) as storage:
        for name in dict.fromkeys(names):
            storage.commit(Scope(name), [Put(fact("a", name))])
        folders = [layout.user(name).path.name.casefold() for name in dict.fromkeys(names)]
        assert len(set(folders)) == len(folders)
    with opened(root) as storage:
        assert {scope.user for scope in storage.scopes()} == set(names)
        assert all(texts(storage, Scope(name)) == {"a": name} for name in names)


LINKED = [
    "users", "users/ann", "users/ann/.nanomem", "users/ann/.nanomem/journal", "users/ann/.nanomem/queue",
    "users/ann/.memory.lock", "users/ann/memory.json", "users/ann/agents", "users/ann/agents/__default__",
    "users/ann/agents/__default__/facts", "users/ann/agents/__default__/facts/{shard}",
    "users/ann/agents/__default__/facts/{shard}/a.md",
    "users/ann/agents/__default__/history", "users/ann/agents/__default__/.nanomem", "users/ann/.recovery", ".derived",
]  # fmt: skip


@pytest.mark.skipif(os.name == "nt", reason="making links needs rights there")
@pytest.mark.parametrize("place", LINKED)
def test_nothing_is_written_or_deleted_behind_a_link(root, tmp_path, place):
    outside = tmp_path / "outside"
    with Memory(opened(root), user="ann") as memory:
        memory.add("first", id="a", entity="city")
        memory.add("second", id="b", entity="city")
        memory.delete("b")
    path = root / place.format(shard=hashlib.sha256(b"a").hexdigest()[:2])
    if path.exists():
        path.rename(outside)
    else:
        (outside / ("0" * 32)).mkdir(parents=True)
        (outside / ("0" * 32) / "memory.json").write_text("{}")
    path.symlink_to(outside)
    before = {file: file.stat().st_mtime_ns for file in (outside, *outside.rglob("*"))}
    with Memory(opened(root), user="ann") as memory:
        store = memory.storage
        for call in (
            partial(memory.search, "first"),
            partial(memory.add, "third", entity="city"),
            partial(memory.delete, "a"),
            partial(store.update_summaries, {"user": {"topOfMind": {"summary": "x"}}}, user_id="ann"),
            store.check,
            store.compact,
            partial(store.clear_all, user_id="ann"),
            partial(store.erase, Scope("ann")),
        ):
            with suppress(StorageError):
                call()
    assert {file: file.stat().st_mtime_ns for file in (outside, *outside.rglob("*"))} == before


def test_no_name_leaves_a_trace_outside_the_root(root, tmp_path):
    (tmp_path / "sentinel").write_text("here first")
    for name in HOSTILE_NAMES:
        with opened(root) as storage:
            for scope in (Scope(name), Scope("ann", name)):
                storage.commit(scope, [Put(fact("a", name))])
                assert texts(storage, scope) == {"a": name}
                storage.erase(scope)
                assert texts(storage, scope) == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["memory", "sentinel"]


@pytest.mark.parametrize("user", ["Ann", "a-b-0123456789abcdef", "ann@example.org", "NUL"])
def test_a_folder_that_deermem_made_is_used_as_it_is(root, user):
    folder = root / "users" / folder_of_deermem(user)
    path = folder / "agents/__default__/facts/ab/fact_1.md"
    path.parent.mkdir(parents=True)
    path.write_bytes(deermem_fact("fact_1", user=json.dumps(user)))
    with opened(root) as storage:
        assert storage.scopes() == [Scope(user)]
        assert texts(storage, Scope(user)) == {"fact_1": "Project uses Python 3.12."}
        storage.commit(Scope(user), [Put(fact("b"))])
    assert [entry.name for entry in (root / "users").iterdir()] == [folder.name]


def test_a_user_whose_name_is_the_hashed_folder_of_another_is_kept_apart(root):
    other = folder_of_deermem("a.b")
    with opened(root) as storage:
        storage.commit(Scope("a.b"), [Put(fact("x", "of a.b"))])
        storage.commit(Scope(other), [Put(fact("x", "of the other"))])
        assert texts(storage, Scope("a.b")) == {"x": "of a.b"}
        assert texts(storage, Scope(other)) == {"x": "of the other"}


def test_files_without_a_user_are_those_of_the_user_default(root):
    path = root / "agents/__default__/facts/ab/fact_1.md"
    path.parent.mkdir(parents=True)
    path.write_bytes(deermem_fact("fact_1", user="null"))
    with opened(root) as storage:
        assert storage.scopes() == [Scope()]
        storage.commit(Scope(), [Put(fact("fact_2"))])
        storage.commit(Scope("ann"), [Put(fact("fact_3"))])
        assert set(storage.scopes()) == {Scope(), Scope("ann")}
    assert b"\nuser_id: null\n" in (root / document_path("agents/__default__", "facts", "fact_2")).read_bytes()
    assert (root / "memory.json").exists()


def test_agents_lie_where_deermem_looks_for_them_and_all_others_where_it_does_not(root):
    user = Layout(root).user("ann")
    assert agent_folder(user, "default") == "agents/__default__"
    assert agent_folder(user, "research-agent") == "agents/research-agent"
    assert agent_folder(user, "__default__") == "agents/default"
    for agent in ("Helper", "a_b", "con", "用户", "x" * 300, "lead-agent", ".."):
        assert agent_folder(user, agent).startswith(".nanomem/agents/")
    (user.path / "agents/lead-agent").mkdir(parents=True)
    (user.path / "agents/lead-agent/config.yaml").touch()
    assert agent_folder(user, "lead-agent") == "agents/lead-agent"


def test_an_agent_that_deermem_knows_as_default_is_not_the_default_one(root):
    write_fact(root, "fact_1", content="of the one without a name")
    write_fact(root, "fact_1", agent="default", content="of the one called default")
    with opened(root) as storage:
        assert texts(storage, Scope("ann")) == {"fact_1": "of the one without a name"}
        assert texts(storage, Scope("ann", "__default__")) == {"fact_1": "of the one called default"}


def test_ids_of_one_prefix_lie_in_the_folder_of_their_hash():
    for id in ("fact_1", "fact_2", "Fact"):
        shard = hashlib.sha256(id.encode()).hexdigest()[:2]
        assert document_path("agents/x", "facts", id) == f"agents/x/facts/{shard}/{id}.md"


def test_only_what_deermem_can_name_and_read_lies_in_its_folders(root):
    odd = [name for name in HOSTILE_NAMES if not is_plain_id(name)]
    records = [fact("fact_1"), fact("blank", " \n"), fact("e1", kind="episode"), *(fact(id) for id in odd)]
    with opened(root) as storage:
        storage.commit(Scope("ann"), [Put(record) for record in records])
        assert [path.stem for path in (root / "users/ann/agents/__default__/facts").rglob("*.md")] == ["fact_1"]
        assert {record.id for record in storage.scan(Scope("ann"))} == {record.id for record in records}


def test_ids_that_differ_in_case_only_never_share_a_name_in_a_folder(root):
    scope = Scope("ann")
    shard = {}
    for number in range(10_000):
        key = hashlib.sha256(f"F{number}".encode()).hexdigest()[:2]
        if hashlib.sha256(f"f{number}".encode()).hexdigest()[:2] == key:
            shard = {f"F{number}", f"f{number}"}
            break
    with opened(root) as storage:
        storage.commit(scope, [Put(fact(id)) for id in sorted(shard)])
        assert set(texts(storage, scope)) == shard
    paths = [str(path).casefold() for path in root.rglob("*.md")]
    assert len(set(paths)) == len(paths) == 2


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "memory").write_text("")
    with pytest.raises(InputError, match="expected a folder"):
        opened(tmp_path / "memory")
