"""What a memory is made of, and whose vectors a new store holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nanomem_core import Vault
from nanomem_core.errors import EmbedderError, EmbedderMismatchError
from nanomem_core.hookspecs import Plugin
from nanomem_core.interfaces import Generator, Tagger
from nanomem_core.memory import Memory
from nanomem_core.registry.manager import PluginManager
from nanomem_core.system import MemorySystem
from nanomem_core.testing import HashEmbedder, ScriptedGenerator
from nanomem_plugins.texttiling.segmenter import TextTilingSegmenter
from tests.memories import CountingEmbedder


class FolderEmbedder(HashEmbedder):
    def __init__(self, path: Path = Path("model")) -> None:
        super().__init__()
        self.path = path


class FolderTagger(Tagger):
    name = "folder"

    def __init__(self, path: Path = Path("words")) -> None:
        self.path = path

    def tag(self, text: str, *, previous: str | None = None, generator: Generator | None = None) -> str | None:
        return None


class FolderGenerator(ScriptedGenerator):
    def __init__(self, path: Path = Path("weights")) -> None:
        super().__init__()
        self.path = path


class FolderSegmenter(TextTilingSegmenter):
    def __init__(self, path: Path = Path("rules")) -> None:
        super().__init__()
        self.path = path


def test_relative_paths_of_every_part_start_from_the_folder_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    folder = tmp_path / "project"
    folder.mkdir()
    memory = Memory(
        {"use": "arena", "path": "memory.dat"},
        {"use": FolderEmbedder, "path": "models/small"},
        taggers=[{"use": FolderTagger}],
        generator={"use": FolderGenerator},
        data_dir=folder,
    )
    with memory, MemorySystem(memory, segmenter={"use": FolderSegmenter}, generator={"use": FolderGenerator}) as system:
        parts = [memory.embedder, *memory.taggers, memory.generator, system.generator, system.segmenters[0]]
        memory.add("I like tea")
        found = [part.path.relative_to(folder).as_posix() for part in parts]  # type: ignore[union-attr]
    assert found == ["models/small", "words", "weights", "weights", "rules"]
    assert (folder / "memory.dat").exists()
    assert list(elsewhere.iterdir()) == []


def test_the_folder_of_a_settings_file_counts_from_wherever_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nanomem.yaml").write_text(
        "data_dir: .\nembedder: {use: folder, path: models/small}\n", encoding="utf-8"
    )
    monkeypatch.chdir("/")
    monkeypatch.setenv("NANOMEM_CONFIG", "")
    plugins = PluginManager.discover()

    class Named(FolderEmbedder):
        name = "folder"

    class Offering(Plugin):
        def nanomem_register_embedder(self) -> tuple[type[Named]]:
            return (Named,)

    plugins.register(Offering())
    with Memory.open(tmp_path / "nanomem.yaml", plugins=plugins) as memory:
        assert memory.embedder.path == tmp_path / "models" / "small"  # type: ignore[attr-defined]


class Narrow(HashEmbedder):
    """Says that it is wider than it is, as where a declared width is wrong."""

    def encode(self, texts: Sequence[str]) -> Any:
        return np.asarray(super().encode(texts))[:, 1:]


def test_a_store_whose_first_write_failed_or_was_only_asked_belongs_to_no_embedder(tmp_path: Path) -> None:
    path = tmp_path / "memory.dat"
    with Vault(path, Narrow(), taggers=()) as vault:
        for attempt in (lambda: vault.add("I like tea"), lambda: vault.search("tea")):
            with pytest.raises(EmbedderError, match="expected"):
                attempt()
        assert vault.storage.space is None
    with Vault(path, HashEmbedder(16), taggers=()) as vault:
        vault.add("I like tea")
        assert [hit.text for hit in vault.search("tea")] == ["I like tea"]


def test_no_text_is_embedded_for_a_store_of_another_embedder(tmp_path: Path) -> None:
    path = tmp_path / "memory.dat"
    with Vault(path, HashEmbedder(16), taggers=()) as vault:
        vault.add("I like tea")
    embedder = CountingEmbedder(id="other")
    with Vault(path, embedder, taggers=()) as vault:
        for attempt in (lambda: vault.add("Coffee, too"), lambda: vault.search("tea")):
            with pytest.raises(EmbedderMismatchError):
                attempt()
    assert embedder.encoded == embedder.questions == []
