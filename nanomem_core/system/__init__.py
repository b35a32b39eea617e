"""`MemorySystem`: what an application talks to that remembers conversations.

Messages are records that wait (`buffer`); a segmenter groups them, a model tells each group as an episode (`cutting`),
and facts are drawn from episodes (`jobs`) beside what is known (`knowledge`), in the background (`lanes`). Whatever
calls a model works on a snapshot and holds no lock; its result is committed if what it was made of is as it was.
"""

from .buffer import MessageBuffer, MessageBufferManager
from .facade import MemorySystem

__all__ = ["MemorySystem", "MessageBuffer", "MessageBufferManager"]
