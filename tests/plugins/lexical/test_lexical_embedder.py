"""The lexical embedder."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nanomem_core import PluginManager
from nanomem_core.errors import ConfigError
from nanomem_core.testing.embedder import EmbedderContract, MakeEmbedder
from nanomem_plugins.lexical.embedder import LexicalEmbedder

EMBEDDER = LexicalEmbedder()


class TestLexicalEmbedder(EmbedderContract):
    @pytest.fixture
    def make_embedder(self) -> MakeEmbedder:
        return LexicalEmbedder


def cosine(one: str, other: str, embedder: LexicalEmbedder = EMBEDDER) -> float:
    return float(embedder.embed(one) @ embedder.embed(other))


def test_the_plugin_offers_the_embedder() -> None:
    assert PluginManager.discover().find("embedder", "lexical").cls is LexicalEmbedder


def test_importing_the_plugin_loads_neither_numpy_nor_the_embedder() -> None:
    code = (
        "import sys, nanomem_plugins.lexical; print({'numpy', 'nanomem_plugins.lexical.embedder'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_its_id_tells_the_width() -> None:
    assert (EMBEDDER.name, EMBEDDER.dim, EMBEDDER.id) == ("lexical", 512, "lexical-1-512")
    assert LexicalEmbedder(dim=100).id == "lexical-1-100"


@pytest.mark.parametrize("dim", [63, 0, -1])
def test_a_narrow_vector_is_refused(dim: int) -> None:
    with pytest.raises(ConfigError, match=f"dim: expected a width of at least 64; found {dim}") as caught:
        LexicalEmbedder(dim)
    assert caught.value.key == "dim"


def test_the_vector_of_a_word_is_the_documented_one() -> None:
    row = LexicalEmbedder(64).encode(["Tea!"])[0]
    gram = 1 / 7**0.5  # of <tea>: <t te ea a> <te tea ea>
    assert {int(place): float(row[place]) for place in np.flatnonzero(row)} == pytest.approx(
        {10: 1, 56: gram, 3: gram, 30: -gram, 44: gram, 16: gram, 58: -gram, 35: gram}
    )


def test_vectors_are_the_same_in_every_process_and_release() -> None:
    code = (
        "import hashlib, sys; from nanomem_plugins.lexical.embedder import LexicalEmbedder\n"
        "rows = LexicalEmbedder(64).encode(sys.argv[1:])\n"
        "print(hashlib.sha256(rows.astype('<f4').tobytes()).hexdigest())"
    )
    texts = ["Anna moved to Lisbon in 2021.", "用GPT-4o写周报", "Café Müller 🫖", "", "…"]
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code, *texts],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONUTF8": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == "944a3d26574976e096e9bd60419ab759d86316876612303a1ffe6640662c06fd"


@given(st.lists(st.text(), max_size=5))
@example([""])
@example([" \n", "…!", "\ud800", "a" * 10_000, "." * 10_000])
def test_every_text_gives_a_finite_unit_vector(texts: list[str]) -> None:
    rows = EMBEDDER.embed_batch(texts)
    assert rows.shape == (len(texts), 512)
    assert rows.dtype == np.float32
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(len(texts)), abs=1e-5)


@given(st.lists(st.sampled_from(["green tea", "Zoë", "", "乌龙茶", "the 3.11.2"]), min_size=1, max_size=8))
def test_a_text_has_the_same_vector_in_every_batch(texts: list[str]) -> None:
    alone: list[npt.NDArray[np.float32]] = [EMBEDDER.embed(text) for text in texts]
    assert EMBEDDER.embed_batch(texts).tobytes() == np.array(alone).tobytes()


def test_batches_larger_than_a_portion_keep_their_order() -> None:
    texts = [f"fact number {number}" for number in range(1100)]
    rows = EMBEDDER.embed_batch(texts)
    for number in (0, 511, 512, 1024, 1099):
        assert rows[number].tobytes() == EMBEDDER.embed(texts[number]).tobytes()


@pytest.mark.parametrize("dim", [64, 100, 512, 1024])
def test_texts_without_words_differ_unless_they_are_equal(dim: int) -> None:
    embedder = LexicalEmbedder(dim)
    assert cosine("", "  ", embedder) == pytest.approx(1, abs=1e-6)
    assert cosine("…!", " …! ", embedder) == pytest.approx(1, abs=1e-6)
    assert cosine("…!", "???", embedder) < 0.9
    assert cosine("", "tea", embedder) < 0.9


@pytest.mark.parametrize(
    ("text", "near", "far"),
    [
        ("I love hiking in the Alps", "she hikes in the alps", "the invoice is due on Friday"),
        ("my dentist is Dr. Kowalczyk", "dentist kowalzcyk", "my plumber is Mr. Brown"),  # misspelt
        ("用户喜欢喝乌龙茶", "乌龙茶", "机器学习"),
        ("Meets Zoë at Café Müller", "cafe muller", "writes weekly reports"),
    ],
)
def test_texts_with_common_words_are_nearer(text: str, near: str, far: str) -> None:
    assert cosine(text, near) > cosine(text, far) + 0.2


def test_words_of_grammar_do_not_make_texts_alike() -> None:
    assert abs(cosine("what is it that you have", "where is it that you have been in Rome")) < 0.3


def test_a_synonym_is_no_nearer_than_any_word() -> None:
    assert abs(cosine("car", "automobile")) < 0.3
