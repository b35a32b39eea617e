"""Which files of a directory are read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from nanomem_core.errors import InputError, NotFoundError
from nanomem_core.pipeline.walk import walk


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "top"
    for name in (
        "b.md",
        "a.py",
        "photo.png",
        "Makefile",
        ".env",
        ".hidden/x.md",
        "node_modules/x.js",
        "sub/c.TXT",
        "sub/__pycache__/c.py",
        "sub/deep/d.yaml",
        "own/e.md",
    ):
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return top


def names(top: Path, *args: object, **options: object) -> list[str]:
    return [path.relative_to(top).as_posix() for path in walk(top, *args, **options)]  # type: ignore[arg-type]


def link(path: Path, target: Path) -> None:
    try:
        path.symlink_to(target, target_is_directory=target.is_dir())
    except OSError:
        pytest.skip("links can't be made here")


def test_texts_are_found_in_order_and_hidden_or_built_ones_are_not(tree: Path) -> None:
    assert names(tree) == ["a.py", "b.md", "own/e.md", "sub/c.TXT", "sub/deep/d.yaml"]


def test_extensions_can_be_chosen_with_or_without_the_dot(tree: Path) -> None:
    assert names(tree, [".MD", "txt"]) == ["b.md", "own/e.md", "sub/c.TXT"]


def test_further_directories_can_be_left_out(tree: Path) -> None:
    assert names(tree, ignore_dirs=["own", "deep"]) == ["a.py", "b.md", "sub/c.TXT"]


def test_a_file_named_like_an_ignored_directory_is_read(tree: Path) -> None:
    (tree / "env").write_text("x")
    assert names(tree, [""]) == ["Makefile", "env"]


def test_a_loop_of_links_ends(tree: Path) -> None:
    link(tree / "sub" / "again", tree)
    assert names(tree) == ["a.py", "b.md", "own/e.md", "sub/c.TXT", "sub/deep/d.yaml"]


def test_a_file_reached_twice_is_named_by_its_own_path(tree: Path) -> None:
    link(tree / "a-link", tree / "sub")
    link(tree / "aa.md", tree / "b.md")
    assert names(tree) == ["a.py", "b.md", "own/e.md", "sub/c.TXT", "sub/deep/d.yaml"]


def test_links_out_of_the_tree_are_followed_unless_confined(tree: Path) -> None:
    outside = tree.parent / "outside"
    outside.mkdir()
    (outside / "s.md").write_text("secret")
    link(tree / "door", outside)
    link(tree / "window.md", outside / "s.md")
    assert names(tree, ["md"]) == ["b.md", "own/e.md", "door/s.md"]
    assert names(tree, ["md"], confine_root=tree) == ["b.md", "own/e.md"]


def test_a_directory_whose_name_only_begins_like_the_root_is_outside(tree: Path) -> None:
    other = tree.parent / "top-secret"
    other.mkdir()
    with pytest.raises(InputError, match="lies outside"):
        walk(other, confine_root=tree)


def test_a_dangling_link_is_left_out(tree: Path) -> None:
    link(tree / "gone.md", tree / "nothing.md")
    assert "gone.md" not in names(tree)


def test_a_directory_that_can_not_be_listed_is_logged_and_skipped(
    tree: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = os.listdir

    def refuse(path: str) -> list[str]:
        if Path(path).name == "own":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return listed(path)

    monkeypatch.setattr(os, "listdir", refuse)
    assert "own/e.md" not in names(tree)
    # The logger that the command line shows the warnings of.
    assert [(record.name, "can't be listed" in record.message) for record in caplog.records] == [("nanomem", True)]


def test_a_missing_directory_and_a_file_are_refused_at_once(tree: Path) -> None:
    with pytest.raises(NotFoundError):
        walk(tree / "none")
    with pytest.raises(InputError, match="expected a directory"):
        walk(tree / "b.md")
