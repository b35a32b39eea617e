"""What is derived from the records of a scope, and kept up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from nanomem_core import view
from nanomem_core.changes import Commit, Vectors
from nanomem_core.columns import Columns, MemoryColumns
from nanomem_core.filters import parse_filter
from nanomem_core.records import Record, Scope
from nanomem_core.testing.fakes import HashEmbedder
from nanomem_core.tokens import Tokenizer
from nanomem_core.view import View
from tests.rows import record

EMBEDDER = HashEmbedder(8)


class Scene:
    """A scope without a store: its records, its columns, and a view of them that counts the texts it embeds."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.source = MemoryColumns(Scope(), 0, (), lambda id: self.records.get(id))
        self.embedded: list[str] = []
        self.view = View(lambda: EMBEDDER.dim, Tokenizer("none"), self.embed, self.records.get)

    def embed(self, records: list[Record]) -> list[Vectors]:
        self.embedded += [record.text for record in records]
        return [EMBEDDER.embed_batch([record.text]) for record in records]

    def put(self, *records: Record) -> Columns:
        new = [replace(r, version=self.records[r.id].version + 1) if r.id in self.records else r for r in records]
        self.records.update((record.id, record) for record in new)
        return self.commit(tuple(new), ())

    def delete(self, *ids: str) -> Columns:
        for id in ids:
            del self.records[id]
        return self.commit((), ids)

    def commit(self, records: tuple[Record, ...], deleted: tuple[str, ...]) -> Columns:
        assert self.source.apply(Commit(Scope(), self.source.head + 1, records, deleted))
        return self.source.columns()

    def nearest(self, columns: Columns, text: str) -> list[str]:
        scores = self.view.vectors(columns).cosines(EMBEDDER.embed_query(text), len(columns)).values
        rows = np.flatnonzero((scores > 0.999) & columns.live)
        return self.source.ids(rows)

    def matching(self, columns: Columns, word: str) -> list[str]:
        return self.source.ids(np.flatnonzero(self.view.text_scores(columns, word, columns.live) > 0))

    def passing(self, columns: Columns, spec: dict[str, object]) -> list[str]:
        parsed = parse_filter(spec)
        assert parsed is not None
        return self.source.ids(np.flatnonzero(self.view.filter_mask(columns, parsed) & columns.live))


def test_only_new_rows_are_embedded() -> None:
    scene = Scene()
    columns = scene.put(record("a"), record("b"))
    assert scene.nearest(columns, "text of a") == ["a"]
    columns = scene.put(record("c"))
    assert scene.nearest(columns, "text of c") == ["c"]
    assert scene.embedded == ["text of a", "text of b", "text of c"]


def test_what_died_before_the_first_question_is_never_read() -> None:
    scene = Scene()
    scene.put(record("a"), record("b"))
    columns = scene.delete("a")
    assert scene.nearest(columns, "text of a") == []
    assert scene.matching(columns, "text") == ["b"]
    assert scene.embedded == ["text of b"]


def test_every_derived_index_follows_a_rewritten_record() -> None:
    scene = Scene()
    columns = scene.put(record("a", metadata={"n": 1}), record("b", metadata={"n": 2}))
    ask: list[Callable[[Columns], list[str]]] = [
        lambda columns: scene.nearest(columns, "new words"),
        lambda columns: scene.matching(columns, "new"),
        lambda columns: scene.passing(columns, {"n": 3}),
    ]
    assert [question(columns) for question in ask] == [[], [], []]
    columns = scene.put(replace(record("a"), text="new words", metadata={"n": 3}))
    assert [question(columns) for question in ask] == [["a"], ["a"], ["a"]]
    assert scene.passing(columns, {"n": {"$ne": 3}}) == ["b"]


def test_a_slow_reader_with_old_columns_still_finds_a_record_that_was_corrected_meanwhile() -> None:
    scene = Scene()
    first = scene.put(record("a"))
    assert scene.nearest(first, "text of a") == scene.matching(first, "text") == ["a"]
    assert scene.passing(first, {"n": {"$exists": False}}) == ["a"]
    old = scene.put(replace(record("a"), metadata={"n": 1}))
    new = scene.put(replace(record("a"), metadata={"n": 2}))
    for columns in (new, old):
        assert scene.nearest(columns, "text of a") == ["a"]
        assert scene.matching(columns, "text") == ["a"]
        assert scene.passing(columns, {"n": {"$exists": True}}) == ["a"]


def test_a_reader_that_is_slower_than_the_first_one_still_finds_a_record_that_was_corrected_meanwhile() -> None:
    scene = Scene()
    assert scene.nearest(scene.put(), "x") == scene.passing(scene.put(), {"n": 1}) == []
    old = scene.put(record("a", metadata={"n": 1}))
    new = scene.put(replace(record("a"), metadata={"n": 2}))
    for columns in (new, old, new):
        assert scene.nearest(columns, "text of a") == ["a"]
        assert scene.matching(columns, "text") == ["a"]
        assert scene.passing(columns, {"n": {"$exists": True}}) == ["a"]


def test_a_row_that_could_not_be_read_passes_no_filter() -> None:
    scene = Scene()
    old = scene.put(record("a", metadata={"owner": "bob"}))
    new = scene.delete("a")
    assert scene.passing(new, {"owner": {"$ne": "bob"}}) == []
    for spec in ({"owner": {"$ne": "bob"}}, {"$not": {"owner": "bob"}}, {"owner": {"$exists": False}}):
        assert scene.passing(old, spec) == []  # type: ignore[arg-type]


def test_reading_rows_gives_the_newest_version_and_leaves_out_what_is_gone() -> None:
    scene = Scene()
    columns = scene.put(record("a"), record("b"), record("c"))
    scene.put(replace(record("b"), text="newer"))
    scene.delete("c")
    found = scene.view.read(columns.source, np.arange(3))
    assert [(row, found.text) for row, found in found] == [(0, "text of a"), (1, "newer")]


def test_other_columns_start_everything_anew() -> None:
    scene, other = Scene(), Scene()
    columns = scene.put(record("a", "x", metadata={"n": 1}))
    foreign = other.put(record("z", "y", metadata={"n": 2}))
    for _ in range(2):
        assert scene.nearest(columns, "text of a") == ["a"]
        assert scene.view.chains_of_entity(columns, "x") == [0]
        assert scene.passing(columns, {"n": 1}) == ["a"]
        assert scene.view.chains_of_entity(foreign, "x") == []
        assert (scene.view.vectors(foreign).cosines(EMBEDDER.embed_query("text of z"), 1).values > 0.999).all()


def test_a_long_scope_is_read_in_runs_and_a_failure_in_one_repeats_none() -> None:
    scene = Scene()
    columns = scene.put(*(record(f"r{number}", metadata={"n": number % 7}) for number in range(9000)))
    real, calls = scene.view._embed, 0

    def flaky(records: list[Record]) -> list[Vectors]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ConnectionError
        assert real is not None
        return real(records)

    scene.view._embed = flaky
    with pytest.raises(ConnectionError):
        scene.nearest(columns, "x")
    for number in (0, 4095, 4096, 8999):
        assert scene.nearest(columns, f"text of r{number}") == [f"r{number}"]
    assert len(scene.embedded) == 9000
    assert len(scene.passing(columns, {"n": 3})) == len(range(3, 9000, 7))
    assert scene.matching(columns, "r8999") == ["r8999"]


def test_an_entity_name_makes_a_record_findable_by_words() -> None:
    scene = Scene()
    columns = scene.put(record("a", "desk_location"))
    assert scene.matching(columns, "desk") == scene.matching(columns, "location") == ["a"]


def test_each_pair_of_entity_names_is_compared_once() -> None:
    scene = Scene()
    asked: list[tuple[str, str]] = []

    def same(entity: str, other: str) -> bool:
        asked.append((entity, other))
        return other.endswith(entity)

    users = [{"user_id": str(number)} for number in range(3)]
    columns = scene.put(*(record(f"{e}{u}", e, metadata=u) for e in ("phone", "my_phone", "city") for u in users))
    for _ in range(3):
        assert scene.view.chains_of_entity(columns, "phone", same) == [0, 1, 2, 3, 4, 5]
    assert asked == [("phone", "phone"), ("phone", "my_phone"), ("phone", "city")]
    columns = scene.put(record("new", "work_phone"))
    assert scene.view.chains_of_entity(columns, "phone", same) == [0, 1, 2, 3, 4, 5, 9]
    assert len(asked) == 4
    assert scene.view.chains_of_entity(columns, "phone") == [0, 1, 2]
    assert scene.view.chains_of_entity(columns, "absent") == []


def test_rows_are_found_by_chain_and_by_time_however_the_columns_grew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "_BATCH", 7)
    monkeypatch.setattr(view, "_MANY_CHAINS", 3)
    scene = Scene()
    chance = np.random.default_rng(1)
    older = None
    for step in range(40):
        entity = None if step % 5 == 0 else f"e{chance.integers(6)}"
        columns = scene.put(record(f"r{chance.integers(25)}", entity, float(chance.integers(10))))
        for held in (columns, older or columns):
            for codes in ([], [0], [1, 2], list(range(len(held.chains)))):
                expected = np.flatnonzero(np.isin(held.chain, codes)).tolist()
                assert scene.view.rows_of_chains(held, codes).tolist() == expected
            found = sorted(scene.view.rows_between(held, "valid_from", 3, 6).tolist())
            assert found == np.flatnonzero((held.valid_from > 3) & (held.valid_from <= 6)).tolist()
            assert scene.view.rows_between(held, "valid_to", 0, float("inf")).tolist() == []
        older = columns if step % 9 == 0 else older


def test_records_of_late_answers_are_read_once_and_never_mistaken_for_newer_ones() -> None:
    scene = Scene()
    scene.put(record("a"), record("b"), replace(record("long"), text="x" * 5000))
    read: list[str] = []

    def fetch(id: str) -> Record | None:
        read.append(id)
        return scene.records.get(id)

    scene.source = MemoryColumns(Scope(), 1, scene.records.values(), fetch)

    def hits(*rows: int) -> list[tuple[int, int]]:
        return [
            (row, found.version) for row, found in scene.view.hits(scene.source, list(rows), lambda row, record: True)
        ]

    assert hits(1, 0) == [(1, 1), (0, 1)]
    assert hits(0, 1, 2) == [(0, 1), (1, 1), (2, 1)]
    assert read == ["b", "a", "long"]
    assert hits(2) == [(2, 1)]
    assert read[3:] == ["long"]  # not kept
    scene.put(record("b"), replace(record("long"), text="x" * 5000))
    assert hits(2) == [(2, 2)]  # the old version is gone, so the newer one stands for it
    assert hits(4, 2) == [(4, 2), (2, 2)]
    assert hits(1, 3) == [(1, 1), (3, 2)]
