"""The conformance kit: what each kind of component promises, as pytest classes, and stand-ins to test with.

Needs the extra ``testing`` (pytest and hypothesis). A plugin's suite is one class and one fixture for each component;
the docstring of each contract shows them. Nothing else of the library imports this package.
"""

# ruff: noqa: E402

import pytest

# Before the modules are imported, so that their assertions show both sides in a plugin's test run too.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in (
            "columns",
            "durability",
            "embedder",
            "fixtures",
            "generator",
            "model",
            "processes",
            "reads",
            "samples",
            "segmenter",
            "sharing",
            "tagger",
            "writes",
        )
    )
)

from .disk import LOSSES, DiskState, Loss, Operation
from .durability import DurabilityContract
from .embedder import EmbedderContract
from .fakes import Call, DictStorage, FrozenClock, HashEmbedder, ScriptedGenerator
from .faults import DiskRecorder, Fault
from .generator import GeneratorContract
from .segmenter import SegmenterContract
from .storage import StorageContract
from .tagger import TaggerContract

__all__ = [
    "LOSSES",
    "Call",
    "DictStorage",
    "DiskRecorder",
    "DiskState",
    "DurabilityContract",
    "EmbedderContract",
    "Fault",
    "FrozenClock",
    "GeneratorContract",
    "HashEmbedder",
    "Loss",
    "Operation",
    "ScriptedGenerator",
    "SegmenterContract",
    "StorageContract",
    "TaggerContract",
]
