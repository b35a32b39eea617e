"""The part of the storage contract about `columns`, and about the vectors of stores that keep them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ..changes import Put, Vectors
from ..columns import Columns, Rows
from ..errors import EmbedderMismatchError
from ..interfaces import Storage, VectorSpace
from ..records import Record
from .fakes import HashEmbedder
from .fixtures import ANN, BOB, MakeStorage, StorageFixtures
from .samples import (
    EMBEDDER,
    NOON,
    SPACE,
    assert_columns_agree,
    assert_vectors_kept,
    fact,
    put,
    put_all,
    remove,
)

__all__ = ["ColumnsContract", "VectorsContract"]


class ColumnsContract(StorageFixtures):
    """The columns say what the records say, at one head."""

    def test_columns_agree_with_the_records_after_each_commit(self, storage: Storage, opened: MakeStorage) -> None:
        other = opened()
        steps: list[Callable[[], object]] = [
            lambda: put_all(storage, ANN, [fact("a", entity="city"), fact("b", kind="message"), fact("c")]),
            lambda: put_all(storage, ANN, [fact("a", "moved", entity="city", valid_from=NOON + 5, declared=True)]),
            lambda: put_all(
                other, ANN, [fact("d", entity="city", metadata={"user_id": "u"}), fact("e", entity="city")]
            ),
            lambda: remove(storage, ANN, "b", "a"),
            lambda: put_all(storage, ANN, [fact("b", "again", kind="episode"), fact("e", entity="employer")]),
            lambda: put_all(
                other, ANN, [fact("c", "", kind="purged"), fact("e", valid_to=NOON + 9, closed_at=NOON + 7)]
            ),
            lambda: put_all(storage, ANN, [fact(f"m{i}", kind="message", entity=f"x{i % 7}") for i in range(150)]),
            lambda: remove(other, ANN, *(f"m{i}" for i in range(0, 150, 2))),
            lambda: put_all(other, ANN, [fact("d", valid_to=NOON + 1)]),
        ]
        for step in steps:
            step()
            for handle in (storage, other):
                assert_columns_agree(handle, ANN)
        assert_columns_agree(opened(), ANN)
        assert_columns_agree(opened(), BOB)

    def test_columns_once_given_do_not_change(self, storage: Storage) -> None:
        put_all(storage, ANN, [fact("a", entity="city"), fact("b")])
        columns = storage.columns(ANN)
        before = _copy(columns)
        put_all(
            storage, ANN, [fact("a", "again", entity="employer"), *(fact(f"n{i}", entity=f"e{i}") for i in range(99))]
        )
        remove(storage, ANN, "b")
        storage.columns(ANN)
        assert (columns.head, len(columns)) == (1, 2)
        assert _copy(columns) == before

    def test_rows_of_an_older_head_never_show_a_later_version(self, storage: Storage, opened: MakeStorage) -> None:
        put_all(storage, ANN, [fact("a"), fact("b"), fact("c")])
        columns = storage.columns(ANN)
        put_all(opened(), ANN, [fact("a", "later")])
        remove(storage, ANN, "b")
        rows = np.arange(3)
        assert columns.source.ids(rows) == ["a", "b", "c"]
        found = columns.source.records(rows)
        assert {record.text for record in found} <= {"text of a", "text of b", "text of c"}
        assert found[-1].id == "c"

    def test_records_come_in_the_order_of_the_rows(self, storage: Storage, opened: MakeStorage) -> None:
        put_all(storage, ANN, [fact(id) for id in "abcd"])
        for source in (storage.columns(ANN).source, opened().columns(ANN).source):
            rows = np.array([source.row(id) for id in "dac"])
            assert [record.id for record in source.records(rows)] == list("dac")
            assert source.ids(rows) == list("dac")
            none: Rows = np.empty(0, np.intp)
            assert (source.records(none), source.ids(none)) == ([], [])
            assert source.row("absent") is None

    def test_a_deleted_id_has_no_row(self, storage: Storage, opened: MakeStorage) -> None:
        put_all(storage, ANN, [fact("a"), fact("b")])
        remove(storage, ANN, "a")
        for handle in (storage, opened()):
            assert handle.columns(ANN).source.row("a") is None
            assert handle.columns(ANN).source.row("b") is not None


class VectorsContract(StorageFixtures):
    """For stores with `keeps_vectors`; all of it is skipped for the others."""

    @pytest.fixture
    def vectors(self, opened: MakeStorage) -> Storage:
        storage = opened()
        if not storage.keeps_vectors:
            pytest.skip(f"{storage.name} keeps no vectors")
        return storage

    def test_vectors_come_back_beside_their_rows(self, vectors: Storage, opened: MakeStorage) -> None:
        put_all(vectors, ANN, [fact("a"), fact("b", "three\nlines\nof text"), fact("c"), fact("d")])
        put_all(vectors, ANN, [fact("a", "written again\nin two lines")])
        remove(vectors, ANN, "c")
        for handle in (vectors, opened()):
            assert_vectors_kept(handle, ANN)
        source = vectors.columns(ANN).source
        row_of_b = source.row("b")
        assert row_of_b is not None
        matrix, owners = source.vectors(np.array([row_of_b]))
        assert matrix.shape == (3, SPACE.dim)
        assert list(owners) == [row_of_b] * 3
        vectors.compact()
        for handle in (vectors, opened()):
            assert_vectors_kept(handle, ANN)

    def test_a_record_without_vectors_has_none(self, vectors: Storage, opened: MakeStorage) -> None:
        vectors.commit(ANN, [put(vectors, fact("a")), Put(fact("m", kind="message"))])
        for handle in (vectors, opened()):
            source = handle.columns(ANN).source
            matrix, owners = source.vectors(np.arange(2))
            assert matrix.shape == (1, SPACE.dim)
            assert list(owners) == [source.row("a")]

    def test_the_store_knows_whose_vectors_it_holds(self, make_storage: MakeStorage) -> None:
        with make_storage() as first:
            if not first.keeps_vectors:
                pytest.skip(f"{first.name} keeps no vectors")
            assert first.space is None
            put_all(first, ANN, [fact("a")])
            assert first.space == SPACE
        with make_storage() as second:
            assert second.space == SPACE
            second.adopt(SPACE)

    @pytest.mark.parametrize("other", [VectorSpace("another", SPACE.dim), VectorSpace(SPACE.embedder, SPACE.dim + 1)])
    def test_vectors_of_another_space_are_refused(
        self, vectors: Storage, opened: MakeStorage, make_storage: MakeStorage, other: VectorSpace
    ) -> None:
        put_all(vectors, ANN, [fact("a")])
        with make_storage() as again:
            with pytest.raises(EmbedderMismatchError) as caught:
                again.adopt(other)
            assert (caught.value.stored_id, caught.value.stored_dim) == (SPACE.embedder, SPACE.dim)
            assert (caught.value.given_id, caught.value.given_dim) == (other.embedder, other.dim)
            assert again.space == SPACE
        assert_vectors_kept(opened(), ANN)

    def test_reembed_replaces_all_vectors_at_once(self, vectors: Storage, opened: MakeStorage) -> None:
        for scope in (ANN, BOB):
            put_all(vectors, scope, [fact(f"r{i}", f"line {i}\nand another") for i in range(40)])
            remove(vectors, scope, "r7")
        before = [vectors.snapshot(scope) for scope in (ANN, BOB)]
        new = HashEmbedder(24, "contract-2")
        space = VectorSpace(new.id, new.dim)
        calls: list[int] = []

        def encode(records: list[Record]) -> list[Vectors]:
            calls.append(len(records))
            if len(calls) == 2:
                raise _Interrupted
            return [new.embed_batch(record.text.split("\n")) for record in records]

        try:
            vectors.reembed(space, encode)
        except _Interrupted:
            assert vectors.space == opened().space == SPACE
            for scope in (ANN, BOB):
                assert_vectors_kept(vectors, scope, EMBEDDER)
            vectors.reembed(space, encode)
        assert vectors.space == space
        assert sum(calls) >= 78
        for number, scope in enumerate((ANN, BOB)):
            assert vectors.snapshot(scope).records == before[number].records
            assert_vectors_kept(vectors, scope, new)
            assert_columns_agree(vectors, scope)


class _Interrupted(Exception):
    """Stands for whatever stops the work half-way."""


def _copy(columns: Columns) -> dict[str, object]:
    arrays = {name: getattr(columns, name) for name in columns.__slots__ if name not in ("scope", "source", "chains")}
    copied: dict[str, object] = {n: a.tolist() if isinstance(a, np.ndarray) else a for n, a in arrays.items()}
    codes = columns.chain[columns.chain >= 0]
    return copied | {"chains": [columns.chains[code] for code in codes]}
