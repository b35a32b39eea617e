"""People, and DeerMem, change files; the next read knows."""

import json
import os
import shutil
import threading

import pytest

from nanomem_core.changes import Delete, Put
from nanomem_core.errors import ConflictError, CorruptionError
from nanomem_core.fileio.locks import Lock
from nanomem_core.memory import Memory
from nanomem_core.testing.samples import NOON, assert_columns_agree

from .material import ANN, deermem_fact, edit, edit_by_rename, fact, fact_path, opened, texts, write_fact


@pytest.fixture
def root(tmp_path):
    return tmp_path / "memory"


@pytest.fixture
def storage(root):
    with opened(root) as storage:
        yield storage


@pytest.mark.parametrize("change", [edit, edit_by_rename])
def test_an_edited_text_is_the_new_value_and_the_old_one_stays_in_history(storage, root, change):
    storage.commit(ANN, [Put(fact("job", "Works at Alder", entity="employer", declared=True))])
    path = fact_path(root, "job")
    change(path, b"Works at Alder\n", b"Works at Birch\n")
    as_edited = path.read_bytes()
    found = storage.get(ANN, "job")
    assert (found.text, found.version, found.revision, found.entity) == ("Works at Birch", 2, 2, "employer")
    assert found.valid_from == pytest.approx(path.stat().st_mtime)
    old = next(record for record in storage.scan(ANN) if record.id != "job")
    assert (old.text, old.revision, old.valid_from) == ("Works at Alder", 1, NOON)
    assert storage.head(ANN) == 2
    assert path.read_bytes() == as_edited, "an editor may hold the file open"
    assert fact_path(root, old.id, place="history").exists()
    assert_columns_agree(storage, ANN)


def test_an_edit_of_a_fact_without_a_chain_begins_one(storage, root):
    storage.commit(ANN, [Put(fact("fact_1", "Likes tea")), Put(fact("fact_2"))])
    edit(fact_path(root, "fact_1"), b"\nLikes tea\n", b"\nLikes coffee\n")
    with Memory(storage, user="ann") as memory:
        assert [entry["text"] for entry in memory.history(id="fact_1")] == ["Likes tea", "Likes coffee"]
        assert memory.search("likes", as_of=NOON + 1)[0].text == "Likes tea"
        assert memory.get("fact_2").superseded is None


def test_an_edit_of_a_guessed_value_leaves_the_other_facts_of_its_chain_where_they_are(storage, root):
    storage.commit(ANN, [Put(fact("a", "Likes tea", entity="drink")), Put(fact("b", "Likes water", entity="drink"))])
    edit(fact_path(root, "a"), b"\nLikes tea\n", b"\nLikes coffee\n")
    assert sorted(texts(storage).values()) == ["Likes coffee", "Likes tea", "Likes water"]
    assert [fact_path(root, id).exists() for id in "ab"] == [True, True]
    assert len(list((root / "users/ann/agents/__default__/history").rglob("*.md"))) == 1


def test_an_edit_of_the_front_matter_is_a_new_version_of_the_same_value(storage, root):
    storage.commit(ANN, [Put(fact("a", metadata={"confidence": 0.5, "tags": ["x"]}))])
    edit(fact_path(root, "a"), b"confidence: 0.5", b"confidence: 0.75")
    found = storage.get(ANN, "a")
    assert (found.version, found.revision, found.metadata) == (2, 1, {"confidence": 0.75, "tags": ["x"]})
    assert len(texts(storage)) == 1


def test_other_line_ends_are_no_new_value(storage, root):
    storage.commit(ANN, [Put(fact("a", "one\ntwo"))])
    path = fact_path(root, "a")
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert (storage.get(ANN, "a").text, len(texts(storage))) == ("one\r\ntwo", 1)


def test_a_file_that_is_touched_or_saved_unchanged_is_no_commit(storage, root):
    storage.commit(ANN, [Put(fact("a"))])
    path = fact_path(root, "a")
    os.utime(path, ns=(1, 1))
    assert (storage.get(ANN, "a").version, storage.head(ANN)) == (1, 1)
    edit_by_rename(path, b"nothing", b"nothing")
    assert (storage.get(ANN, "a").version, storage.head(ANN)) == (1, 1)


def test_an_edit_of_the_same_length_within_one_tick_of_the_clock_is_noticed(storage, root):
    for number in range(20):
        storage.commit(ANN, [Put(fact("a", f"text {number:03}"))])
        path = fact_path(root, "a")
        times = path.stat()
        edit(path, f"\ntext {number:03}\n".encode(), b"\nother 00\n")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert storage.get(ANN, "a").text == "other 00"


def test_a_fact_that_is_edited_again_and_again_keeps_every_value(storage, root):
    storage.commit(ANN, [Put(fact("a", "value 0", entity="x", declared=True))])
    for number in range(4):
        edit(fact_path(root, "a"), b"\nvalue %d\n" % number, b"\nvalue %d\n" % (number + 1))
        assert storage.get(ANN, "a").version == number + 2
    chain = sorted((r.revision, r.text) for r in storage.scan(ANN))
    assert chain == [(number + 1, f"value {number}") for number in range(5)]


def test_edits_and_writes_alternate_without_loss(storage, root):
    storage.commit(ANN, [Put(fact("a", "by the library", entity="x", declared=True))])
    edit(fact_path(root, "a"), b"\nby the library\n", b"\nby hand\n")
    edited = storage.get(ANN, "a")
    storage.commit(ANN, [Put(edited.__class__.from_dict(edited.to_dict() | {"text": "again"}), expect=2)])
    found = storage.get(ANN, "a")
    assert (found.text, found.version, found.revision) == ("again", 3, 2)
    assert "by the library" in texts(storage).values()
    with opened(root) as other:
        assert texts(other) == texts(storage)
        assert list(other.scan(ANN)) == list(storage.scan(ANN))


def test_an_added_file_is_a_fact_whatever_folder_of_facts_it_lies_in(storage, root):
    storage.commit(ANN, [Put(fact("a"))])
    (root / "users/ann/agents/__default__/facts/mine.md").write_text("---\nid: mine\n---\nI play chess.\n")
    write_fact(root, "fact_9", content="By DeerMem.")
    assert texts(storage) == {"a": "text of a", "mine": "I play chess.", "fact_9": "By DeerMem."}
    assert storage.head(ANN) == 2
    assert_columns_agree(storage, ANN)


def test_a_removed_file_is_a_deleted_fact_and_the_value_before_it_holds_again(storage, root):
    storage.commit(ANN, [Put(fact("a", "old", entity="x", declared=True))])
    storage.commit(ANN, [Put(fact("b", "new", entity="x", declared=True, valid_from=NOON + 1))])
    assert not fact_path(root, "a").exists()
    fact_path(root, "b").unlink()
    assert (texts(storage), storage.head(ANN)) == ({"a": "old"}, 3)
    assert fact_path(root, "a").exists()
    assert not fact_path(root, "a", place="history").exists()


def test_a_renamed_file_is_set_aside_by_name_until_its_id_is_changed_too(storage, root):
    storage.commit(ANN, [Put(fact("a"))])
    path = fact_path(root, "a")
    other = path.rename(path.with_name("b.md"))
    assert texts(storage) == {}
    [damage] = storage.quarantined()
    assert (damage.path, damage.lost) == (str(other), False)
    assert "expected 'b', the name of the file; found 'a'" in damage.what
    edit(other, b"id: a\n", b"id: b\n")
    assert texts(storage) == {"b": "text of a"}
    assert storage.check() == []


BAD = {
    "README.md": b"# About these files\n",
    "f1 (conflicted copy).md": deermem_fact("fact_1"),
    "half.md": deermem_fact("half", confidence="0.9.")[:-40],
    "nothing.md": b"",
    "yaml.md": b"---\nid: [yaml\n---\nx\n",
    "twice.md": b"---\nid: twice\nid: other\n---\nx\n",
    "object.md": b"---\nid: object\nx: !!python/object/apply:os.getcwd []\n---\nx\n",
    "bomb.md": b"---\nid: bomb\na: &a [x, x]\nb: [*a, *a]\n---\nx\n",
    "noid.md": b"---\ntitle: x\n---\nx\n",
    "other.md": deermem_fact("other", agent="somebody-else"),
    "user.md": deermem_fact("user", user="bob"),
    "latin.md": b"---\nid: latin\n---\ncaf\xe9\n",
    "archived.md": deermem_fact("archived").replace(b"status: active", b"status: archived"),
    "certain.md": deermem_fact("certain", confidence="95"),
    "empty.md": deermem_fact("empty", content=""),
}


def test_a_bad_file_is_listed_with_its_reason_hides_nothing_and_is_never_touched(storage, root):
    storage.commit(ANN, [Put(fact("a"))])
    folder = fact_path(root, "a").parent
    for name, data in BAD.items():
        (folder / name).write_bytes(data)
    assert texts(storage) == {"a": "text of a"}
    storage.commit(ANN, [Put(fact("b"))])
    storage.compact()
    storage.repair()
    reasons = {damage.path.rpartition("/")[2]: damage.what for damage in storage.check()}
    assert reasons.keys() == BAD.keys()
    assert all(reasons.values())
    assert {name: (folder / name).read_bytes() for name in BAD} == BAD
    assert {path.name for path in folder.iterdir()} == {*BAD, "a.md"}


@pytest.mark.skipif(os.name == "nt", reason="making links needs rights there")
def test_links_are_not_followed(storage, root, tmp_path):
    storage.commit(ANN, [Put(fact("a"))])
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_bytes(deermem_fact("secret"))
    folder = fact_path(root, "a").parent
    (folder / "secret.md").symlink_to(outside / "secret.md")
    (folder.parent / "more").symlink_to(outside)
    assert texts(storage) == {"a": "text of a"}
    assert ["link" in damage.what for damage in storage.check()] == [True]
    storage.erase(ANN)
    assert (outside / "secret.md").exists()


def test_a_half_edited_fact_keeps_its_last_good_value_until_it_is_good_again(storage, root):
    storage.commit(ANN, [Put(fact("a", "good", entity="x", declared=True))])
    path = fact_path(root, "a")
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    assert texts(storage) == {"a": "good"}
    assert [damage.id for damage in storage.check()] == ["a"]
    with pytest.raises(CorruptionError, match=r"can't be read"):
        storage.commit(ANN, [Put(fact("a", "by the library"))])
    assert path.read_bytes() == good[: len(good) // 2]
    path.write_bytes(good.replace(b"\ngood\n", b"\nbetter\n"))
    assert storage.get(ANN, "a").text == "better"
    assert (sorted(texts(storage).values()), storage.check()) == (["better", "good"], [])


def test_what_is_deleted_while_it_is_half_edited_is_gone(storage, root):
    storage.commit(ANN, [Put(fact("a", "zebra"))])
    path = fact_path(root, "a")
    path.write_bytes(path.read_bytes()[:-20])
    storage.get(ANN, "a")
    storage.commit(ANN, [Delete("a")])
    assert not path.exists()
    assert (texts(storage), storage.check()) == ({}, [])


def test_a_write_never_passes_over_an_edit_that_no_read_has_seen(root):
    with opened(root, check="second") as storage:
        storage.commit(ANN, [Put(fact("a", "first", entity="x", declared=True))])
        edit(fact_path(root, "a"), b"\nfirst\n", b"\nby hand\n")
        with pytest.raises(ConflictError):
            storage.commit(ANN, [Put(fact("a", "second"), expect=1)])
        edit(fact_path(root, "a"), b"\nby hand\n", b"\nby hand, again\n")
        storage.commit(ANN, [Put(fact("a", "third", entity="x", declared=True))])
        assert sorted(texts(storage).values()) == ["by hand", "first", "third"]


def test_a_new_id_that_somebody_put_into_the_folder_first_is_not_overwritten(root):
    with opened(root, check="second") as storage:
        storage.commit(ANN, [Put(fact("a"))])
        write_fact(root, "fact_1", content="by DeerMem")
        with pytest.raises(ConflictError):
            storage.commit(ANN, [Put(fact("fact_1"), expect=0)])
        assert storage.get(ANN, "fact_1").text == "by DeerMem"


def test_edits_are_looked_for_once_a_second_and_at_once_by_reload(root):
    with opened(root, check="second") as storage:
        storage.commit(ANN, [Put(fact("a", metadata={"n": 1}))])
        assert storage.get(ANN, "a").metadata == {"n": 1}
        edit(fact_path(root, "a"), b"n: 1", b"n: 2")
        with storage._user("ann").reading("default", force=True):
            pass
        assert storage.get(ANN, "a").metadata == {"n": 2}


def test_what_was_edited_while_nobody_was_there_is_noticed_and_kept(root):
    with opened(root) as storage:
        storage.commit(ANN, [Put(fact(id, f"first {id}", entity=id, declared=True)) for id in "abc"])
    edit(fact_path(root, "a"), b"\nfirst a\n", b"\nsecond a\n")
    fact_path(root, "b").unlink()
    write_fact(root, "fact_1")
    with opened(root) as storage:
        assert sorted(texts(storage).values()) == ["Project uses Python 3.12.", "first a", "first c", "second a"]
        assert storage.head(ANN) == 2
        assert storage.get(ANN, "a").version == 2
        expected = list(storage.scan(ANN))
    with opened(root) as storage:
        assert list(storage.scan(ANN)) == expected
        assert storage.head(ANN) == 2


def test_the_first_read_of_a_store_takes_up_what_was_edited(root):
    with opened(root, check="second") as storage:
        storage.commit(ANN, [Put(fact("a", "first", entity="x", declared=True))])
    edit(fact_path(root, "a"), b"\nfirst\n", b"\nsecond\n")
    with opened(root, check="second") as storage:
        assert sorted(texts(storage).values()) == ["first", "second"]
        assert storage.get(ANN, "a").version == 2


def test_the_folder_of_ours_may_be_lost_with_no_more_than_some_counters(root):
    with opened(root) as storage:
        storage.commit(ANN, [Put(fact("a", "old", entity="x", declared=True))])
        storage.commit(ANN, [Put(fact("b", "new", entity="x", declared=True, valid_from=NOON + 1)), Put(fact("c"))])
        storage.commit(ANN, [Put(fact("e", kind="episode"))])
        expected = [record for record in storage.scan(ANN) if record.kind == "fact"]
    shutil.rmtree(root / "users/ann/.nanomem")
    shutil.rmtree(root / "users/ann/agents/__default__/.nanomem")
    shutil.rmtree(root / ".derived")
    with opened(root) as storage:
        assert list(storage.scan(ANN)) == expected
        storage.commit(ANN, [Put(fact("d"))])
        assert_columns_agree(storage, ANN)


def test_a_reader_shows_an_edit_even_while_a_writer_holds_the_lock(storage, root):
    storage.commit(ANN, [Put(fact("a", "first"))])
    with Lock(root / "users/ann/.memory.lock"):
        edit(fact_path(root, "a"), b"\nfirst\n", b"\nsecond\n")
        assert storage.get(ANN, "a").text == "second"
        assert_columns_agree(storage, ANN)
        assert storage.head(ANN) == 1
    assert storage.get(ANN, "a").version == 2
    assert storage.head(ANN) == 2
    assert_columns_agree(storage, ANN)


def test_a_read_only_store_shows_edits_and_writes_nothing(root):
    with opened(root) as storage:
        storage.commit(ANN, [Put(fact("a", "first")), Put(fact("b"))])
    before = set(root.rglob("*"))
    with opened(root, read_only=True) as storage:
        edit(fact_path(root, "a"), b"\nfirst\n", b"\nsecond\n")
        fact_path(root, "b").unlink()
        assert sorted(texts(storage).values()) == ["first", "second"], "the value before, too"
        assert_columns_agree(storage, ANN)
    assert set(root.rglob("*")) == before - {fact_path(root, "b")}


def test_an_edit_is_shown_as_the_commit_will_have_it_before_anybody_can_write_one(root):
    with opened(root) as storage:
        storage.commit(ANN, [Put(fact("a", "first", entity="city", declared=True)), Put(fact("b")), Put(fact("c"))])
    edit(fact_path(root, "a"), b"\nfirst\n", b"\nsecond\n")
    edit(fact_path(root, "b"), b"\ntext of b\n", b"\nanother text of b\n")
    with Memory(opened(root, read_only=True), user="ann") as memory:
        shown = list(memory.storage.scan(ANN))
        assert memory.storage.head(ANN) == 1
        assert [(value.text, value.superseded) for value in memory.history("city")] == [
            ("first", True),
            ("second", False),
        ]
        assert memory.storage.get_fact("b", user_id="ann", agent_name="default")["revision"] == 2
    with opened(root) as storage:
        assert list(storage.scan(ANN)) == shown
        assert storage.head(ANN) == 2


def test_an_edit_is_one_commit_whoever_notices_it(root):
    with opened(root) as first, opened(root) as second:
        first.commit(ANN, [Put(fact("a", "first", entity="x", declared=True))])
        assert texts(second) == {"a": "first"}
        edit(fact_path(root, "a"), b"\nfirst\n", b"\nsecond\n")
        threads = [threading.Thread(target=texts, args=(storage,)) for storage in (first, second) * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert list(first.scan(ANN)) == list(second.scan(ANN))
        assert (first.head(ANN), second.head(ANN), len(texts(first))) == (2, 2, 2)


def test_other_agents_and_the_manifest_are_not_touched_by_an_edit(storage, root):
    storage.commit(ANN, [Put(fact("a", "first"))])
    before = json.loads((root / "users/ann/memory.json").read_text())
    edit(fact_path(root, "a"), b"\nfirst\n", b"\nsecond\n")
    storage.get(ANN, "a")
    assert json.loads((root / "users/ann/memory.json").read_text()) == before
