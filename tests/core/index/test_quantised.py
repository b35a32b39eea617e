from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.index import quantised
from nanomem_core.index.quantised import Codes, Question, checksums, entry_type, quantise

pytest.importorskip("numkong", reason="int8 products need the extra fast")

Floats = npt.NDArray[np.float32]


def bounds(entries: npt.NDArray[Any], query: Floats) -> tuple[Floats, Floats]:
    question = Question.of(query)
    middle = Codes(entries).products(question, len(entries))
    reach = question.reach(entries["error"])
    return middle - reach, middle + reach


def narrow_bounds(entries: npt.NDArray[Any], query: Floats) -> tuple[Floats, Floats]:
    question = Question.of(query)
    middle = Codes(entries).narrow_products(question, np.arange(len(entries)))
    reach = question.narrow_reach(entries["error"])
    return middle - reach, middle + reach


def unit(rows: npt.NDArray[np.floating]) -> Floats:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def sample(kind: str, count: int, dim: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, dim))
    if kind == "clustered":
        rows = rng.standard_normal((8, dim))[rng.integers(0, 8, count)] + 0.1 * rows
    elif kind == "near-duplicates":
        rows = rng.standard_normal((1, dim)) + 1e-3 * rows
    elif kind == "few dominant dimensions":
        rows[:, 3:] *= 0.01
    return unit(rows)


KINDS = ("isotropic", "clustered", "near-duplicates", "few dominant dimensions")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [7, 64, 384, 768, 4096])
def test_the_cosine_lies_between_the_bounds(kind: str, dim: int) -> None:
    rows = sample(kind, 500, dim)
    entries = quantise(rows, np.arange(500))
    for query in (rows[3], sample(kind, 1, dim, seed=1)[0], sample("isotropic", 1, dim, seed=2)[0]):
        for low, high in (bounds(entries, query), narrow_bounds(entries, query)):
            for cosines in (rows @ query, rows.astype(np.float64) @ query.astype(np.float64)):
                assert (low <= cosines).all()
                assert (cosines <= high).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_bounds_are_narrow_whatever_the_data(kind: str) -> None:
    low, high = bounds(quantise(sample(kind, 500, 768), np.arange(500)), sample(kind, 1, 768, seed=1)[0])
    assert float((high - low).max()) < 0.05


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.floats(1e-6, 1.0))
def test_the_bounds_hold_for_any_shape_of_vector(seed: int, dim: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    rows = unit(rng.standard_normal((20, dim)) * spread ** rng.integers(0, 4, dim) + 1e-12)
    query = unit(rng.standard_normal((1, dim)))[0]
    entries = quantise(rows, np.arange(20))
    cosines = rows.astype(np.float64) @ query.astype(np.float64)
    for low, high in (bounds(entries, query), narrow_bounds(entries, query)):
        assert (low <= cosines).all()
        assert (cosines <= high).all()


@given(st.integers(0, 8 * 200 * 3 - 1))
def test_a_flipped_bit_changes_the_checksum(place: int) -> None:
    entries = quantise(sample("isotropic", 3, 190), np.arange(3))
    width = entries.dtype.itemsize
    entry, bit = place % 3, place // 3 % (8 * 208)
    data = entries.view(np.uint8).reshape(3, width)
    data[entry, bit // 8] ^= 1 << bit % 8
    wrong = checksums(entries) != entries["check"]
    assert wrong[entry]
    assert wrong.sum() == 1


def test_an_entry_takes_a_quarter_of_the_vector_and_a_little() -> None:
    assert entry_type(768).itemsize == 792
    assert entry_type(384).itemsize == 408


@pytest.mark.parametrize("threads", ["1", "3", "none"])
def test_products_are_the_same_however_they_are_computed(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = quantise(sample("isotropic", 1000, 96), np.arange(1000))
    question = Question.of(sample("isotropic", 1, 96, seed=1)[0])
    codes = Codes(entries)
    expected = codes.products(question, 900)
    assert np.array_equal(codes.products(question, 900), expected)  # by the copy that is made now
    monkeypatch.setattr(quantised, "_MOST_PACKED", 0)
    monkeypatch.setattr(quantised, "_SHARE", 1000)
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    assert np.array_equal(Codes(entries).products(question, 900), expected)


def test_without_another_thread_the_products_are_computed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = quantise(sample("isotropic", 1000, 96), np.arange(1000))
    question = Question.of(sample("isotropic", 1, 96, seed=1)[0])
    expected = Codes(entries).products(question, 1000)
    monkeypatch.setattr(quantised, "_MOST_PACKED", 0)
    monkeypatch.setattr(quantised, "_SHARE", 1000)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert np.array_equal(Codes(entries).products(question, 1000), expected)


def test_the_rotation_keeps_lengths_and_products() -> None:
    for dim in (1, 7, 96, 384, 768):
        rows = sample("few dominant dimensions", 40, dim)
        turned = quantised._rotated(rows)
        np.testing.assert_allclose(turned @ turned.T, rows @ rows.T, atol=5e-6)
