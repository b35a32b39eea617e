"""What the interfaces give to every component."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.changes import Put
from nanomem_core.errors import ConflictError, EmbedderError, InputError
from nanomem_core.interfaces import Component, Embedder, Groups, Segmenter, partition
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
            ([[0, 7, -1, 1.5, None, True], [1]], 2, [[0], [1]]),
            ([["2", 0.0], [" 1 "]], 3, [[0, 2], [1]]),
            ([], 2, [[0, 1]]),
            ("01", 2, [[0, 1]]),
            (None, 1, [[0]]),
            ([[0], 1, {"a": 2}], 3, [[0, 1, 2]]),
            ([[0]], 0, []),
        ],
    )
    def test_a_proposal_is_mended(self, groups, count, expected):
        assert partition(groups, count) == expected

    @pytest.mark.parametrize(
        ("groups", "expected", "repairs"),
        [
            ([[1, 3], [2, 4]], [[0, 2], [1, 3]], {}),
            ([[0, 2], [1, 3]], [[0, 2], [1, 3]], {"zero_based": 1}),
            ([[0, 2], [1]], [[0], [1, 2, 3]], {"out_of_range": 1, "missing": 2}),
            ([[0, 1, 2, 3, 4]], [[0, 1, 2, 3]], {"out_of_range": 1}),
            ([["1", "2.0"], [3.0, "4"]], [[0, 1], [2, 3]], {"coerced": 3, "missing": 1, "not_an_index": 1}),
            ([[1, 1, 2], [2, 3, 4]], [[0, 1], [2, 3]], {"duplicate": 2}),
            ([[1, 2], None, [3, 4, True, 3.5, float("nan"), []]], [[0, 1], [2, 3]], {"not_an_index": 5}),
            ([[-1, 1], [3, 10**400]], [[0, 1], [2, 3]], {"out_of_range": 2, "missing": 2}),
            ([[2], [4]], [[0, 1, 2], [3]], {"missing": 2}),
            (None, [[0, 1, 2, 3]], {"missing": 4}),
        ],
    )
    def test_an_answer_that_counts_from_one_is_mended_and_the_repairs_are_counted(self, groups, expected, repairs):
        result = partition(groups, 4, base=1)
        assert result == expected
        assert result.repairs == repairs

    def test_topics_stay_with_their_groups_and_repairs_add_up(self):
        given = Groups([[2, 3], [], [0, 1, 1]], ["work", "none", "tea"], {"zero_based": 1})
        result = partition(given, 4)
        assert result == [[0, 1], [2, 3]]
        assert result.topics == ["tea", "work"]
        assert result.repairs == {"zero_based": 1, "duplicate": 1}
        assert given.repairs == {"zero_based": 1}
        assert partition([[0], [1]], 2).topics == [None, None]

    anything = st.recursive(
        st.none() | st.integers(-3, 12) | st.floats() | st.text(max_size=2) | st.booleans(), st.lists
    )

    @given(st.lists(st.lists(st.integers(-2, 12))) | anything, st.integers(0, 10), st.sampled_from([0, 1]))
    def test_the_result_is_always_an_exact_partition(self, groups, count, base):
        result = partition(groups, count, base)
        assert len(result.topics) == len(result)
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

    def test_columns_that_were_read_before_a_commit_was_told_of_are_kept(self):
        class Overtaken(DictStorage):
            scans = 0

            def scan(self, scope, kind=None):
                self.scans += 1
                return super().scan(scope, kind)

            def _advance(self, commit):
                self.columns(commit.scope)  # as another thread may, once the commit stands
                super()._advance(commit)

        storage = Overtaken()
        storage.commit(ANN, [Put(Record("a", "x"))])
        scans = storage.scans
        assert storage.columns(ANN).head == 1
        assert storage.scans == scans

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
        assert storage.stats() == {"storage": "dict", "path": None, "read_only": False}

    def test_a_store_has_its_place_without_links_from_the_attribute_path_or_root(self, tmp_path):
        (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
        for name in ("path", "root"):
            storage = DictStorage()
            setattr(storage, name, tmp_path / "link" / "memory")
            assert storage.place == storage.stats()["path"] == os.path.realpath(tmp_path / "memory")


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
