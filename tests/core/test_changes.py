from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.changes import Delete, Plan, Put, check_matrices, check_vectors, plan_commit
from nanomem_core.errors import ConflictError, InputError
from nanomem_core.records import Record, Scope

ANN = Scope("ann")


class Held:
    """A reader over some records."""

    def __init__(self, *records, head=7):
        self.head = head
        self.records = {record.id: record for record in records}

    def get(self, id):
        return self.records.get(id)

    def tip(self, chain):
        return max((r.revision for r in self.records.values() if r.chain == chain), default=0)


def stored(id, text="text", version=1, revision=1, **fields):
    return Record(id, text, version=version, revision=revision, **fields)


def plan(reader, *changes, expect_head=None):
    return plan_commit(reader, ANN, changes, expect_head)


def numbers(plan):
    return [(put.record.id, put.record.version, put.record.revision) for put in plan.puts]


class TestPreconditions:
    def test_without_an_expectation_anything_is_written(self):
        assert numbers(plan(Held(stored("a", version=4)), Put(Record("a", "new")), Put(Record("b", "new")))) == [
            ("a", 5, 1),
            ("b", 1, 1),
        ]

    @pytest.mark.parametrize(
        ("change", "expected", "found", "words"),
        [
            (Put(Record("a", "x"), 0), 0, 4, "already exists \\(version 4\\)"),
            (Put(Record("a", "x"), 3), 3, 4, "expected version 3, found 4; read again"),
            (Put(Record("b", "x"), 1), 1, 0, "there is no such record"),
            (Delete("a", 5), 5, 4, "expected version 5, found 4"),
            (Delete("b", 1), 1, 0, "there is no such record"),
        ],
    )
    def test_an_expectation_that_does_not_hold_is_a_conflict(self, change, expected, found, words):
        with pytest.raises(ConflictError, match=words) as caught:
            plan(Held(stored("a", version=4)), Put(Record("c", "x")), change)
        assert (caught.value.id, caught.value.expected, caught.value.found) == (
            change.id if isinstance(change, Delete) else change.record.id,
            expected,
            found,
        )

    def test_expectations_that_hold_are_no_conflict(self):
        result = plan(
            Held(stored("a", version=4), stored("b")),
            Put(Record("a", "x"), 4),
            Delete("b", 1),
            Put(Record("c", "x"), 0),
        )
        assert numbers(result) == [("a", 5, 1), ("c", 1, 1)]
        assert result.deletes == ("b",)

    @pytest.mark.parametrize("expect", [True, False, -1, 1.0, "1"])
    def test_an_expectation_is_a_whole_number(self, expect):
        for reader in (Held(), Held(stored("a"))):
            with pytest.raises(InputError, match="expect: expected None, 0 or a version"):
                plan(reader, Put(Record("a", "x"), expect))

    def test_the_head_can_be_demanded(self):
        assert plan(Held(), Put(Record("a", "x")), expect_head=7).head == 8
        with pytest.raises(ConflictError, match="expected head 6, found 7") as caught:
            plan(Held(), expect_head=6)
        assert (caught.value.id, caught.value.expected, caught.value.found) == (None, 6, 7)

    def test_a_purged_id_counts_as_absent_but_its_version_goes_on(self):
        reader = Held(stored("a", "", version=4, kind="purged"))
        assert numbers(plan(reader, Put(Record("a", "anew"), 0))) == [("a", 5, 1)]
        with pytest.raises(ConflictError):
            plan(reader, Put(Record("a", "anew"), 4))


class TestOrder:
    def test_later_changes_to_one_id_see_the_earlier_ones(self):
        result = plan(
            Held(stored("a")),
            Put(Record("a", "second"), 1),
            Put(Record("a", "third"), 2),
            Put(Record("new", "x"), 0),
            Delete("new", 1),
            Delete("a", 3),
            Put(Record("a", "again"), 0),
        )
        assert [(put.record.text, put.record.version) for put in result.puts] == [("again", 2)]
        assert result.deletes == ()

    def test_an_id_occurs_once_in_a_plan(self):
        result = plan(Held(stored("a"), stored("b")), Put(Record("a", "x")), Delete("a"), Delete("b"), Delete("b"))
        assert result.puts == ()
        assert result.deletes == ("a", "b")

    def test_deleting_what_is_absent_comes_to_nothing(self):
        result = plan(Held(), Delete("a"), Put(Record("b", "x")), Delete("b"))
        assert result.empty
        assert (result.puts, result.deletes) == ((), ())

    def test_the_commit_of_a_plan_says_what_is_stored_now(self):
        result = plan(Held(stored("gone")), Put(Record("a", "x", entity="city")), Delete("gone"))
        assert result.commit.head == 8
        assert result.commit.records == (Record("a", "x", entity="city", version=1, revision=1),)
        assert result.commit.deleted == ("gone",)


class TestRevisions:
    def test_a_new_member_of_a_chain_gets_the_next_number(self):
        reader = Held(stored("a", entity="city", revision=4), stored("b", entity="employer"))
        result = plan(
            reader, *(Put(Record(id, "x", entity="city")) for id in "xyz"), Put(Record("w", "x", entity="employer"))
        )
        assert [number[2] for number in numbers(result)] == [5, 6, 7, 2]

    def test_a_record_that_stays_in_its_chain_keeps_its_number(self):
        reader = Held(stored("a", entity="city", revision=2), stored("b", entity="city", revision=9))
        assert numbers(plan(reader, Put(Record("a", "x", entity="city")))) == [("a", 2, 2)]
        assert numbers(plan(Held(), *[Put(Record("a", t, entity="city")) for t in "xyz"])) == [("a", 3, 1)]

    def test_a_record_that_moves_gets_the_next_number_of_its_new_chain(self):
        reader = Held(stored("a", entity="city", revision=9), stored("b", entity="employer", revision=2))
        assert numbers(plan(reader, Put(Record("a", "x", entity="employer")))) == [("a", 2, 3)]
        moved = Put(Record("a", "x", entity="city", metadata={"user_id": "u"}))
        assert numbers(plan(reader, moved)) == [("a", 2, 1)]

    def test_a_number_that_is_given_is_kept_and_raises_the_tip(self):
        result = plan(Held(), Put(Record("a", "x", entity="city", revision=5)), Put(Record("b", "x", entity="city")))
        assert [number[2] for number in numbers(result)] == [5, 6]

    def test_a_number_below_the_tip_does_not_lower_it(self):
        reader = Held(stored("a", entity="city", revision=9))
        result = plan(reader, Put(Record("b", "x", entity="city", revision=2)), Put(Record("c", "x", entity="city")))
        assert [number[2] for number in numbers(result)] == [2, 10]

    def test_outside_a_chain_the_number_is_one(self):
        assert numbers(plan(Held(), Put(Record("a", "x")), Put(Record("b", "x", revision=3)))) == [
            ("a", 1, 1),
            ("b", 1, 3),
        ]


class TestMalformed:
    @pytest.mark.parametrize("id", ["", "a\0", "\ud800", "x" * 1025, None])
    def test_a_bad_id_is_refused_before_anything_is_read(self, id):
        class Unread(Held):
            def get(self, id):
                raise AssertionError(f"read {id!r}")

        for change in (Delete(id), Put(Record(id, "x"))):
            with pytest.raises(InputError, match=r"^id: "):
                plan(Unread(), change)

    def test_a_bad_record_is_refused(self):
        with pytest.raises(InputError, match=r"^valid_from: "):
            plan(Held(), Put(Record("a", "x", valid_from=float("nan"))))


changes = st.lists(
    st.builds(
        lambda id, entity: Put(Record(id, "x", entity=entity)),
        st.sampled_from("abc"),
        st.sampled_from([None, "e", "f"]),
    )
    | st.builds(Delete, st.sampled_from("abc")),
    max_size=8,
)


@given(st.lists(changes, max_size=5))
def test_one_commit_and_several_commits_end_with_the_same_records(commits):
    def play(groups):
        records = {}
        for group in groups:
            result = plan(Held(*records.values()), *group)
            records = {id: record for id, record in records.items() if id not in result.deletes}
            records |= {put.record.id: put.record for put in result.puts}
        return records

    together = play([[change for group in commits for change in group]])
    apart = play(commits)
    # A number is freed by a delete only once that is committed: revisions and versions may differ, and nothing else.
    assert {id: replace(r, revision=0, version=0) for id, r in together.items()} == {
        id: replace(r, revision=0, version=0) for id, r in apart.items()
    }


class TestCheckVectors:
    def test_rows_are_scaled_to_unit_length(self):
        rows = check_vectors([[3, 4], [0, -2]], 2)
        assert rows.dtype == np.float32
        assert rows.flags.c_contiguous
        np.testing.assert_allclose(rows, [[0.6, 0.8], [0, -1]], atol=1e-7)

    def test_a_single_vector_becomes_one_row(self):
        assert check_vectors(np.array([1.0, 0.0]), 2).shape == (1, 2)

    def test_unit_rows_are_returned_as_they_are(self):
        rows = np.eye(3, dtype=np.float32)
        assert check_vectors(rows, 3) is rows

    def test_very_small_and_very_large_rows_have_a_direction(self):
        np.testing.assert_allclose(check_vectors([[1e-30, 0], [0, 3e38]], 2), np.eye(2), atol=1e-6)

    @pytest.mark.parametrize(
        ("rows", "words"),
        [
            ([], r"expected shape \(m, 2\)"),
            ([[]], "expected shape"),
            ([[1, 2, 3]], r"found \(1, 3\)"),
            ([[[1, 2]]], "expected shape"),
            (5, "expected shape"),
            ([[1, 2], [3]], "expected rows of 2 numbers"),
            ([["a", "b"]], "expected rows of 2 numbers"),
            ([[None, object()]], "expected rows of 2 numbers"),
            ([[1, float("nan")]], "must be finite"),
            ([[1, float("inf")]], "must be finite"),
            ([[1, 1e300]], "must be finite"),
            ([[1, 0], [0, 0]], "row 1 is a zero vector"),
        ],
    )
    def test_anything_else_is_refused(self, rows, words):
        with pytest.raises(InputError, match=f"^embedder: .*{words}"):
            check_vectors(rows, 2, "embedder")


class TestCheckMatrices:
    def test_each_comes_out_as_it_would_alone(self):
        given = [[3, 4], np.eye(2, dtype=np.float32), np.array([[0.0, -2.0]]), (1e-30, 0)]
        found = check_matrices(given, 2, str)
        assert [len(matrix) for matrix in found] == [1, 2, 1, 1]
        for matrix, alone in zip(found, given, strict=True):
            assert matrix.dtype == np.float32
            assert matrix.flags.c_contiguous
            assert np.array_equal(matrix, check_vectors(alone, 2))

    def test_none_at_all_are_no_error(self):
        assert check_matrices([], 2, str) == []

    @pytest.mark.parametrize(
        "bad", [[], [[]], [1, 2, 3], [[[1, 2]]], 5, [[1, 2], [3]], ["a", "b"], [0, 0], [1, np.nan]]
    )
    def test_the_first_that_is_at_fault_is_named(self, bad):
        with pytest.raises(InputError) as alone:
            check_vectors(bad, 2, "number 1")
        with pytest.raises(InputError) as among_others:
            check_matrices([[1, 0], bad, [0, 1], "worse"], 2, lambda number: f"number {number}")
        assert str(among_others.value) == str(alone.value)

    def test_rows_of_another_width_are_not_taken_for_more_rows(self):
        with pytest.raises(InputError, match=r"^0: expected shape \(m, 2\)"):
            check_matrices([np.ones((1, 4)), np.ones((1, 4))], 2, str)


def test_a_plan_without_changes_is_empty():
    assert Plan(ANN, 1, (), ()).empty
    assert not Plan(ANN, 1, (), ("a",)).empty
