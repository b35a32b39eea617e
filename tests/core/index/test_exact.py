"""Exact search."""

from __future__ import annotations

import threading

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nanomem_core.index.exact import top_rows
from nanomem_core.index.vectors import FloatVectors

scores_and_mask = st.integers(0, 40).flatmap(
    lambda size: st.tuples(
        hnp.arrays(np.float32, size, elements=st.sampled_from([-np.inf, -1.0, 0.0, 0.25, 0.5, 1.0])),
        hnp.arrays(np.bool_, size),
    )
)


@given(scores_and_mask, st.integers(-1, 45))
def test_the_best_rows_are_those_of_a_full_sort_ties_by_row(given: tuple[np.ndarray, np.ndarray], k: int) -> None:
    scores, where = given
    expected = sorted(np.flatnonzero(where), key=lambda row: (-scores[row], row))[: max(k, 0)]
    assert top_rows(scores, where, k).tolist() == expected


def test_of_equal_scores_the_row_written_first_comes_first() -> None:
    assert top_rows(np.full(1000, 0.5), np.ones(1000, np.bool_), 3).tolist() == [0, 1, 2]


owners_of_blocks = st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=5)


@given(owners_of_blocks, st.integers(0, 30))
def test_the_score_of_a_row_is_that_of_its_best_vector(blocks: list[list[int]], count: int) -> None:
    chance = np.random.default_rng(7)
    table = FloatVectors(4)
    matrix, owners, row = [np.empty((0, 4), np.float32)], [], 0
    for steps in blocks:
        # Steps of 0 give a row another vector, steps over 1 leave rows without one.
        own = []
        row += 1  # all vectors of a row are added together
        for step in steps:
            row += step
            own.append(row)
        vectors = chance.normal(size=(len(own), 4)).astype(np.float32)
        table.append(vectors, np.array(own, np.intp))
        matrix.append(vectors)
        owners += own
    query = chance.normal(size=4).astype(np.float32)
    expected = np.full(count, -np.inf, np.float32)
    every = np.concatenate(matrix)
    for owner, vector in zip(owners, every, strict=True):
        if owner < count:
            expected[owner] = max(expected[owner], vector @ query)
    np.testing.assert_allclose(table.cosines(query, count).values, expected, rtol=1e-5, atol=1e-6)
    for owner in set(owners):
        own_vectors = [vector for one, vector in zip(owners, every, strict=True) if one == owner]
        assert table.best_passage(query, owner) == int(np.argmax(np.array(own_vectors) @ query))
    assert table.best_passage(query, 999) == 0


@given(st.integers(0, 2**32 - 1), st.integers(1, 200), st.sampled_from([10, 1000, 2048, 5000]))
def test_many_scores_are_cut_like_few(seed: int, k: int, size: int) -> None:
    chance = np.random.default_rng(seed)
    scores = chance.integers(0, 50, size).astype(np.float32)  # with many ties
    where = chance.random(size) < chance.choice([0.001, 0.5, 1.0])
    expected = sorted(np.flatnonzero(where), key=lambda row: (-scores[row], row))[:k]
    assert top_rows(scores, where, k).tolist() == expected


def test_a_large_table_gives_the_order_of_a_brute_force_scan() -> None:
    chance = np.random.default_rng(3)
    vectors = chance.normal(size=(5000, 32)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    table = FloatVectors(32)
    for start in range(0, 5000, 700):
        part = vectors[start : start + 700]
        table.append(part, np.arange(start, start + len(part)))
    for query in vectors[:20]:
        exact = vectors.astype(np.float64) @ query.astype(np.float64)
        rows = top_rows(table.cosines(query, 5000).values, np.ones(5000, np.bool_), 10)
        assert rows.tolist() == np.argsort(-exact, kind="stable")[:10].tolist()


def test_a_table_can_be_read_while_it_grows() -> None:
    table, stop, wrong = FloatVectors(2), threading.Event(), []
    query = np.array([1, 0], np.float32)

    def read() -> None:
        while not stop.is_set():
            scores = table.cosines(query, 20_000).values
            filled = int(np.isfinite(scores).sum())
            if not (np.isfinite(scores[:filled]).all() and (scores[:filled] == 1).all()):
                wrong.append(filled)

    reader = threading.Thread(target=read)
    reader.start()
    for row in range(20_000):
        table.append(query[np.newaxis], np.array([row]))
    stop.set()
    reader.join()
    assert wrong == []
