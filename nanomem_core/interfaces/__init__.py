"""The five kinds of pluggable parts, one abstract class a module.

Each class's docstring is the guide to writing one.
"""

from .component import Component
from .embedder import Embedder, Prefixes
from .generator import ChatMessage, Completion, Generator, Stream
from .segmenter import Groups, Segmenter, partition
from .storage import Damage, Migration, Snapshot, Storage, Transaction, VectorSpace
from .tagger import Statement, Tagger

__all__ = [
    "ChatMessage",
    "Completion",
    "Component",
    "Damage",
    "Embedder",
    "Generator",
    "Groups",
    "Migration",
    "Prefixes",
    "Segmenter",
    "Snapshot",
    "Statement",
    "Storage",
    "Stream",
    "Tagger",
    "Transaction",
    "VectorSpace",
    "partition",
]
