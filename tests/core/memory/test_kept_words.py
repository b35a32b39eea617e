"""What a search by words took to compute is kept beside the vault, and is never trusted for other records."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nanomem_core import Vault
from nanomem_core.tokens import Tokenizer

COUNT = 1100


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vault with facts enough for their words to be kept, none of which was searched yet."""
    path = tmp_path_factory.mktemp("filled") / "memory.dat"
    with opened(path) as vault:
        vault.add_many({"text": f"cup {n} of {('tea', 'milk', 'coffee')[n % 3]}", "timestamp": n} for n in range(COUNT))
    return path


@pytest.fixture
def path(filled: Path, tmp_path: Path) -> Path:
    shutil.copy(filled, tmp_path / "memory.dat")
    return tmp_path / "memory.dat"


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The texts that were cut into tokens to be found."""
    texts: list[str] = []
    original = Tokenizer.index_tokens

    def index_tokens(self: Tokenizer, text: str) -> list[str]:
        texts.append(text)
        return original(self, text)

    monkeypatch.setattr(Tokenizer, "index_tokens", index_tokens)
    return texts


def opened(path: Path, **options: Any) -> Vault:
    return Vault(path, {"use": "lexical", "dim": 64}, durability="os", taggers=(), mode="text", **options)


def kept(path: Path) -> list[Path]:
    return list(path.with_name("memory.dat.derived").glob("words-*"))


def answers(path: Path, question: str = "coffee of cup 77", **options: Any) -> list[tuple[str, float]]:
    with opened(path, **options) as vault:
        return [(hit.text, hit.score) for hit in vault.search(question, 20)]


def test_the_next_process_reads_no_text_again(path: Path, cut: list[str]) -> None:
    first = answers(path)
    assert len(cut) == COUNT
    cut.clear()
    assert answers(path) == first
    assert cut == []


def test_only_what_was_written_since_is_read(path: Path, cut: list[str]) -> None:
    answers(path)
    cut.clear()
    with opened(path) as vault:
        vault.add("a cup of rooibos")
        vault.delete(ids=[vault.search("cup 77", 1)[0].id])
    assert answers(path, "rooibos") == answers(path, "rooibos", read_only=True)
    assert set(cut) == {"a cup of rooibos"}
    assert "77" not in " ".join(text for text, _ in answers(path))


def test_a_copy_that_went_another_way_does_not_use_the_words_of_the_first(path: Path, tmp_path: Path) -> None:
    twin = tmp_path / "twin"
    twin.mkdir()
    shutil.copy(path, twin / "memory.dat")
    for each, drink in ((path, "rooibos"), (twin / "memory.dat", "lemonade")):
        with opened(each) as vault:
            vault.add_many({"text": f"a glass of {drink} {n}", "timestamp": n} for n in range(1500))
            vault.search(drink)
    shutil.rmtree(twin / "memory.dat.derived")
    shutil.copytree(tmp_path / "memory.dat.derived", twin / "memory.dat.derived")
    assert answers(twin / "memory.dat", "rooibos") == []
    assert len(answers(twin / "memory.dat", "lemonade")) == 20


def test_each_language_has_a_file_of_its_own(path: Path) -> None:
    english, plain = answers(path, "cups"), answers(path, "cups", language="none")
    assert len(kept(path)) == 2
    assert len(english) == 20
    assert plain == []
    assert answers(path, "cups", language="none") == plain


def test_a_store_that_is_open_for_reading_keeps_nothing_but_uses_what_is_there(path: Path, cut: list[str]) -> None:
    first = answers(path, read_only=True)
    assert kept(path) == []
    answers(path)
    cut.clear()
    assert answers(path, read_only=True) == first
    assert cut == []


@pytest.mark.parametrize("way", ["compact", "purge", "erase"])
def test_nothing_of_the_words_outlives_the_bytes_of_a_record(path: Path, way: str) -> None:
    answers(path)
    [file] = kept(path)
    before = file.read_bytes()
    with opened(path) as vault:
        hit = vault.search("cup 77 coffee", 1)[0]
        if way == "compact":
            vault.delete(ids=[hit.id])
            vault.compact()
        elif way == "purge":
            vault.purge(hit.id)
        else:
            vault.erase()
    assert [each for each in kept(path) if each.read_bytes() == before] == []
