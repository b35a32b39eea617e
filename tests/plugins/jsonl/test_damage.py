"""Lines that can't be read hide nothing else, are told of once, and are set aside, never erased."""

import json
import os
import warnings

import pytest

from nanomem_core.changes import Delete
from nanomem_core.errors import CorruptionError, NotFoundError, ReadOnlyError
from nanomem_plugins.jsonl.storage import JsonlStorage

from .material import ANA, FACT, below, fact, lines, texts, write_lines

PATH = "semantic/ana_semantic.jsonl"


@pytest.fixture
def root(tmp_path):
    with JsonlStorage(tmp_path) as storage:
        storage.commit(ANA, [fact(f"f{i}", f"text {i}") for i in (1, 2, 3)])
    return tmp_path


def damaged(root, change):
    path = root / PATH
    path.write_bytes(change(path.read_bytes()))


def quarantined(root):
    path = root / (PATH + ".quarantine")
    return [piece["bytes"] for piece in lines(path)] if path.exists() else []


def test_a_missing_final_newline_loses_nothing(root):
    damaged(root, lambda data: data[:-1])
    with JsonlStorage(root) as storage:
        assert texts(storage) == ["text 1", "text 2", "text 3"]
        assert storage.check() == []
        storage.commit(ANA, [fact("f4", "text 4")])
    with JsonlStorage(root) as storage:
        assert texts(storage) == [f"text {i}" for i in (1, 2, 3, 4)]
    assert len(lines(root / PATH)) == 4
    assert quarantined(root) == []


def test_a_cut_off_record_is_told_of_once_and_kept_aside(root):
    damaged(root, lambda data: data[: data.index(b"text 3") + 3])
    torn = (root / PATH).read_bytes().splitlines()[-1]
    storage = JsonlStorage(root)
    with pytest.warns(RuntimeWarning, match=r"ana_semantic\.jsonl, line 3") as warned:
        assert texts(storage) == ["text 1", "text 2"]
    assert len(warned) == 1
    (damage,) = storage.check()
    assert (damage.path, damage.length, damage.id, damage.lost) == (str(root / PATH), len(torn), "f3", True)
    assert (root / PATH).read_bytes()[damage.offset :] == torn
    assert quarantined(root) == []
    storage.commit(ANA, [fact("f4", "text 4")])
    storage.close()
    with JsonlStorage(root) as storage:
        assert texts(storage) == ["text 1", "text 2", "text 4"]
        assert storage.check() == []
    assert [item["memory_id"] for item in lines(root / PATH)] == ["f1", "f2", "f4"]
    assert quarantined(root) == [torn.decode()]


def test_glued_records_are_both_read(root):
    damaged(root, lambda data: data.replace(b"}\n{", b"}{", 1))
    with JsonlStorage(root) as storage:
        assert texts(storage) == ["text 1", "text 2", "text 3"]
        storage.commit(ANA, [fact("f4", "text 4")])
        assert texts(storage) == [f"text {i}" for i in (1, 2, 3, 4)]
    assert len(lines(root / PATH)) == 4


def test_a_record_glued_to_a_cut_off_one_is_read(root):
    def glue(data):
        first, second, third = data.splitlines(keepends=True)
        return first[:60] + second + third

    damaged(root, glue)
    with pytest.warns(RuntimeWarning, match="line 1"), JsonlStorage(root) as storage:
        assert texts(storage) == ["text 2", "text 3"]


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    "junk", [b"\xff\xfe\x00", b"17", b"[1, 2]", b'"text"', b"{}", b'{"memory_id": "f9"}', b"[" * 9999]
)
def test_a_bad_line_anywhere_hides_only_itself(root, number, junk):
    def insert(data):
        found = data.splitlines(keepends=True)
        found.insert(number, junk + b"\n")
        return b"".join(found)

    damaged(root, insert)
    with JsonlStorage(root) as storage:
        with pytest.warns(RuntimeWarning, match=f"line {number + 1}"):
            assert texts(storage) == ["text 1", "text 2", "text 3"]
        (damage,) = storage.repair()
        assert damage.length == len(junk)
        assert (storage.repair(), storage.check()) == ([], [])
        assert texts(storage) == ["text 1", "text 2", "text 3"]
    assert quarantined(root) == [junk.decode("latin-1")]
    assert len(lines(root / PATH)) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda extra: {"times": [None, 1, "x", []]},
        lambda extra: {"entity": "Not Normal"},
        lambda extra: {"version": -3, "revision": "x", "place": 2**70, "declared": 1},
        lambda extra: 5,
        lambda extra: {"keys": {"a": 1}, "metadata": 7},
    ],
)
def test_extra_keys_of_the_wrong_kind_break_nothing(root, change):
    items = lines(root / PATH)
    items[1]["metadata"]["nanomem"] = change(items[1]["metadata"]["nanomem"])
    write_lines(root / PATH, *items)
    with JsonlStorage(root) as storage, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert {"text 1", "text 3"} <= set(texts(storage))
        storage.commit(ANA, [fact("f4", "text 4")])
    everything = b"".join(below(root).values())
    assert b"text 2" in everything


def test_a_record_of_another_owner_is_not_shown(root):
    with (root / PATH).open("a") as file:
        file.write(json.dumps(FACT | {"user_id": "bob"}) + "\n")
    with JsonlStorage(root) as storage:
        with pytest.warns(RuntimeWarning, match="user_id 'bob'"):
            assert len(texts(storage)) == 3
        storage.repair()
    assert json.loads(quarantined(root)[0])["user_id"] == "bob"


def test_of_two_lines_with_one_id_the_later_counts(root):
    write_lines(root / PATH, FACT, FACT | {"content": "Ana is vegan"})
    with JsonlStorage(root) as storage:
        with pytest.warns(RuntimeWarning, match="same id 'f-1'"):
            assert texts(storage) == ["Ana is vegan"]
        storage.repair()
        assert texts(storage) == ["Ana is vegan"]
    assert json.loads(quarantined(root)[0])["content"] == FACT["content"]


def test_what_is_set_aside_of_a_deleted_record_goes_with_it(root):
    damaged(
        root, lambda data: data + b'{"memory_id":"f1","user_id":"ana","content":"zebra\n{"id":"f8","content":"lion\n'
    )
    with JsonlStorage(root) as storage:
        assert len(storage.repair()) == 2
        assert len(quarantined(root)) == 2
        storage.commit(ANA, [Delete("f1")])
        storage.compact()
        assert [("lion" in piece) for piece in quarantined(root)] == [True]
        storage.erase(ANA)
    assert b"zebra" not in b"".join(below(root).values())
    assert b"lion" not in b"".join(below(root).values())


def test_a_damaged_journal_is_set_aside_by_repair(root):
    path = root / ".nanomem/scopes/ana/journal"
    path.write_bytes(b"x" + path.read_bytes()[1:])
    with JsonlStorage(root) as storage:
        with pytest.raises(CorruptionError, match="journal"):
            storage.head(ANA)
        (damage,) = storage.check()
        assert (damage.path, damage.lost) == (str(path), False)
        assert len(storage.repair()) == 1
        assert texts(storage) == ["text 1", "text 2", "text 3"]
        storage.commit(ANA, [fact("f4", "text 4")])
        assert storage.check() == []
        storage.erase(ANA)
        assert storage.scopes() == []
    assert b"text" not in b"".join(below(root).values())


def test_a_byte_order_mark_and_windows_line_ends_are_read(root):
    damaged(root, lambda data: b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))
    with JsonlStorage(root) as storage:
        assert len(texts(storage)) == 3
        storage.commit(ANA, [fact("f4", "text 4")])
    assert len(lines(root / PATH)) == 4


def test_a_file_that_was_emptied_by_hand_is_empty(root):
    with JsonlStorage(root) as storage:
        assert len(texts(storage)) == 3
        (root / PATH).write_bytes(b"")
        assert texts(storage) == []
        assert storage.commit(ANA, [fact("f4", "text 4")]).head == 3
        os.unlink(root / PATH)
        assert texts(storage) == []
        storage.commit(ANA, [fact("f5", "text 5")])
        assert texts(storage) == ["text 5"]


def test_a_store_that_is_only_read_leaves_no_trace(root):
    before = below(root)
    with JsonlStorage(root, read_only=True) as storage:
        assert len(texts(storage)) == 3
        for call in (
            lambda: storage.commit(ANA, [fact("x", "x")]),
            lambda: storage.erase(ANA),
            storage.compact,
        ):
            with pytest.raises(ReadOnlyError):
                call()
    assert below(root) == before
    with pytest.raises(NotFoundError):
        JsonlStorage(root / "absent", read_only=True)
