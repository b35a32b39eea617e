"""The keyword tagger keeps the contract of taggers."""

import pytest

from nanomem_core.testing import TaggerContract
from nanomem_plugins.keyword.tagger import KeywordTagger


class TestKeywordTagger(TaggerContract):
    statements = ("I live in Lisbon.", "My dog is called Rex.", "I work at Alder Foods.", "My car is blue.")

    @pytest.fixture
    def make_tagger(self):
        return KeywordTagger
