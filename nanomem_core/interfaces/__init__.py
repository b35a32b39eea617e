"""The five kinds of pluggable parts, one abstract class a module.

Each class's docstring is the guide to writing one.
"""

from .component import Component
from .embedder import Embedder
from .generator import ChatMessage, Completion, Generator
from .segmenter import Segmenter
from .storage import Damage, Snapshot, Storage, Transaction, VectorSpace
from .tagger import Tagger

__all__ = [
    "ChatMessage",
    "Completion",
    "Component",
    "Damage",
    "Embedder",
    "Generator",
    "Segmenter",
    "Snapshot",
    "Storage",
    "Tagger",
    "Transaction",
    "VectorSpace",
]
