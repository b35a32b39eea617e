"""The segmenter texttiling keeps the contract of segmenters, by words and by vectors."""

import pytest

from nanomem_core.testing import HashEmbedder, SegmenterContract
from nanomem_plugins.texttiling.segmenter import TextTilingSegmenter


class TestTextTilingByWords(SegmenterContract):
    @pytest.fixture
    def make_segmenter(self):
        return TextTilingSegmenter


class TestTextTilingByVectors(SegmenterContract):
    @pytest.fixture
    def make_segmenter(self):
        def make():
            segmenter = TextTilingSegmenter(by="embedder")
            segmenter.embedder = HashEmbedder()
            return segmenter

        return make
