"""What is cleared or erased while a model works on it stays away."""

import shutil
import threading

import pytest

from nanomem_core.memory import Memory
from nanomem_core.records import Scope
from nanomem_core.registry.manager import PluginManager
from nanomem_core.system import MemorySystem
from nanomem_core.testing.fakes import HashEmbedder
from nanomem_plugins.markdown.storage import MarkdownStorage
from tests.core.system.models import Blocked, Pairs, messages

CODER = Scope("ann", "coder")


@pytest.fixture
def root(tmp_path):
    return tmp_path / "memory"


CLEARINGS = {
    "clear_all": lambda store, root: store.clear_all(user_id="ann"),
    "clear_all elsewhere": lambda store, root: MarkdownStorage(root).clear_all(user_id="ann"),
    "erase": lambda store, root: store.erase(CODER),
    "the folder removed": lambda store, root: shutil.rmtree(root / "users/ann/agents/coder"),
}


@pytest.mark.parametrize("phase", ["episodes", "facts"])
@pytest.mark.parametrize("clear", CLEARINGS.values(), ids=CLEARINGS.keys())
def test_a_memory_that_is_cleared_while_an_extraction_is_at_the_model_stays_empty(root, clear, phase):
    slow = Blocked()
    with MarkdownStorage(root, check="always") as store:
        memory = Memory(store, HashEmbedder(), taggers=(), plugins=PluginManager(), user="ann", agent="coder")
        system = MemorySystem(memory, segmenter=Pairs(), generator=slow)
        system.add_messages([{"role": "user", "content": "fact: Ann likes tea"}, *messages(1)])
        if phase == "facts":
            slow.go.set()
            system._lanes.close(0)
            system.flush()
            slow.go.clear()
            slow.waiting.clear()
            work = threading.Thread(target=system._jobs.run, args=(CODER,))
        else:
            work = threading.Thread(target=system.flush)
        assert len(list(store.scan(CODER))) == (1 if phase == "facts" else 2)
        work.start()
        assert slow.waiting.wait(60)
        clear(store, root)
        slow.go.set()
        work.join(60)
        assert system.wait(60)
        assert list(store.scan(CODER)) == []
        system.close()
        memory.close()
    with MarkdownStorage(root) as again:
        assert again.scopes() == []
