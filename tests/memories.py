"""Memories to test: fixtures for every store, an embedder that counts, a tagger that guesses by words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from nanomem_core.changes import Vectors
from nanomem_core.interfaces import Embedder, Generator, Storage, Tagger
from nanomem_core.memory import Memory
from nanomem_core.registry.manager import PluginManager
from nanomem_core.testing.fakes import DictStorage, FrozenClock, HashEmbedder
from nanomem_plugins.arena.storage import ArenaStorage
from nanomem_plugins.jsonl.storage import JsonlStorage
from nanomem_plugins.lexical.embedder import LexicalEmbedder
from nanomem_plugins.markdown.storage import MarkdownStorage

__all__ = [
    "DAY",
    "EMPLOYERS",
    "EVERY_STORE",
    "STORES",
    "CountingEmbedder",
    "Shelf",
    "WordTagger",
    "add_employers",
    "clock",
    "embedder",
    "memory",
    "shelf",
    "storage_in",
    "store",
    "texts",
]

DAY = 86_400.0
STORES = ("dict", "arena")
EVERY_STORE = (*STORES, "jsonl", "markdown")
EMPLOYERS = ("Worked for Acme Corp", "Worked for Birch Labs", "Worked for Cedar & Sons")


class CountingEmbedder(HashEmbedder):
    """Keeps the statements and the questions that it was asked to encode."""

    def __init__(self, dim: int = 16, id: str | None = None) -> None:
        super().__init__(dim, id)
        self.encoded: list[str] = []
        self.questions: list[str] = []

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.encoded += texts
        return super().encode(texts)

    def encode_query(self, text: str) -> Vectors:
        self.questions.append(text)
        return super().encode([text])


class WordTagger(Tagger):
    """Guesses the entity by a word that the text holds."""

    name = "word"

    def __init__(self, entities: Mapping[str, str]) -> None:
        self.entities = entities

    def tag(self, text: str, *, previous: str | None = None, generator: Generator | None = None) -> str | None:
        if text.startswith("It "):
            return previous
        return next((entity for word, entity in self.entities.items() if word in text), None)

    def intents(self, question: str) -> Sequence[str]:
        return [entity for word, entity in self.entities.items() if word in question]


class DictStorageOnDisk(DictStorage):
    """Keeps no vectors, but gives the sidecar a place on disk."""

    def __init__(self, folder: Path, shared: DictStorage | None = None) -> None:
        super().__init__(shared)
        self._folder = folder

    def derived(self) -> Path:
        return self._folder


def storage_in(folder: Path, store: str, **options: Any) -> Storage:
    """The store of that name in `folder`, in one of the forms that several may open at once."""
    if store == "jsonl":
        return JsonlStorage(folder / "lines", **options)
    if store == "markdown":
        return MarkdownStorage(folder / "notes", **options)
    return ArenaStorage(path=folder / "memory.dat", **options)


class Shelf:
    """Opens memories over one store, again and again; all that were opened are closed at the end of a test."""

    def __init__(self, store: str, folder: Path, clock: FrozenClock) -> None:
        self.store = store
        self.folder = folder
        self.clock = clock
        self._first: DictStorage | None = None
        self._opened: list[Memory] = []

    def storage(self) -> Storage:
        if self.store == "arena":
            return storage_in(self.folder, self.store, durability="os")
        if self.store != "dict":
            return storage_in(self.folder, self.store)
        storage = DictStorageOnDisk(self.folder, self._first)
        self._first = self._first or storage
        return storage

    def open(self, embedder: Embedder | None = None, **options: Any) -> Memory:
        defaults: dict[str, Any] = {"taggers": (), "plugins": PluginManager(), "clock": self.clock}
        memory = Memory(self.storage(), HashEmbedder() if embedder is None else embedder, **defaults | options)
        self._opened.append(memory)
        return memory

    def another(self, name: str = "another") -> Shelf:
        """A shelf with a store of the same kind, elsewhere."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        shelf = Shelf(self.store, folder, self.clock)
        shelf._opened = self._opened
        return shelf

    def close(self) -> None:
        for memory in self._opened:
            memory.close()


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shelf(store: str, tmp_path: Path, clock: FrozenClock) -> Iterator[Shelf]:
    shelf = Shelf(store, tmp_path, clock)
    yield shelf
    shelf.close()


@pytest.fixture
def memory(shelf: Shelf) -> Memory:
    return shelf.open()


_EMBEDDERS: dict[str, Callable[[], Embedder]] = {"hash": HashEmbedder, "lexical": LexicalEmbedder}


@pytest.fixture(params=sorted(_EMBEDDERS))
def embedder(request: pytest.FixtureRequest) -> Embedder:
    return _EMBEDDERS[request.param]()


def texts(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    return [entry["text"] for entry in entries]


def add_employers(memory: Memory, order: str = "012", **options: Any) -> list[str]:
    """Three employers, one a day from time 1000 on, written in `order`; the ids by time."""
    ids = {
        number: memory.add(EMPLOYERS[int(number)], entity="employer", timestamp=1000 + int(number) * DAY, **options)
        for number in order
    }
    return [ids[number] for number in sorted(ids)]
