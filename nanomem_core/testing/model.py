"""The part of the storage contract that plays random operations on a store and on a dictionary, and compares them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ..changes import Change, Commit, Delete
from ..errors import ConflictError
from ..interfaces import Snapshot, Storage
from ..records import Record, Scope
from .fakes import DictStorage
from .fixtures import MakeStorage, StorageFixtures
from .samples import ODD_TEXTS, assert_columns_agree, fact, full_run, put, put_all, remaining

__all__ = ["ModelContract"]

_IDS = st.sampled_from(["a", "A", "b/c", "用户", "longer id"])
_EXPECTATIONS = st.sampled_from([None, None, None, 0, 1, 2])
_RECORDS = st.builds(
    fact,
    _IDS,
    st.sampled_from(ODD_TEXTS[:-1]) | st.text(max_size=20),
    kind=st.sampled_from(["fact", "fact", "fact", "message", "episode", "summary"]),
    entity=st.sampled_from([None, "city", "employer"]),
    declared=st.booleans(),
    revision=st.sampled_from([0, 0, 0, 0, 3]),
    valid_from=st.floats(-1e9, 1e10),
    valid_to=st.none() | st.floats(-1e9, 1e10),
    metadata=st.sampled_from([{}, {"user_id": "u"}, {"tags": ["a", "b"]}]),
)
_PURGED = st.builds(fact, _IDS, st.just(""), kind=st.just("purged"))
_PUTS = st.tuples(_RECORDS | _PURGED, _EXPECTATIONS)
_DELETES = st.builds(Delete, _IDS, _EXPECTATIONS)
_CHANGES = st.lists(_PUTS | _DELETES, max_size=4)


class ModelContract(StorageFixtures):
    """Whatever is done, in whatever order, by either of two handles: the store holds what a dictionary would."""

    def test_random_operations_agree_with_a_dictionary(self, make_storage: MakeStorage) -> None:
        numbers = itertools.count()
        erased: list[Scope] = []

        class Machine(_Machine):
            def __init__(self) -> None:
                # A store may keep something of every scope that there ever was, and grow slow with hundreds.
                super().__init__(make_storage, erased.pop() if erased else Scope(f"run {next(numbers)}", "model"))

            def teardown(self) -> None:
                super().teardown()
                erased.append(self.scope)

        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=400 if full_run() else 20,
                stateful_step_count=30 if full_run() else 15,
                derandomize=not full_run(),
                deadline=None,
            ),
        )


class _Machine(RuleBasedStateMachine):
    def __init__(self, make_storage: MakeStorage, scope: Scope) -> None:
        super().__init__()
        self.make_storage = make_storage
        self.scope = scope
        self.model = DictStorage()
        self.handles = [make_storage(), make_storage()]

    @initialize()
    def begin(self) -> None:
        # Also tells a store with vectors whose they are.
        for storage in (self.model, self.handles[0]):
            put_all(storage, self.scope, [fact("first", entity="city")])

    @rule(handle=st.integers(0, 1), changes=_CHANGES, late=st.sampled_from([None, None, 0, 0, 1]))
    def commit(self, handle: int, changes: list[tuple[Record, int | None] | Delete], late: int | None) -> None:
        expect_head = None if late is None else self.model.head(self.scope) - late

        def play(storage: Storage) -> Commit:
            built: list[Change] = [c if isinstance(c, Delete) else put(storage, *c) for c in changes]
            return storage.commit(self.scope, built, expect_head)

        self._same_outcome(handle, play)

    @rule(handle=st.integers(0, 1))
    def update(self, handle: int) -> None:
        def play(storage: Storage) -> Commit:
            def compute(snapshot: Snapshot) -> list[Change]:
                text = "\n".join(record.id for record in snapshot.records)
                return [put(storage, fact("summary", text, kind="summary")), Delete("a")]

            return storage.update(self.scope, compute)

        self._same_outcome(handle, play)

    @rule(handle=st.integers(0, 1))
    def erase(self, handle: int) -> None:
        for storage in (self.model, self.handles[handle]):
            storage.erase(self.scope)

    @rule(handle=st.integers(0, 1))
    def compact(self, handle: int) -> None:
        self.handles[handle].compact()

    @rule(handle=st.integers(0, 1))
    def reopen(self, handle: int) -> None:
        self.handles[handle].close()
        self.handles[handle] = self.make_storage()

    @invariant()
    def both_handles_show_what_the_model_holds(self) -> None:
        expected = remaining(self.model, self.scope)
        for storage in self.handles:
            assert remaining(storage, self.scope) == expected
            assert (self.scope in storage.scopes()) == bool(expected[1])
            assert_columns_agree(storage, self.scope)

    def teardown(self) -> None:
        self.handles[0].erase(self.scope)
        for storage in self.handles:
            storage.close()

    def _same_outcome(self, handle: int, play: Callable[[Storage], Commit]) -> None:
        expected, found = (_outcome(play, storage) for storage in (self.model, self.handles[handle]))
        assert found == expected


def _outcome(play: Callable[[Storage], Commit], storage: Storage) -> object:
    try:
        return play(storage)
    except ConflictError as error:
        return "conflict", error.id, error.expected, error.found
