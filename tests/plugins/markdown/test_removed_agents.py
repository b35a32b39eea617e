"""An agent whose folder somebody removed stays away, whatever was computed before is written late."""

import shutil

import pytest

from nanomem_core.changes import Delete, Put
from nanomem_core.errors import ConflictError
from nanomem_core.memory import Memory
from nanomem_core.records import Scope
from nanomem_core.testing.samples import assert_columns_agree

from .material import ANN, fact, opened, texts, write_fact

CODER = {"user_id": "ann", "agent_name": "coder"}
SCOPE = Scope("ann", "coder")


@pytest.fixture
def root(tmp_path):
    return tmp_path / "memory"


@pytest.fixture
def storage(root):
    with opened(root) as storage:
        yield storage


def folder(root, agent="coder"):
    return root / "users/ann/agents" / agent


LATE = {
    "upsert_fact": lambda store, old: store.upsert_fact({**old["facts"][0], "content": "late"}, None, 1, **CODER),
    "delete_fact": lambda store, old: store.delete_fact("a", None, 1, **CODER),
    "apply_changes": lambda store, old: store.apply_changes(
        {"upserts": [{"id": "new", "content": "late"}]}, old["revision"], **CODER
    ),
    "save": lambda store, old: store.save(old, expected_revision=old["revision"], **CODER),
    "commit": lambda store, old: store.commit(SCOPE, [Put(fact("a", "late"), expect=1)]),
    "commit at a head": lambda store, old: store.commit(SCOPE, [Put(fact("new", "late"))], expect_head=1),
}


@pytest.mark.parametrize("late", LATE.values(), ids=LATE.keys())
@pytest.mark.parametrize("state", ["open", "opened later", "beside another"])
def test_the_folder_of_an_agent_that_was_deleted_with_an_update_pending_does_not_come_back(root, late, state):
    store = writer = opened(root)
    store.upsert_fact({"id": "a", "content": "x"}, **CODER)
    store.upsert_fact({"id": "b", "content": "y"}, user_id="ann", agent_name="default")
    old = store.load(**CODER)
    if state == "opened later":
        writer.close()
    if state != "open":
        store = opened(root)
    if state == "beside another":
        assert store.load(**CODER) == old
    shutil.rmtree(folder(root))
    with store:
        with pytest.raises(ConflictError):
            late(store, old)
        assert store.load(**CODER)["facts"] == []
        assert not folder(root).exists()
        assert_columns_agree(store, SCOPE)
        assert texts(store) == {"b": "y"}
        store.compact()
    writer.close()
    assert not folder(root).exists()
    with opened(root) as again:
        assert again.scopes() == [ANN]


def test_reading_and_deleting_bring_no_folder_back_either(storage, root):
    with Memory(storage, user="ann", agent="coder") as memory:
        id = memory.add("Likes tea", entity="drink")
        memory.search("tea")
        shutil.rmtree(folder(root))
        assert memory.search("tea") == []
        assert memory.history("drink") == []
        assert not memory.update(id, "late")
        assert memory.delete(id) == 0
    assert not folder(root).exists()


def test_an_agent_of_that_name_may_begin_anew(storage, root):
    storage.commit(SCOPE, [Put(fact("a", "old"))])
    storage.columns(SCOPE)
    shutil.rmtree(folder(root))
    storage.commit(SCOPE, [Put(fact("a", "new"), expect=0)])
    assert (texts(storage, SCOPE), storage.head(SCOPE), storage.get(SCOPE, "a").version) == ({"a": "new"}, 1, 1)
    assert_columns_agree(storage, SCOPE)


def test_an_agent_that_only_deermem_has_written_is_let_go_too(storage, root):
    write_fact(root, "fact_1", agent="coder")
    assert len(texts(storage, SCOPE)) == 1
    assert_columns_agree(storage, SCOPE)
    shutil.rmtree(folder(root))
    assert texts(storage, SCOPE) == {}
    assert_columns_agree(storage, SCOPE)
    assert not folder(root).exists()


def test_who_removes_the_facts_of_an_agent_but_not_its_folder_has_removed_facts(storage, root):
    storage.commit(SCOPE, [Put(fact("a"))])
    shutil.rmtree(folder(root) / "facts")
    assert texts(storage, SCOPE) == {}
    assert storage.head(SCOPE) == 2


@pytest.mark.parametrize("agent", ["Helper", "a_b", "用户"])
def test_a_refused_write_makes_no_folder_for_an_agent_that_has_none(storage, root, agent):
    storage.commit(ANN, [Put(fact("a"))])
    before = {path for path in root.rglob("*") if path.is_dir()}
    with pytest.raises(ConflictError):
        storage.commit(Scope("ann", agent), [Delete("a", expect=1)])
    assert {path for path in root.rglob("*") if path.is_dir()} == before


def test_columns_are_those_after_an_erasure_by_another_process_also_where_deermem_alone_had_written(root):
    write_fact(root, "fact_1")
    with opened(root) as first, opened(root) as second:
        assert len(first.columns(ANN)) == len(second.columns(ANN)) == 1
        first.erase(ANN)
        assert_columns_agree(first, ANN)
        assert_columns_agree(second, ANN)
