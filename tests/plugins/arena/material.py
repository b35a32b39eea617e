"""Small stores, and all that can be seen of one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nanomem_core.changes import Change, Delete, Put
from nanomem_core.interfaces import VectorSpace
from nanomem_core.records import Record, Scope
from nanomem_plugins.arena.storage import ArenaStorage

ANN, BOB = Scope("ann"), Scope("bob", "coder")
SPACE = VectorSpace("test-1", 4)


def vectors(seed: int, count: int = 1, dim: int = SPACE.dim) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, dim))


def fact(id: str, text: str, seed: int = 0, count: int = 1, entity: str | None = None, **fields: object) -> Put:
    return Put(Record(id, text, entity=entity, **fields), vectors=vectors(seed or len(text), count))


def fill(path: Path, **options: object) -> ArenaStorage:
    """Two scopes, a chain, an update, a deletion, records with several vectors and with none."""
    store = ArenaStorage(path, **options)
    store.adopt(SPACE)
    commits: list[tuple[Scope, list[Change]]] = [
        (ANN, [fact("a", "lives in Rome", entity="city"), fact("b", "likes tea")]),
        (BOB, [fact("a", "works at night", entity="shift", valid_from=5.0, valid_to=9.0)]),
        (ANN, [fact("c", "lives in Oslo", entity="city"), Put(Record("m", "hello", kind="message"))]),
        (ANN, [fact("b", "likes coffee now", count=3), Delete("m")]),
        (ANN, [fact("d", "lives in Lima", entity="city", declared=True, metadata={"user_id": "u", "n": [1, None]})]),
    ]
    for scope, changes in commits:
        store.commit(scope, changes)
    return store


def seen(store: ArenaStorage) -> dict[Scope, tuple[int, dict[str, Record], dict[str, int], list[str]]]:
    """Head, records in the order of `scan`, tips of the chains, and what the columns hold alive, of each scope."""
    result = {}
    for scope in store.scopes():
        columns = store.columns(scope)
        rows = np.flatnonzero(columns.live)
        with_vectors, owners = columns.source.vectors(rows)
        matrices = {
            id: np.round(with_vectors[owners == row], 3).tolist()
            for id, row in zip(columns.source.ids(rows), rows, strict=True)
        }
        standing = [
            repr((id, matrices[id], *(getattr(columns, name)[row].item() for name in ("kind", "declared", "revision"))))
            for id, row in zip(columns.source.ids(rows), rows, strict=True)
        ]
        tips = {chain: _tip(store, scope, chain) for chain in columns.chains}
        records = {record.id: record for record in store.scan(scope)}
        result[scope] = (store.head(scope), records, {k: v for k, v in tips.items() if v}, standing)
    return result


def _tip(store: ArenaStorage, scope: Scope, chain: str) -> int:
    return store._arena.read(lambda table: table.tip(scope, chain), 0)
