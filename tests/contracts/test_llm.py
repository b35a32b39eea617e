"""The tagger llm keeps the contract of taggers."""

import json
import re

import pytest

from nanomem_core.testing import ScriptedGenerator, TaggerContract
from nanomem_plugins.llm.tagger import LlmTagger


def last_word(call):
    """A new name made of the last word of each statement, where that is one."""
    statements = call.messages[-1]["content"].partition("<statements>\n")[2]
    answers = []
    for number, text in re.findall(r"^(\d+)\. (.*)$", statements, re.MULTILINE):
        name = text.rstrip(".").rpartition(" ")[2] or None
        answers.append({"statement": int(number), "known": None, "new": name, "confidence": 1})
    return json.dumps({"answers": answers})


class TestLlmTagger(TaggerContract):
    statements = ("I live in Lisbon.", "My dog is called Rex.")

    @pytest.fixture
    def make_tagger(self):
        return lambda: LlmTagger(batch=5)

    @pytest.fixture
    def make_generator(self):
        return lambda: ScriptedGenerator(last_word)
