"""Files that are replaced wholly or not at all."""

from __future__ import annotations

import contextlib
import errno
import os

import pytest

from nanomem_core.fileio import atomic
from nanomem_core.testing import LOSSES, DiskRecorder


def test_a_file_is_replaced_and_private(tmp_path):
    path = tmp_path / "file"
    atomic.write(path, b"old")
    atomic.write(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["file"]


def test_an_error_in_the_block_keeps_the_old_content(tmp_path):
    path = tmp_path / "file"
    atomic.write(path, b"old")
    with contextlib.suppress(KeyError), atomic.replacing(path) as descriptor:
        atomic.write_all(descriptor, b"half")
        raise KeyError
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_crash_leaves_the_old_content_or_the_new(tmp_path, loss):
    root = tmp_path / "disk"
    root.mkdir()
    atomic.write(root / "file", b"old")
    new = bytes(range(256)) * 8
    with DiskRecorder(root) as disk:
        atomic.write(root / "file", new)
    for length in range(len(disk.operations) + 1):
        for seed in range(3):
            content = disk.state(length, loss, seed).tree()["file"]
            assert content in (b"old", new)
            if length == len(disk.operations):
                assert content == new


def test_short_writes_are_continued(tmp_path, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr("os.pwrite", lambda descriptor, data, offset: real(descriptor, data[:3], offset))
    with atomic.replacing(tmp_path / "file") as descriptor:
        atomic.write_all(descriptor, b"0123456789", 0)
        atomic.write_all(descriptor, b"abcdefg", 10)
        atomic.write_all(descriptor, b"", 17)
    assert (tmp_path / "file").read_bytes() == b"0123456789abcdefg"


def test_a_device_that_takes_nothing_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("os.write", lambda descriptor, data: 0)
    with pytest.raises(OSError, match="no more") as error:
        atomic.write(tmp_path / "file", b"data")
    assert error.value.errno == errno.ENOSPC
    assert os.listdir(tmp_path) == []


def test_the_files_of_a_folder_are_removed_while_others_do_so_too(tmp_path, monkeypatch):
    for name in ("a", "b", "c", "d.lock"):
        (tmp_path / name).touch()
    unlink = os.unlink

    def overtaken(path):
        unlink(path)
        unlink(path)  # as if somebody else had been faster

    monkeypatch.setattr(os, "unlink", overtaken)
    atomic.remove_files(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["d.lock"]
    atomic.remove_files(tmp_path / "absent")


def test_only_leftovers_of_the_file_itself_are_removed(tmp_path):
    for name in ("file", "file.tmp-1-2", "file.index.tmp-1-2", "other.tmp-1-2"):
        (tmp_path / name).touch()
    atomic.remove_leftovers(tmp_path / "file")
    assert sorted(os.listdir(tmp_path)) == ["file", "file.index.tmp-1-2", "other.tmp-1-2"]
    atomic.remove_leftovers(tmp_path / "absent" / "file")


def test_reading_and_removing_what_is_absent_is_no_error(tmp_path):
    path = tmp_path / "file"
    assert atomic.read(path) is None
    assert atomic.remove(path) is False
    atomic.write(path, b"data")
    assert atomic.read(path) == b"data"
    assert atomic.remove(path) is True
    assert not path.exists()
