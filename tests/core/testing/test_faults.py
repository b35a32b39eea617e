import errno
import mmap
import os
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.fileio import boots
from nanomem_core.testing import LOSSES, DiskRecorder, Fault
from nanomem_core.testing.faults import unsynced

fcntl = pytest.importorskip("fcntl", reason="the tests use what only POSIX has: pwrite, writev, folders as files")


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def opened(path, flags=0):
    return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)


def write(path, data, *, sync=False, flags=0):
    fd = opened(path, flags)
    os.write(fd, data)
    if sync:
        os.fsync(fd)
    os.close(fd)


def sync_folder(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def tree(disk, loss, length=None, seed=0):
    state = disk.state(len(disk.operations) if length is None else length, loss, seed).tree()
    return {path: data for path, data in state.items() if path}


def kinds(disk):
    return [op.kind for op in disk.operations]


def test_each_prefix_of_the_log_is_the_disk_at_that_moment(root):
    with DiskRecorder(root) as disk:
        write(root / "a", b"first")
        write(root / "a", b"F")
        os.truncate(root / "a", 2)
        os.replace(root / "a", root / "b")
        os.unlink(root / "b")
    assert kinds(disk) == ["create", "write", "write", "truncate", "rename", "unlink"]
    assert [tree(disk, "none", n) for n in range(7)] == [
        {},
        {"a": b""},
        {"a": b"first"},
        {"a": b"First"},
        {"a": b"Fi"},
        {"b": b"Fi"},
        {},
    ]


def test_what_was_there_before_counts_as_safe(root):
    (root / "folder").mkdir()
    (root / "folder" / "old").write_bytes(b"old")
    with DiskRecorder(root) as disk:
        write(root / "folder" / "old", b"new")
    assert tree(disk, "all") == {"folder": None, "folder/old": b"old"}
    assert tree(disk, "none") == {"folder": None, "folder/old": b"new"}


def test_data_is_safe_once_its_file_was_synced(root):
    (root / "a").touch()
    with DiskRecorder(root) as disk:
        write(root / "a", b"kept ", sync=True)
        write(root / "a", b"lost", flags=os.O_APPEND)
    for loss in LOSSES:
        assert tree(disk, loss)["a"].startswith(b"kept ")
    assert tree(disk, "all") == {"a": b"kept "}
    assert tree(disk, "zeros") == {"a": b"kept \0\0\0\0"}
    assert tree(disk, "torn", 3) == {"a": b"kept lo"}


def test_a_name_is_safe_once_its_folder_was_synced(root):
    with DiskRecorder(root) as disk:
        write(root / "a", b"data", sync=True)
        before = len(disk.operations)
        sync_folder(root)
        os.rename(root / "a", root / "b")
        os.mkdir(root / "folder")
    assert tree(disk, "all", before) == {}
    assert tree(disk, "zeros", before) == {"a": b"data"}
    assert tree(disk, "all") == {"a": b"data"}
    assert tree(disk, "none") == {"b": b"data", "folder": None}


def test_a_file_in_a_folder_whose_own_name_is_lost_is_lost(root):
    with DiskRecorder(root) as disk:
        (root / "folder").mkdir()
        write(root / "folder" / "a", b"data", sync=True)
        sync_folder(root / "folder")
    assert tree(disk, "all") == {}
    assert tree(disk, "none") == {"folder": None, "folder/a": b"data"}


def test_a_rename_over_a_file_can_be_undone_to_the_old_file(root):
    (root / "a").write_bytes(b"old")
    with DiskRecorder(root) as disk:
        write(root / "new", b"new", sync=True)
        os.replace(root / "new", root / "a")
    assert tree(disk, "all") == {"a": b"old"}
    assert {tuple(tree(disk, "cut", seed=seed).items()) for seed in range(30)} == {
        (("a", b"old"),),
        (("a", b"old"), ("new", b"new")),
        (("a", b"new"),),
    }


def test_sectors_are_lost_one_by_one(root):
    (root / "a").write_bytes(b"-" * 1300)
    with DiskRecorder(root) as disk:
        fd = opened(root / "a")
        os.lseek(fd, 100, os.SEEK_SET)
        os.write(fd, b"x" * 1100)
        os.close(fd)
    found = {tree(disk, "sectors", seed=seed)["a"] for seed in range(60)}
    parts = [(100, 512), (512, 1024), (1024, 1200)]
    expected = set()
    for choice in range(8):
        data = bytearray(b"-" * 1300)
        for bit, (start, end) in enumerate(parts):
            if choice >> bit & 1:
                data[start:end] = b"x" * (end - start)
        expected.add(bytes(data))
    assert found == expected


def test_a_cut_loses_the_end_of_each_file(root):
    (root / "a").touch()
    with DiskRecorder(root) as disk:
        for number in range(3):
            write(root / "a", b"%d" % number, flags=os.O_APPEND)
    assert {tree(disk, "cut", seed=seed)["a"] for seed in range(40)} == {b"", b"0", b"01", b"012"}


def test_the_same_seed_gives_the_same_state(root):
    with DiskRecorder(root) as disk:
        write(root / "a", os.urandom(5000))
    for loss in LOSSES:
        assert disk.state(2, loss, 7).fingerprint() == disk.state(2, loss, 7).fingerprint()


def test_a_state_can_be_written_to_a_folder(root, tmp_path):
    with DiskRecorder(root) as disk:
        (root / "folder").mkdir()
        write(root / "folder" / "a", b"data")
    disk.state(3).write_to(tmp_path / "copy")
    assert (tmp_path / "copy" / "folder" / "a").read_bytes() == b"data"
    assert DiskRecorder(tmp_path / "copy").state(0).fingerprint() == disk.state(3).fingerprint()


def test_a_loss_of_power_starts_the_system_anew_and_a_kill_does_not(root, tmp_path, monkeypatch):
    monkeypatch.setattr(boots, "boot_id", boots.boot_id)
    first = boots.boot_id()

    def found_by(disk, loss, folder):
        disk.state(len(disk.operations), loss).write_to(tmp_path / folder)
        return boots.boot_id()

    with DiskRecorder(root) as disk:
        write(root / "a", b"data", sync=True)
        sync_folder(root)
    second = found_by(disk, "all", "second")
    assert second != first
    with DiskRecorder(tmp_path / "second") as again:
        write(tmp_path / "second" / "a", b"DATA")
    third = found_by(again, "cut", "third")
    assert third not in (first, second)
    assert found_by(again, "torn", "killed") == found_by(again, "none", "killed too") == second
    assert found_by(disk, "none", "killed at first") == first
    assert tree(disk, "none") == tree(disk, "all")
    assert disk.state(4, "none").fingerprint() != disk.state(4, "all").fingerprint(), "a store may tell them apart"


def test_syncs_that_do_not_reach_the_disk_are_in_the_log(root, monkeypatch):
    calls = []
    monkeypatch.setattr(os, "fsync", calls.append)
    with unsynced():
        write(root / "a", b"data", sync=True)
        with DiskRecorder(root) as disk:
            write(root / "a", b"DATA", sync=True)
    assert (calls, kinds(disk)) == ([], ["write", "sync"])
    write(root / "a", b"data", sync=True)
    assert len(calls) == 1


def test_every_way_to_write_is_recorded(root):
    with DiskRecorder(root) as disk:
        fd = opened(root / "a")
        os.pwrite(fd, b"at ten", 10)
        os.writev(fd, [b"two ", b"parts"])
        os.write(fd, memoryview(b"!"))
        os.fdatasync(fd)
        os.ftruncate(fd, 12)
        os.close(fd)
        os.link(root / "a", root / "b")
        os.remove(root / "a")
        (root / "c").touch()
        (root / "c").write_bytes(b"")
        (root / "c").unlink()
        os.makedirs(root / "x" / "y")
        write(root / "x" / "y" / "z", b"1")
        os.rename(root / "x", root / "w")
        write(root / "w" / "y" / "z", b"2")
    assert tree(disk, "none") == {"b": b"two parts!at", "w": None, "w/y": None, "w/y/z": b"2"}


def test_the_full_sync_of_macos_counts_as_a_sync(root, monkeypatch):
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    (root / "a").touch()
    with DiskRecorder(root) as disk:
        fd = opened(root / "a")
        os.write(fd, b"data")
        fcntl.fcntl(fd, 51)
        assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_RDWR
        os.close(fd)
    assert kinds(disk) == ["write", "sync"]
    assert tree(disk, "all") == {"a": b"data"}


def test_paths_relative_to_an_open_folder_are_recorded(root):
    with DiskRecorder(root) as disk:
        os.makedirs(root / "x" / "y")
        write(root / "x" / "y" / "z", b"1")
        shutil.rmtree(root / "x")
        folder = os.open(root, os.O_RDONLY)
        os.mkdir("again", dir_fd=folder)
        os.close(folder)
    assert kinds(disk)[-4:] == ["unlink", "rmdir", "rmdir", "mkdir"]
    assert tree(disk, "none") == {"again": None}


def test_a_file_that_was_removed_while_open_has_no_name(root):
    with DiskRecorder(root) as disk:
        fd = opened(root / "a")
        os.unlink(root / "a")
        os.write(fd, b"nobody reads this")
        os.close(fd)
        write(root / "a", b"another")
    assert tree(disk, "none") == {"a": b"another"}


def test_paths_elsewhere_are_left_alone(root, tmp_path):
    with DiskRecorder(root, Fault(0)) as disk:
        write(tmp_path / "a", b"data", sync=True)
        os.mkdir(tmp_path / "folder")
        os.rename(tmp_path / "a", tmp_path / "b")
        os.unlink(tmp_path / "b")
        receiver, sender = os.pipe()
        os.write(sender, b"x")
        os.close(sender)
        os.close(receiver)
    assert disk.operations == []


def by_path(path):
    path.write_bytes(b"new")


def by_buffered_file(path):
    with open(path, "r+b") as file:
        file.write(b"new")


def by_mapping(path):
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 3) as view:
        view[:] = b"new"


@pytest.mark.parametrize("change", [by_path, by_buffered_file, by_mapping])
def test_a_write_that_bypasses_os_is_noticed(root, change):
    (root / "a").write_bytes(b"old")
    seen = r"root/a was changed by something that DiskRecorder can't see"
    with pytest.raises(AssertionError, match=seen), DiskRecorder(root):
        change(root / "a")


def test_a_fault_fails_one_operation_and_does_nothing(root):
    with DiskRecorder(root, Fault(1, errno.ENOSPC)) as disk:
        fd = opened(root / "a")
        with pytest.raises(OSError, match="No space left") as caught:
            os.write(fd, b"lost")
        os.write(fd, b"kept")
        os.close(fd)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(root / "a"))
    assert (root / "a").read_bytes() == b"kept"
    assert kinds(disk) == ["create", "write"]


@pytest.mark.parametrize("at", range(9))
def test_each_kind_of_operation_can_fail(root, at):
    def play():
        os.mkdir(root / "f")
        fd = opened(root / "f" / "a")
        try:
            os.write(fd, b"data")
            os.ftruncate(fd, 2)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(root / "f" / "a", root / "b")
        sync_folder(root)
        os.unlink(root / "b")
        os.rmdir(root / "f")

    with DiskRecorder(root, Fault(at)) as disk, pytest.raises(OSError, match="Input/output error"):
        play()
    assert len(disk.operations) == at


def test_a_lasting_fault_fails_everything_after_it(root):
    with DiskRecorder(root, Fault(1, lasting=True)) as disk:
        fd = opened(root / "a")
        for _ in range(3):
            with pytest.raises(OSError, match="error"):
                os.write(fd, b"data")
        os.close(fd)
    assert kinds(disk) == ["create"]


def test_short_writes_take_half(root):
    with DiskRecorder(root, short_writes=True):
        fd = opened(root / "a")
        assert [os.write(fd, data) for data in (b"12345678", b"abc", b"z")] == [4, 1, 1]
        os.close(fd)
    assert (root / "a").read_bytes() == b"1234az"


def test_os_is_as_before_after_the_block_even_when_it_raised(root):
    functions = (os.open, os.write, os.fsync, os.replace)
    recorder = DiskRecorder(root)
    with pytest.raises(FileNotFoundError), recorder:
        os.unlink(root / "absent")
    assert (os.open, os.write, os.fsync, os.replace) == functions
    assert recorder.operations == []


STEPS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from("abc"), st.binary(max_size=1500)),
    st.tuples(st.just("append"), st.sampled_from("abc"), st.binary(max_size=700)),
    st.tuples(st.just("truncate"), st.sampled_from("abc"), st.integers(0, 2000)),
    st.tuples(st.just("rename"), st.sampled_from("abc"), st.sampled_from("abc")),
    st.tuples(st.just("unlink"), st.sampled_from("abc"), st.none()),
    st.tuples(st.just("sync"), st.sampled_from("abc"), st.none()),
    st.tuples(st.just("sync folder"), st.just("a"), st.none()),
)


@given(st.lists(STEPS, max_size=25), st.integers(0, 5))
def test_whatever_was_synced_is_in_every_state_after(tmp_path_factory, steps, seed):
    root = tmp_path_factory.mktemp("root")
    with DiskRecorder(root) as disk:
        for kind, name, value in steps:
            play(root, kind, root / name, value)
        for path in root.iterdir():
            play(root, "sync", path, None)
        sync_folder(root)
    expected = {path.name: path.read_bytes() for path in root.iterdir()}
    for loss in LOSSES:
        assert tree(disk, loss, seed=seed) == expected


def play(root, kind, path, value):
    if kind == "write":
        write(path, value)
    elif kind == "append":
        write(path, value, flags=os.O_APPEND)
    elif kind == "sync folder":
        sync_folder(root)
    elif path.exists():
        if kind == "truncate":
            os.truncate(path, value)
        elif kind == "rename":
            os.replace(path, root / value)
        elif kind == "unlink":
            os.unlink(path)
        else:
            fd = os.open(path, os.O_RDWR)
            os.fsync(fd)
            os.close(fd)
