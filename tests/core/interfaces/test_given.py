"""What the interfaces give to every component."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.changes import Put
from nanomem_core.errors import ConflictError, EmbedderError, InputError
from nanomem_core.interfaces import Component, Embedder, Segmenter
from nanomem_core.interfaces.segmenter import partition
from nanomem_core.records import Record, Scope
from nanomem_core.testing import DictStorage

ANN = Scope("ann")


class TestPartition:
    @pytest.mark.parametrize(
        ("groups", "count", "expected"),
        [
            ([[0, 1], [2]], 3, [[0, 1], [2]]),
            ([[2, 0], [1]], 3, [[0, 2], [1]]),
            ([[0, 3], [1, 2]], 4, [[0, 3], [1, 2]]),
            ([[0], [3]], 5, [[0, 1, 2], [3, 4]]),
            ([[2]], 4, [[0, 1, 2, 3]]),
            ([[3], [2]], 5, [[0, 1, 2], [3, 4]]),
            ([[0, 1], [1, 2]], 3, [[0, 1], [2]]),
            ([[0, 7, -1, "1", 1.0, None, True], [1]], 2, [[0], [1]]),
            ([], 2, [[0, 1]]),
            ("01", 2, [[0, 1]]),
            (None, 1, [[0]]),
            ([[0], 1, {"a": 2}], 3, [[0, 1, 2]]),
            ([[0]], 0, []),
        ],
    )
    def test_a_proposal_is_mended(self, groups, count, expected):
        assert partition(groups, count) == expected

    anything = st.recursive(
        st.none() | st.integers(-3, 12) | st.floats() | st.text(max_size=2) | st.booleans(), st.lists
    )

    @given(st.lists(st.lists(st.integers(-2, 12))) | anything, st.integers(0, 10))
    def test_the_result_is_always_an_exact_partition(self, groups, count):
        result = partition(groups, count)
        assert sorted(index for group in result for index in group) == list(range(count))
        assert all(group == sorted(group) and group for group in result)
        assert [group[0] for group in result] == sorted(group[0] for group in result)

    @given(st.data(), st.integers(0, 12))
    def test_an_exact_partition_is_kept(self, data, count):
        owners = data.draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
        groups = [[i for i in range(count) if owners[i] == number] for number in sorted(set(owners))]
        assert sorted(partition(groups, count)) == sorted(groups)

    def test_nothing_is_proposed_for_no_message(self):
        class Unasked(Segmenter):
            name = "unasked"

            def split(self, messages, generator=None):
                raise AssertionError

        assert Unasked().segment([]) == []
        assert Unasked().due([]) is None


class FixedEmbedder(Embedder):
    name = "fixed"
    id = "fixed-1"
    dim = 2

    def __init__(self, answer):
        self.answer = answer

    def encode(self, texts):
        return self.answer


class TestEmbedder:
    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            ([[1, 0]], "expected 2 rows for 2 texts; found 1"),
            ([[1, 0]] * 3, "found 3"),
            ([[1, 0, 0]] * 2, r"expected shape \(m, 2\)"),
            ([[1, 0], [0, 0]], "row 1 is a zero vector"),
            ([[1, 0], [float("nan"), 0]], "must be finite"),
            ([[1, 0], [1]], "expected rows of 2 numbers"),
            (None, "embedder 'fixed'"),
            ([], "expected shape"),
        ],
    )
    def test_rows_that_break_the_contract_are_refused(self, answer, words):
        with pytest.raises(EmbedderError, match=words):
            FixedEmbedder(answer).embed_batch(["a", "b"])

    def test_no_text_asks_nothing(self):
        assert FixedEmbedder("never looked at").embed_batch([]).shape == (0, 2)

    def test_a_question_may_be_encoded_in_a_way_of_its_own(self):
        class Asking(FixedEmbedder):
            def encode_query(self, text):
                return [0, 2]

        embedder = Asking([[3, 0]])
        assert embedder.embed("a").tolist() == [1, 0]
        assert embedder.embed_query("a").tolist() == [0, 1]


class TestStorage:
    def test_an_update_needs_at_least_one_attempt(self):
        with pytest.raises(InputError, match="attempts: expected at least 1; found 0"):
            DictStorage().update(ANN, lambda snapshot: [], attempts=0)

    def test_a_conflict_over_an_id_is_not_repeated(self):
        storage, calls = DictStorage(), []
        storage.commit(ANN, [Put(Record("a", "x"))])

        def compute(snapshot):
            calls.append(snapshot.head)
            return [Put(Record("a", "y"), expect=0)]

        with pytest.raises(ConflictError, match="already exists"):
            storage.update(ANN, compute)
        assert calls == [1]

    def test_columns_are_kept_up_without_reading_everything_again(self):
        class Counting(DictStorage):
            scans = 0

            def scan(self, scope, kind=None):
                self.scans += 1
                return super().scan(scope, kind)

        storage = Counting()
        storage.commit(ANN, [Put(Record("a", "x"))])
        storage.columns(ANN)
        for number in range(5):
            storage.commit(ANN, [Put(Record(f"b{number}", "x"))])
            assert len(storage.columns(ANN)) == number + 2
        assert storage.scans == 1

    def test_columns_are_read_again_after_the_commit_of_another_handle(self):
        storage = DictStorage()
        storage.commit(ANN, [Put(Record("a", "x"))])
        assert storage.columns(ANN).head == 1
        DictStorage(shared=storage).commit(ANN, [Put(Record("b", "x"))])
        assert storage.columns(ANN).source.ids(np.arange(2)) == ["a", "b"]

    def test_columns_do_not_survive_an_erase(self):
        storage = DictStorage()
        for id in "ab":
            storage.commit(ANN, [Put(Record(id, "x"))])
        storage.columns(ANN)
        storage.erase(ANN)
        for id in "xy":
            storage.commit(ANN, [Put(Record(id, "x"))])
        assert storage.columns(ANN).source.ids(np.arange(2)) == ["x", "y"]

    def test_a_store_without_vectors_says_so(self):
        storage = DictStorage()
        assert storage.space is None
        with pytest.raises(NotImplementedError):
            storage.columns(ANN).source.vectors(np.arange(0))
        assert storage.compact() == 0
        assert storage.stats() == {"storage": "dict"}


def test_a_component_is_closed_at_the_end_of_its_block():
    class Noting(Component):
        name = "noting"
        closed = 0

        def close(self):
            self.closed += 1

    part = Noting()
    with pytest.raises(ZeroDivisionError), part as entered:
        divmod(1, 0)
    assert entered is part
    assert part.closed == 1
