"""Embeddings are kept on disk: each text is given to the embedder once, whatever happens to the file."""

from __future__ import annotations

import json
import logging
import os
import re
import sqlite3
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from nanomem_core.changes import Vectors
from nanomem_core.cli import main
from nanomem_core.config.model import PluginSettings
from nanomem_core.errors import ConfigError, EmbedderError, FormatError
from nanomem_core.interfaces import Embedder
from nanomem_core.memory import Memory
from nanomem_core.registry.manager import PluginManager
from nanomem_core.testing import EmbedderContract
from nanomem_core.testing.fakes import DictStorage
from nanomem_core.testing.processes import in_processes
from nanomem_plugins.cache import CachePlugin
from nanomem_plugins.cache.embedder import CachedEmbedder
from nanomem_plugins.cache.store import EmbeddingCache
from nanomem_plugins.lexical.embedder import LexicalEmbedder
from tests.memories import CountingEmbedder

MEGABYTE = 1_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "embeddings.sqlite"


def cached(path: Path, limit: int = MEGABYTE, **options: Any) -> tuple[CachedEmbedder, CountingEmbedder]:
    embedder = CountingEmbedder(**options)
    return CachedEmbedder(embedder, EmbeddingCache(path, limit)), embedder


def stats_of(path: Path) -> dict[str, Any]:
    store = EmbeddingCache(path, 0)
    try:
        return store.stats()
    finally:
        store.close()


# What is kept.


def test_each_text_is_embedded_once_also_by_those_who_come_later(path: Path) -> None:
    first, counting = cached(path)
    with first:
        rows = first.embed_batch(["a", "b", "a"])
        np.testing.assert_array_equal(first.embed_batch(["b", "c"])[0], rows[1])
    assert counting.encoded == ["a", "b", "c"]
    second, counting = cached(path)
    with second:
        np.testing.assert_array_equal(second.embed_batch(["a", "b", "a"]), rows)
    assert counting.encoded == []


def test_a_question_is_not_taken_for_a_statement(path: Path) -> None:
    embedder, counting = cached(path)
    with embedder:
        for _ in range(2):
            embedder.embed("a")
            embedder.embed_query("a")
    assert (counting.encoded, counting.questions) == (["a"], ["a"])


@pytest.mark.parametrize("other", [{"id": "another"}, {"dim": 32, "id": "hash-16"}])
def test_vectors_of_another_id_or_width_are_others(path: Path, other: dict[str, Any]) -> None:
    first, _ = cached(path)
    second, counting = cached(path, **other)
    with first, second:
        first.embed("a")
        assert second.embed("a").shape == (second.dim,)
    assert counting.encoded == ["a"]


def test_what_breaks_the_contract_is_not_kept(path: Path) -> None:
    class Wrong(CountingEmbedder):
        def encode(self, texts: Sequence[str]) -> Vectors:
            return super().encode(texts)[:, :-1]

    with CachedEmbedder(Wrong(), EmbeddingCache(path, MEGABYTE)) as embedder:
        with pytest.raises(EmbedderError):
            embedder.embed("a")
        assert stats_of(path)["vectors"] == 0


def test_the_embedder_s_own_name_id_and_attributes_are_seen(path: Path) -> None:
    embedder, counting = cached(path)
    assert (embedder.name, embedder.id, embedder.dim) == ("hash", "hash-16", 16)
    assert embedder.encoded is counting.encoded
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = embedder.nothing_like_it


def _cached_lexical(path: Path) -> CachedEmbedder:
    return CachedEmbedder(LexicalEmbedder(), EmbeddingCache(path, MEGABYTE))


class _Maker:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self) -> Embedder:
        return _cached_lexical(self.path)


class TestCachedEmbedder(EmbedderContract):
    @pytest.fixture
    def make_embedder(self, path: Path) -> Callable[[], Embedder]:
        return _Maker(path)


# The file.


def test_no_text_stands_in_the_file_and_only_its_owner_may_read_it(path: Path) -> None:
    old = os.umask(0)
    try:
        embedder, _ = cached(path)
        with embedder:
            embedder.embed("a secret of mine")
            files = list(path.parent.iterdir())
            assert {"embeddings.sqlite", "embeddings.sqlite-wal"} <= {file.name for file in files}
            for file in files:
                assert b"secret" not in file.read_bytes()
                if os.name != "nt":
                    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    finally:
        os.umask(old)


def test_the_room_is_bounded_and_what_was_used_last_stays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1e9]
    monkeypatch.setattr("nanomem_plugins.cache.store.time.time", lambda: clock[0])
    limit = 400_000
    embedder, counting = cached(path, limit, dim=256)
    with embedder:
        embedder.embed_batch([f"old {number}" for number in range(200)])
        clock[0] += 86_400
        embedder.embed_batch([f"old {number}" for number in range(20)])  # used again, a day later
        for batch in range(12):
            embedder.embed_batch([f"new {batch} {number}" for number in range(10)])
            stats = stats_of(path)
            assert stats["bytes"] <= limit
        assert 200 < stats["vectors"] < 320
        counting.encoded.clear()
        embedder.embed_batch([f"new {batch} {number}" for batch in range(12) for number in range(10)])
        embedder.embed_batch([f"old {number}" for number in range(20)])
        assert counting.encoded == []
        embedder.embed_batch(["old 25"])
        assert counting.encoded == ["old 25"]
    assert path.stat().st_size < 2 * limit


def test_a_vector_that_was_damaged_is_computed_again(path: Path) -> None:
    embedder, counting = cached(path)
    with embedder:
        right = embedder.embed("a")
    with sqlite3.connect(path) as db:
        db.execute("UPDATE vector SET row = zeroblob(length(row))")
    db.close()
    with embedder:
        np.testing.assert_array_equal(embedder.embed("a"), right)
        embedder.embed("a")
    assert counting.encoded == ["a", "a"]


@pytest.mark.parametrize("damage", ["page", "cut"])
def test_a_damaged_file_is_begun_anew(path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    embedder, counting = cached(path)
    with embedder:
        embedder.embed_batch([str(number) for number in range(500)])
    data = path.read_bytes()
    if damage == "page":
        path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    else:
        path.write_bytes(data[:4096])
    counting.encoded.clear()
    with caplog.at_level(logging.WARNING, "nanomem"), embedder:
        for _ in range(3):
            embedder.embed_batch(["1", "2"])
    assert len(counting.encoded) < 6
    assert "damaged and begun anew" in caplog.text
    assert stats_of(path)["vectors"] == 2


@pytest.mark.parametrize("kind", ["text", "database"])
def test_a_file_of_another_kind_is_left_alone(path: Path, kind: str) -> None:
    if kind == "text":
        path.write_text("a diary " * 100, encoding="utf-8")
    else:
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE diary (entry TEXT)")
        db.close()
    before = path.read_bytes()
    embedder, _ = cached(path)
    with embedder:
        for action in (lambda: embedder.embed("a"), lambda: stats_of(path), EmbeddingCache(path, 0).clear):
            with pytest.raises(FormatError, match="another kind of file"):
                action()
    assert path.read_bytes() == before


def test_where_nothing_can_be_kept_texts_are_embedded_and_it_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    embedder, counting = cached(tmp_path / "file" / "embeddings.sqlite")
    with caplog.at_level(logging.WARNING, "nanomem"), embedder:
        for text in ("a", "a", "b"):
            embedder.embed(text)
    assert counting.encoded == ["a", "a", "b"]
    assert caplog.text.count("can't be used") == 1


# Several at once.


def _fill(path: Path, name: str) -> list[float]:
    with _cached_lexical(path) as embedder:
        return [float(embedder.embed_batch([f"{name} {n}", f"shared {n}"]).sum()) for n in range(40)]


def test_several_processes_fill_one_file(path: Path) -> None:
    in_processes(_fill, [(path, name) for name in "abc"])
    assert stats_of(path)["vectors"] == 4 * 40
    class_ = CountingEmbedder(id="lexical-1-512", dim=512)
    with CachedEmbedder(class_, EmbeddingCache(path, MEGABYTE)) as embedder:
        embedder.embed_batch([f"{name} {n}" for name in ("a", "b", "c", "shared") for n in range(40)])
    assert class_.encoded == []


def test_several_threads_share_one(path: Path) -> None:
    embedder, _ = cached(path)
    wrong: list[str] = []

    def work(name: str) -> None:
        for number in range(30):
            text = f"{name}{number % 10}"
            if not np.allclose(embedder.embed(text), CountingEmbedder().embed(text)):
                wrong.append(text)

    threads = [threading.Thread(target=work, args=(name,)) for name in "aab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert stats_of(path)["vectors"] == 20
    embedder.close()


def _die_while_filling(path: Path) -> None:
    class Dies(CountingEmbedder):
        def encode(self, texts: Sequence[str]) -> Vectors:
            if "last" in texts:
                os._exit(9)
            return super().encode(texts)

    embedder = CachedEmbedder(Dies(), EmbeddingCache(path, MEGABYTE))
    for number in range(50):
        embedder.embed(str(number))
    embedder.embed("last")


def test_what_was_kept_before_a_process_died_is_there(path: Path) -> None:
    import multiprocessing

    process = multiprocessing.get_context("spawn").Process(target=_die_while_filling, args=(path,))
    process.start()
    process.join()
    assert process.exitcode == 9
    embedder, counting = cached(path)
    with embedder:
        embedder.embed_batch([str(number) for number in range(50)])
    assert counting.encoded == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_and_its_parent_both_go_on(path: Path) -> None:
    embedder, _ = cached(path)
    with embedder:
        embedder.embed("before")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                embedder.embed_batch(["before", "child"])
                embedder.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        embedder.embed("parent")
        assert stats_of(path)["vectors"] == 3


# The plugin.


def test_it_is_off_unless_it_is_given_room(tmp_path: Path) -> None:
    plugins = PluginManager.discover(data_dir=tmp_path)
    with plugins.build("embedder", "lexical") as embedder:
        assert type(embedder) is LexicalEmbedder
    assert list(tmp_path.iterdir()) == []


def test_settings_turn_it_on_for_embedders_alone(tmp_path: Path) -> None:
    settings = PluginSettings(options={"cache": {"embeddings_mb": "1", "path": "kept/vectors.sqlite"}})
    plugins = PluginManager.discover(settings, data_dir=tmp_path)
    with plugins.build("embedder", {"use": "lexical", "dim": 64}) as embedder:
        assert isinstance(embedder, CachedEmbedder)
        assert embedder.id == "lexical-1-64"
        embedder.embed("a")
    assert (tmp_path / "kept" / "vectors.sqlite").is_file()
    with plugins.build("storage", {"use": "arena", "path": tmp_path / "m.dat"}) as storage:
        assert storage.name == "arena"


def test_an_application_may_register_it_for_its_own_embedders(tmp_path: Path) -> None:
    plugins = PluginManager()
    plugins.register(CachePlugin(1, tmp_path / "vectors.sqlite"))
    counts = []
    for _ in range(2):
        with Memory(DictStorage(), {"use": CountingEmbedder}, taggers=(), plugins=plugins) as memory:
            memory.add("The kettle is red")
            assert memory.search("The kettle is red", mode="vector")[0].cosine == pytest.approx(1, abs=0.5)
            counts.append(len(memory.embedder.encoded) + len(memory.embedder.questions))  # type: ignore[attr-defined]
    assert counts == [2, 0]


def test_negative_room_is_refused() -> None:
    with pytest.raises(ConfigError, match="embeddings_mb"):
        CachePlugin(-1)


# The commands.


@pytest.fixture
def nanomem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NANOMEM_CONFIG", "")
    monkeypatch.setenv("NANOMEM_PLUGINS__OPTIONS__CACHE__EMBEDDINGS_MB", "1")

    def run(*arguments: str) -> Result:
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        return result

    return run


def test_the_commands_tell_and_forget(nanomem: Callable[..., Result], tmp_path: Path) -> None:
    assert json.loads(nanomem("cache", "stats", "--json").stdout)["vectors"] == 0
    assert not (tmp_path / "embeddings.sqlite").exists()
    nanomem("add", "The kettle is red")
    nanomem("search", "red kettle")
    found = json.loads(nanomem("cache", "stats", "--json").stdout)
    assert found["spaces"] == [{"embedder": "lexical-1-512", "dim": 512, "vectors": 2}]
    assert 0 < found["bytes"] < found["limit"] == MEGABYTE
    assert re.match(
        r"2 vectors, 0\.\d MB of at most 1\.0 MB, in .*sqlite\n  2 of lex", nanomem("cache", "stats").stdout
    )
    assert json.loads(nanomem("cache", "clear", "--json").stdout) == {"forgotten": 2}
    assert json.loads(nanomem("cache", "stats", "--json").stdout)["vectors"] == 0
    assert nanomem("cache", "clear").stdout == "Forgot 0 vectors.\n"
    assert nanomem("search", "red kettle").stdout.count("kettle") == 1


def test_importing_the_plugin_imports_no_database() -> None:
    import subprocess

    code = "import sys, nanomem_plugins.cache; sys.exit('sqlite3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
