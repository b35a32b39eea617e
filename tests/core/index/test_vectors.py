from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from nanomem_core.columns import Rows
from nanomem_core.index.exact import top_rows
from nanomem_core.index.vectors import Cosines, FloatVectors, Fusion, QuantisedVectors, VectorTable

from .test_quantised import KINDS, Floats, sample, unit

pytest.importorskip("numkong", reason="int8 products need the extra fast")


class Shelf:
    """Rows of vectors as a store would give them; counts how many are fetched."""

    def __init__(self, vectors: Floats, owners: Rows | None = None) -> None:
        self.vectors = vectors
        self.owners = np.arange(len(vectors)) if owners is None else owners
        self.fetched = 0

    def fetch(self, rows: Rows) -> tuple[Floats, Rows]:
        chosen = np.isin(self.owners, rows)
        self.fetched += int(chosen.sum())
        return self.vectors[chosen], self.owners[chosen]

    def prints(self, rows: Rows) -> npt.NDArray[np.uint32]:
        firsts = np.searchsorted(self.owners, rows)
        return self.vectors[firsts, :1].copy().view(np.uint32)[:, 0]

    def table(self, path: Path | None = None) -> QuantisedVectors:
        return QuantisedVectors(self.vectors.shape[1], self.fetch, self.prints, path)

    def filled(self, path: Path | None = None) -> QuantisedVectors:
        table = self.table(path)
        half = int(np.searchsorted(self.owners, self.owners[len(self.owners) // 2]))
        table.append(self.vectors[:half], self.owners[:half])
        table.append(self.vectors[half:], self.owners[half:])
        return table


def scanned(vectors: Floats, query: Floats) -> Floats:
    """All cosines in float32, each added up in the same order, so that equal vectors have equal ones."""
    cosines: Floats = np.einsum("ij,j->i", vectors, query)
    return cosines


def brute_force(vectors: Floats, query: Floats, k: int) -> list[int]:
    return top_rows(scanned(vectors, query), np.ones(len(vectors), np.bool_), k).tolist()


def best(table: VectorTable, query: Floats, count: int, k: int) -> list[int]:
    where = np.ones(count, np.bool_)
    rows, cosines = table.cosines(query, count).best(k, where)
    assert (np.diff(cosines) <= 0).all()
    return rows.tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 10, 300])
def test_the_first_rows_are_those_of_a_float32_scan_in_its_order(kind: str, k: int) -> None:
    shelf = Shelf(sample(kind, 3000, 96))
    table = shelf.filled()
    for query in sample(kind, 20, 96, seed=1):
        assert best(table, query, 3000, k) == brute_force(shelf.vectors, query, k)


def test_few_vectors_are_fetched() -> None:
    shelf = Shelf(sample("isotropic", 20_000, 256))
    table = shelf.filled()
    best(table, sample("isotropic", 1, 256, seed=1)[0], 20_000, 10)
    assert shelf.fetched < 1000


def test_equal_vectors_come_in_the_order_of_their_rows() -> None:
    rows = np.repeat(sample("isotropic", 4, 64), 5, axis=0)
    shelf = Shelf(rows)
    assert best(shelf.filled(), rows[5], 20, 3) == [5, 6, 7]


@pytest.mark.parametrize("quantised", [False, True])
def test_a_row_counts_by_the_best_of_its_vectors_and_not_at_all_without_one(quantised: bool) -> None:
    vectors = unit(np.eye(4, dtype=np.float32) + 0.01)
    owners = np.array([0, 0, 2, 3])
    shelf = Shelf(vectors, owners)
    table: VectorTable = shelf.filled()
    if not quantised:
        table = FloatVectors(4)
        table.append(vectors, owners)
    cosines = table.cosines(vectors[1], 5)
    exact = cosines.of(np.arange(5))
    assert exact[0] == pytest.approx(1.0)
    assert exact[1] == exact[4] == -np.inf
    assert exact[2] == pytest.approx(float(vectors[2] @ vectors[1]))
    assert cosines.within(np.ones(5, np.bool_)).tolist() == [True, False, True, True, False]


def test_a_floor_is_decided_exactly() -> None:
    shelf = Shelf(sample("near-duplicates", 2000, 96))
    query = shelf.vectors[0]
    exact = scanned(shelf.vectors, query)
    floor = float(np.median(exact))
    where = np.arange(2000) % 3 > 0
    assert np.array_equal(shelf.filled().cosines(query, 2000).reaching(floor, where), where & (exact >= floor))


def test_the_span_is_exact() -> None:
    shelf = Shelf(sample("clustered", 2000, 96))
    query = sample("clustered", 1, 96, seed=1)[0]
    exact = scanned(shelf.vectors, query)
    where = np.arange(2000) % 3 == 0
    assert shelf.filled().cosines(query, 2000).span(where) == pytest.approx((exact[where].min(), exact[where].max()))


def test_a_score_that_grows_with_the_cosine_is_settled_like_the_cosine() -> None:
    shelf = Shelf(sample("isotropic", 3000, 96))
    query = sample("isotropic", 1, 96, seed=1)[0]
    bonus = np.where(np.arange(3000) % 50 == 0, 0.3, 0.0)
    where = np.ones(3000, np.bool_)
    fusion = Fusion(0.5, bonus.astype(np.float32), lambda cosines, rows: 0.5 * cosines + bonus[rows])
    rows, scores = shelf.filled().cosines(query, 3000).best(10, where, fusion)
    every = 0.5 * scanned(shelf.vectors, query) + bonus
    assert rows.tolist() == top_rows(every, where, 10).tolist()
    assert scores.tolist() == every[rows].tolist()


def test_cosines_that_are_known_need_no_settling() -> None:
    known = np.array([0.1, 0.2], np.float32)
    rows, cosines = Cosines(known).best(1, np.ones(2, np.bool_))
    assert (rows.tolist(), cosines.tolist()) == ([1], known[1:].tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_texts_of_several_passages_are_ranked_by_their_best_whatever_is_narrowed(kind: str) -> None:
    counts = np.random.default_rng(2).integers(1, 4, 1500)
    owners = np.repeat(np.arange(1500), counts)
    shelf = Shelf(sample(kind, len(owners), 96), owners)
    table = shelf.filled()
    for query in sample(kind, 10, 96, seed=1):
        every = np.full(1500, -np.inf, np.float32)
        np.maximum.at(every, owners, scanned(shelf.vectors, query))
        assert best(table, query, 1500, 10) == top_rows(every, np.ones(1500, np.bool_), 10).tolist()


def test_a_damaged_vector_keeps_no_other_row_from_its_place() -> None:
    shelf = Shelf(sample("isotropic", 3000, 96))
    query = sample("isotropic", 1, 96, seed=1)[0]
    table = shelf.filled()
    gone = brute_force(shelf.vectors, query, 15)
    kept = np.setdiff1d(np.arange(3000), gone)
    shelf.vectors, shelf.owners = shelf.vectors[kept], kept
    assert best(table, query, 3000, 10) == kept[brute_force(shelf.vectors, query, 10)].tolist()


def test_codes_are_kept_in_a_file_and_taken_over(tmp_path: Path) -> None:
    shelf = Shelf(sample("isotropic", 5000, 64))
    path = tmp_path / "codes.bin"
    shelf.filled(path).save()
    again = shelf.table(path)
    assert again.load(5000) == 5000
    query = sample("isotropic", 1, 64, seed=1)[0]
    assert best(again, query, 5000, 10) == brute_force(shelf.vectors, query, 10)


def test_few_codes_are_not_worth_a_file(tmp_path: Path) -> None:
    path = tmp_path / "codes.bin"
    Shelf(sample("isotropic", 50, 64)).filled(path).save()
    assert not path.exists()


def test_damaged_codes_and_those_behind_them_are_computed_again(tmp_path: Path) -> None:
    shelf = Shelf(sample("isotropic", 5000, 64))
    path = tmp_path / "codes.bin"
    shelf.filled(path).save()
    data = bytearray(path.read_bytes())
    width = len(data) // 5000
    data[3000 * width + 5] ^= 4
    path.write_bytes(data)
    table = shelf.table(path)
    assert table.load(5000) == 3000
    path.write_bytes(data[: 1000 * width + 17])
    assert shelf.table(path).load(5000) == 1000


def test_codes_of_other_vectors_are_not_taken_over(tmp_path: Path) -> None:
    shelf = Shelf(sample("isotropic", 5000, 64))
    path = tmp_path / "codes.bin"
    shelf.filled(path).save()
    other = Shelf(np.concatenate([shelf.vectors[:2000], sample("isotropic", 3000, 64, seed=1)]))
    assert other.table(path).load(5000) == 2000
    assert shelf.table(path).load(100) == 100


def test_passages_of_one_text_are_taken_over_together_or_not_at_all(tmp_path: Path) -> None:
    owners = np.repeat(np.arange(2500), 2)
    shelf = Shelf(sample("isotropic", 5000, 64), owners)
    path = tmp_path / "codes.bin"
    shelf.filled(path).save()
    width = path.stat().st_size // 5000
    with path.open("r+b") as file:
        file.seek(1001 * width + 3)  # the second passage of row 500
        file.write(b"\xff\x00")
    assert shelf.table(path).load(2500) == 500


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    shelf = Shelf(sample("isotropic", 5000, 64))
    table = shelf.filled(tmp_path / "file" / "codes.bin")
    table.save()
    assert len(table) == 5000
