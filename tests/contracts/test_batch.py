"""The segmenter batch keeps the contract of segmenters."""

import json

import pytest

from nanomem_core.testing import ScriptedGenerator, SegmenterContract
from nanomem_plugins.batch.segmenter import BatchSegmenter


def pairs(call):
    """Two messages a group, whatever they say."""
    count = int(call.messages[-1]["content"].partition(" ")[0])
    groups = [list(range(first, min(first + 2, count + 1))) for first in range(1, count + 1, 2)]
    return json.dumps({"episodes": [{"indices": group, "topic": f"pair {group[0]}"} for group in groups]})


class TestBatchSegmenter(SegmenterContract):
    @pytest.fixture
    def make_segmenter(self):
        return lambda: BatchSegmenter(window=30, overlap=6)

    @pytest.fixture
    def make_generator(self):
        return lambda: ScriptedGenerator(pairs)
