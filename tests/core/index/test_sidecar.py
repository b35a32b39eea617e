"""Vectors beside a store that keeps none."""

from __future__ import annotations

import multiprocessing
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from nanomem_core.changes import Vectors
from nanomem_core.index.sidecar import VectorSidecar
from nanomem_core.interfaces import VectorSpace
from tests.memories import CountingEmbedder

SPACE = VectorSpace("hash-16", 16)
HEADER, ENTRY = 16, 24 + 4 * 16


def vectors(folder: Path | None, texts: Sequence[str], space: VectorSpace = SPACE) -> tuple[Vectors, list[str]]:
    """What a fresh sidecar gives for `texts`, and the texts that it had to have encoded."""
    embedder = CountingEmbedder(space.dim, space.embedder)
    found = VectorSidecar(folder, space).encoder(embedder.embed_batch)(texts)
    np.testing.assert_array_equal(found, CountingEmbedder(space.dim, space.embedder).embed_batch(texts))
    return found, embedder.encoded


def the_file(folder: Path) -> Path:
    (path,) = folder.glob("vectors-*.bin")
    return path


def test_a_text_is_encoded_once_also_after_opening_again(tmp_path: Path) -> None:
    assert vectors(tmp_path, ["a", "b", "a"])[1] == ["a", "b"]
    assert vectors(tmp_path, ["b", "c"])[1] == ["c"]
    assert vectors(tmp_path, ["c", "b", "a"])[1] == []
    assert the_file(tmp_path).stat().st_size == HEADER + 3 * ENTRY
    assert vectors(tmp_path, [])[0].shape == (0, 16)


def test_without_a_folder_vectors_are_kept_in_memory() -> None:
    embedder = CountingEmbedder()
    encode = VectorSidecar(None, SPACE).encoder(embedder.embed_batch)
    encode(["a"])
    encode(["a", "b"])
    assert embedder.encoded == ["a", "b"]


def test_spaces_never_mix(tmp_path: Path) -> None:
    for space in (SPACE, VectorSpace("hash-16", 8), VectorSpace("other", 16)):
        assert vectors(tmp_path, ["a"], space)[1] == ["a"]
    assert len(list(tmp_path.glob("vectors-*.bin"))) == 3
    assert vectors(tmp_path, ["a"])[1] == []


def test_a_file_cut_anywhere_loses_no_more_than_what_was_cut(tmp_path: Path) -> None:
    vectors(tmp_path, ["a", "b"])
    whole = the_file(tmp_path).read_bytes()
    for length in range(len(whole)):
        the_file(tmp_path).write_bytes(whole[:length])
        kept = max(0, (length - HEADER) // ENTRY)
        assert vectors(tmp_path, ["a", "b"])[1] == ["a", "b"][kept:]
        assert vectors(tmp_path, ["a", "b"])[1] == []


def test_a_damaged_byte_costs_the_vectors_it_stands_in(tmp_path: Path) -> None:
    vectors(tmp_path, ["a", "b", "c"])
    whole = the_file(tmp_path).read_bytes()
    for offset in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[offset] ^= 0x40
        the_file(tmp_path).write_bytes(damaged)
        encoded = vectors(tmp_path, ["a", "b", "c"])[1]
        assert len(encoded) <= (3 if offset < HEADER else 1)
        assert vectors(tmp_path, ["a", "b", "c"])[1] == [], "what was encoded anew is found the next time"
        the_file(tmp_path).write_bytes(whole)


def test_only_the_texts_to_keep_are_left_in_any_file(tmp_path: Path) -> None:
    other = VectorSpace("other", 8)
    vectors(tmp_path, ["a", "b"], other)
    (tmp_path / "vectors-0123456789abcdef.bin").write_bytes(b"damaged")
    embedder = CountingEmbedder()
    sidecar = VectorSidecar(tmp_path, SPACE)
    encode = sidecar.encoder(embedder.embed_batch)
    encode(["a", "b"])
    vectors(tmp_path, ["c", "d"])
    sidecar.keep(["b", "c", "absent"])
    assert [sidecar.knows([text]) for text in "abcd"] == [False, True, True, False]
    sizes = {path.stat().st_size for path in tmp_path.glob("vectors-*.bin")}
    assert sizes == {HEADER + 2 * ENTRY, HEADER + 24 + 4 * other.dim}
    assert vectors(tmp_path, ["a", "b"], other)[1] == ["a"]
    assert vectors(tmp_path, ["b", "c"])[1] == []
    encode(["a", "b"])
    assert embedder.encoded == ["a", "b", "a"]
    assert vectors(tmp_path, ["a", "d"])[1] == ["d"]


def test_keeping_nothing_removes_the_files(tmp_path: Path) -> None:
    sidecar = VectorSidecar(tmp_path, SPACE)
    sidecar.keep([])
    for folder in (tmp_path, None):
        vectors(folder, ["a"])
        sidecar.encoder(CountingEmbedder().embed_batch)(["a"])
        sidecar.keep(())
        assert list(tmp_path.glob("*.bin")) == []
        assert (sidecar.knows(["a"]), sidecar.knows([])) == (False, True)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no file modes")
def test_the_file_is_private(tmp_path: Path) -> None:
    vectors(tmp_path / "deep" / "folder", ["a"])
    for path in (tmp_path / "deep").rglob("*.*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def _encode_40(folder: Path, worker: int) -> None:
    embedder = CountingEmbedder()
    encode = VectorSidecar(folder, SPACE).encoder(embedder.embed_batch)
    for number in range(40):
        encode([f"{worker}-{number}", f"shared-{number}"])


def test_two_processes_add_to_one_file_and_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_encode_40, args=(tmp_path, worker)) for worker in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    texts = [f"{kind}-{number}" for kind in ("0", "1", "shared") for number in range(40)]
    assert vectors(tmp_path, texts)[1] == []
