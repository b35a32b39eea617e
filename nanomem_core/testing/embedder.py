"""The contract of embedders::

class TestMyEmbedder(EmbedderContract):
    @pytest.fixture
    def make_embedder(self):
        return MyEmbedder            # called without arguments, also in another process
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from ..changes import Vectors
from ..interfaces import Embedder
from .processes import in_processes, must_be_picklable

__all__ = ["EmbedderContract", "MakeEmbedder"]

MakeEmbedder = Callable[[], Embedder]

TEXTS = (
    "Works at Alder Foods as a backend engineer.",
    "works at alder foods as a backend engineer.",
    "用户最近在学习机器学习算法，周末喜欢喝乌龙茶。",
    "プロジェクト記憶の設計は来週レビューする。",
    "Meets Zoë at Café Müller 🫖 on Fridays.",
    "",
    " ",
    "?!…",
    "a\0b",
    "line one\nline two\r\n\tline three",
    "word " * 5_000,
)


class EmbedderContract:
    """What `nanomem_core.interfaces.Embedder` promises; see the module."""

    @pytest.fixture
    def make_embedder(self) -> MakeEmbedder:
        """Make the embedder again, with the same options; a plugin's test class overrides this."""
        raise NotImplementedError(f"{type(self).__name__}: expected a fixture make_embedder; see {__name__}")

    @pytest.fixture
    def embedder(self, make_embedder: MakeEmbedder) -> Iterator[Embedder]:
        with make_embedder() as embedder:
            yield embedder

    def test_rows_are_unit_float32_of_the_stated_width(self, embedder: Embedder) -> None:
        rows = embedder.embed_batch(TEXTS)
        assert rows.shape == (len(TEXTS), embedder.dim)
        assert rows.dtype == np.float32
        assert rows.flags.c_contiguous
        np.testing.assert_allclose(np.linalg.norm(rows.astype(np.float64), axis=1), 1, atol=1e-5)
        for vector in (embedder.embed(TEXTS[0]), embedder.embed_query(TEXTS[0])):
            assert vector.shape == (embedder.dim,)
            assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)

    def test_a_batch_gives_what_single_texts_give(self, embedder: Embedder) -> None:
        rows = embedder.embed_batch(TEXTS)
        for text, row in zip(TEXTS, rows, strict=True):
            np.testing.assert_allclose(embedder.embed(text), row, rtol=0, atol=1e-5)
        np.testing.assert_allclose(embedder.embed_batch(TEXTS[::-1])[::-1], rows, rtol=0, atol=1e-5)

    def test_no_text_gives_no_row(self, embedder: Embedder) -> None:
        rows = embedder.embed_batch([])
        assert rows.shape == (0, embedder.dim)
        assert rows.dtype == np.float32

    def test_the_caller_s_list_is_not_changed(self, embedder: Embedder) -> None:
        texts = list(TEXTS)
        embedder.embed_batch(texts)
        assert texts == list(TEXTS)

    def test_unlike_texts_have_unlike_vectors(self, embedder: Embedder) -> None:
        first, second = embedder.embed_batch([TEXTS[0], TEXTS[2]])
        assert float(first @ second) < 0.99

    def test_id_and_width_stay_the_same(self, embedder: Embedder, make_embedder: MakeEmbedder) -> None:
        before = embedder.id, embedder.dim
        embedder.embed_batch(TEXTS)
        assert (embedder.id, embedder.dim) == before
        with make_embedder() as again:
            assert (again.id, again.dim) == before
        assert isinstance(embedder.id, str)
        assert embedder.id
        assert embedder.dim > 0

    def test_another_process_computes_the_same(self, embedder: Embedder, make_embedder: MakeEmbedder) -> None:
        must_be_picklable(make_embedder, "make_embedder")
        [(id, rows)] = in_processes(_embed, [(make_embedder,)])
        assert id == embedder.id
        np.testing.assert_allclose(rows, embedder.embed_batch(TEXTS), rtol=0, atol=1e-5)

    def test_close_may_be_repeated(self, make_embedder: MakeEmbedder) -> None:
        embedder = make_embedder()
        embedder.close()
        embedder.close()


def _embed(make_embedder: MakeEmbedder) -> tuple[str, Vectors]:
    with make_embedder() as embedder:
        return embedder.id, embedder.embed_batch(TEXTS)
