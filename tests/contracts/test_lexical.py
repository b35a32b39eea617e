"""The lexical embedder keeps the contract of embedders."""

import pytest

from nanomem_core.testing import EmbedderContract
from nanomem_plugins.lexical.embedder import LexicalEmbedder


class TestLexicalEmbedder(EmbedderContract):
    @pytest.fixture
    def make_embedder(self):
        return LexicalEmbedder
