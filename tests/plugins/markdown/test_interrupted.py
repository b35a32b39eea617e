"""What DeerMem leaves when it is killed is finished or undone as DeerMem itself would, with no more loss."""

import json

import pytest

from nanomem_core.changes import Put
from nanomem_core.errors import CorruptionError
from nanomem_core.fileio.locks import Lock
from nanomem_core.testing import DiskRecorder
from nanomem_core.testing.samples import full_run

from .material import ANN, deermem_fact, fact, fact_path, opened, texts, write_fact, write_manifest

OPERATION = "0123456789abcdef" * 2


@pytest.fixture
def root(tmp_path):
    return tmp_path / "memory"


def interrupt(root, state="prepared", **fields):
    """Leave a commit that changes fact_1, creates fact_2 and deletes fact_3, killed before its last step."""
    write_manifest(root, revision=4)
    user = root / "users/ann"
    copies = user / ".recovery" / OPERATION
    copies.mkdir(parents=True)
    (copies / "memory.json").write_bytes((user / "memory.json").read_bytes())
    (copies / "fact_1.md").write_bytes(deermem_fact("fact_1", content="old one"))
    (copies / "fact_3.md").write_bytes(deermem_fact("fact_3", content="old three"))
    write_fact(root, "fact_1", content="new one")
    write_fact(root, "fact_2", content="new two")
    write_manifest(root, revision=5)
    old = {id: {"path": str(fact_path(root, id).relative_to(user))} for id in ("fact_1", "fact_3")}
    journal = {
        "operationId": OPERATION,
        "state": state,
        "agentName": "__default__",
        "expectedRevision": 4,
        "nextRevision": 5,
        "factIds": ["fact_1", "fact_2", "fact_3"],
        "oldEntries": old,
        **fields,
    }
    (user / ".memory.journal.json").write_text(json.dumps(journal))
    return user


def revision(root):
    return json.loads((root / "users/ann/memory.json").read_text())["revision"]


def test_a_prepared_commit_is_undone_by_the_next_write(root):
    user = interrupt(root)
    with opened(root) as storage:
        storage.commit(ANN, [Put(fact("a"))])
        assert texts(storage) == {"fact_1": "old one", "fact_3": "old three", "a": "text of a"}
    assert revision(root) == 5
    assert not (user / ".memory.journal.json").exists()
    assert not (user / ".recovery").exists()


def test_a_prepared_commit_is_not_shown_while_deermem_is_at_it(root):
    interrupt(root)
    with opened(root) as storage, Lock(root / "users/ann/.memory.lock"):
        assert texts(storage) == {"fact_1": "old one", "fact_3": "old three"}


def test_a_committed_one_stands(root):
    user = interrupt(root, "committed")
    with opened(root) as storage:
        storage.commit(ANN, [Put(fact("a"))])
        assert texts(storage) == {"fact_1": "new one", "fact_2": "new two", "a": "text of a"}
    assert revision(root) == 6
    assert not (user / ".recovery").exists()


@pytest.mark.usefixtures("unsynced")
def test_undoing_may_be_killed_at_every_step_again_and_again(root, tmp_path):
    interrupt(root)
    with DiskRecorder(root) as disk, opened(root) as storage:
        storage.commit(ANN, [Put(fact("a"))])
    for length in range(0, len(disk.operations), 1 if full_run() else 4):
        other = tmp_path / f"again {length}"
        disk.state(length, "all" if length % 8 else "none").write_to(other)
        with DiskRecorder(other) as second, opened(other) as storage:
            storage.commit(ANN, [Put(fact("b"))])
        third = tmp_path / f"and again {length}"
        second.state(len(second.operations) // 2, "all").write_to(third)
        for folder in (other, third):
            with opened(folder) as storage:
                storage.commit(ANN, [Put(fact("c"))])
                found = texts(storage)
            assert found.items() >= {"fact_1": "old one", "fact_3": "old three", "c": "text of c"}.items()
            assert "fact_2" not in found


def test_a_copy_that_a_loss_of_power_emptied_is_not_written_over_a_whole_file(root):
    user = interrupt(root)
    copies = user / ".recovery" / OPERATION
    (copies / "memory.json").write_bytes(b"")
    (copies / "fact_1.md").write_bytes(bytes(100))
    with opened(root) as storage:
        storage.commit(ANN, [Put(fact("a"))])
        assert texts(storage)["fact_1"] == "new one"
    assert revision(root) == 6


def test_facts_of_version_1_are_never_lost_by_undoing_the_commit_that_moved_them(root):
    user = interrupt(root, expectedRevision=0)
    (user / ".recovery" / OPERATION / "memory.json").unlink()
    v1 = json.dumps({"version": "1.0", "facts": [{"id": "fact_7", "content": "precious"}]})
    (user / "memory.json").write_text(v1)
    with opened(root) as storage:
        storage.commit(ANN, [Put(fact("a"))])
        texts(storage)
    kept = [path for path in user.rglob("*") if path.is_file() and b"precious" in path.read_bytes()]
    assert kept


@pytest.mark.usefixtures("unsynced")
def test_facts_of_version_1_outlive_an_undoing_that_is_killed_twice(root, tmp_path):
    user = interrupt(root, expectedRevision=0)
    (user / ".recovery" / OPERATION / "memory.json").unlink()
    v1 = {"version": "1.0", "facts": [{"id": "fact_7", "content": "precious"}]}
    (user / "memory.json").write_text(json.dumps(v1))
    expected = {"fact_1": "old one", "fact_3": "old three", "fact_7": "precious"}
    with DiskRecorder(root) as disk, opened(root) as storage:
        assert texts(storage) == expected
    for length in range(0, len(disk.operations) + 1, 1 if full_run() else 4):
        for loss in ("none", "all"):
            other, third = tmp_path / f"{length} {loss}", tmp_path / f"{length} {loss} again"
            disk.state(length, loss).write_to(other)
            with DiskRecorder(other) as second, opened(other) as storage:
                assert texts(storage) == expected
            second.state(len(second.operations) // 2, loss).write_to(third)
            with opened(third) as storage:
                assert texts(storage) == expected
                assert storage.check() == []
                storage.commit(ANN, [Put(fact("a"))])
            assert not (third / "users/ann/.recovery").exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "half"},
        {"operationId": "../../outside"},
        {"factIds": ["../x"]},
        {"oldEntries": {"fact_1": {"path": "../../../outside.md"}}},
        {"oldEntries": {"fact_1": {"path": "/etc/passwd"}}},
        {"oldEntries": {"fact_9": {"path": "x"}}},
        {"agentName": "../x"},
        {"expectedRevision": "4"},
        {"factIds": "all"},
    ],
    ids=repr,
)
def test_a_journal_that_names_something_else_is_damage_and_nothing_is_touched(root, tmp_path, fields):
    interrupt(root, **fields)
    outside = tmp_path / "outside.md"
    outside.write_text("mine")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with opened(root) as storage:
        with pytest.raises(CorruptionError, match=r"memory\.journal\.json"):
            storage.commit(ANN, [Put(fact("a"))])
        assert [damage.path.rpartition("/")[2] for damage in storage.check()] == [".memory.journal.json"]
    assert {path: path.read_bytes() for path in before} == before
    assert outside.read_text() == "mine"


def test_a_journal_that_is_no_json_is_damage(root):
    user = interrupt(root)
    (user / ".memory.journal.json").write_text("{broken")
    with opened(root) as storage, pytest.raises(CorruptionError):
        storage.commit(ANN, [Put(fact("a"))])


@pytest.mark.parametrize("write", ["commit", "compact"])
def test_copies_that_no_journal_speaks_of_go_with_the_next_write(root, write):
    user = interrupt(root)
    (user / ".memory.journal.json").unlink()
    (user / ".memory.json.0123456789abcdef0123456789abcdef.tmp").write_bytes(b"zebra")
    with opened(root) as storage:
        if write == "commit":
            storage.commit(ANN, [Put(fact("a"))])
        else:
            storage.compact()
        assert not (user / ".recovery").exists()
        assert not list(user.glob(".*.tmp"))
        assert texts(storage)["fact_1"] == "new one"
