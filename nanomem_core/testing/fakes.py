"""Stand-ins that behave exactly the same on every run: for tests of plugins and of applications."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..changes import Plan, Vectors
from ..errors import GeneratorError
from ..interfaces import ChatMessage, Completion, Embedder, Generator, Storage
from ..records import Record, Scope
from ..times import TimeLike, parse_time

__all__ = ["Call", "DictStorage", "FrozenClock", "HashEmbedder", "ScriptedGenerator"]


class FrozenClock:
    """A clock that stands still until it is told to move."""

    def __init__(self, now: TimeLike = "2026-03-10T09:00:00Z") -> None:
        self.now = parse_time(now, "now")

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> float:
        """Move by `seconds`; returns the new present."""
        self.now += seconds
        return self.now


class HashEmbedder(Embedder):
    """Unit vectors made of the SHAKE-256 of the text: equal texts have equal vectors, others are unrelated."""

    name = "hash"

    def __init__(self, dim: int = 16, id: str | None = None) -> None:
        self._dim = dim
        self._id = f"hash-{dim}" if id is None else id

    @property
    def id(self) -> str:
        return self._id

    @property
    def dim(self) -> int:
        return self._dim

    def encode(self, texts: Sequence[str]) -> Vectors:
        # The id is hashed too: embedders with different ids have different vectors.
        digests = [hashlib.shake_256(f"{self._id}\0{text}".encode()).digest(4 * self._dim) for text in texts]
        numbers = np.frombuffer(b"".join(digests), "<u4").reshape(len(texts), self._dim)
        return (numbers / 2**31 - 1).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Call:
    """What a `ScriptedGenerator` was asked."""

    messages: tuple[ChatMessage, ...]
    temperature: float
    max_tokens: int | None
    schema: Mapping[str, Any] | None


Answer = str | Completion | BaseException


class ScriptedGenerator(Generator):
    """Gives the `answers` in turn, raises those that are exceptions, and keeps what it was asked in `calls`.

    `answers` may also be a function, which is given each `Call` and returns or raises the answer; it may run in several
    threads at once.
    """

    name = "scripted"

    def __init__(self, answers: Iterable[Answer] | Callable[[Call], Answer] = ()) -> None:
        self.answers = answers if callable(answers) else list(answers)
        self.calls: list[Call] = []
        self._lock = threading.Lock()

    def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        temperature: float = 0.0,
        max_tokens: int | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Completion:
        """The next answer.

        Raises:
            GeneratorError: there were fewer answers than calls.
        """
        with self._lock:
            index = len(self.calls)
            call = Call(tuple(messages), temperature, max_tokens, schema)
            self.calls.append(call)
        if callable(self.answers):
            answer = self.answers(call)
        elif index < len(self.answers):
            answer = self.answers[index]
        else:
            raise GeneratorError(f"scripted generator: expected at most {len(self.answers)} calls; found one more")
        if isinstance(answer, BaseException):
            raise answer
        return Completion(answer) if isinstance(answer, str) else answer


@dataclass(frozen=True, slots=True)
class _Contents:
    """A scope at one head; replaced as a whole, so whoever reads one sees nothing of later commits."""

    head: int = 0
    records: Mapping[str, Record] = field(default_factory=dict)
    epoch: object = None


class DictStorage(Storage):
    """The smallest correct storage: dictionaries in memory. `shared` opens the contents of another one again."""

    name = "dict"

    def __init__(self, shared: DictStorage | None = None) -> None:
        self._scopes: dict[Scope, _Contents] = {} if shared is None else shared._scopes
        self._lock: threading.Lock = threading.Lock() if shared is None else shared._lock

    def scopes(self) -> list[Scope]:
        self._check_open()
        return [scope for scope, contents in list(self._scopes.items()) if contents.records]

    def head(self, scope: Scope) -> int:
        return self._contents(scope).head

    def get(self, scope: Scope, id: str) -> Record | None:
        return self._contents(scope).records.get(id)

    def scan(self, scope: Scope, kind: str | None = None) -> Iterator[Record]:
        records = self._contents(scope).records.values()
        return (record for record in records if kind is None or record.kind == kind)

    @contextmanager
    def transaction(self, scope: Scope) -> Iterator[_DictTransaction]:
        with self._lock:
            yield _DictTransaction(self._scopes, scope, self._contents(scope))

    def erase(self, scope: Scope) -> None:
        self._check_open()
        with self._lock:
            self._scopes.pop(scope, None)

    def epoch(self, scope: Scope) -> object:
        return self._contents(scope).epoch

    def close(self) -> None:
        self._closed = True

    def _contents(self, scope: Scope) -> _Contents:
        self._check_open()
        return self._scopes.get(scope, _Contents())


class _DictTransaction:
    def __init__(self, scopes: dict[Scope, _Contents], scope: Scope, contents: _Contents) -> None:
        self._scopes = scopes
        self._scope = scope
        self._contents = contents

    @property
    def head(self) -> int:
        return self._contents.head

    def get(self, id: str) -> Record | None:
        return self._contents.records.get(id)

    def tip(self, chain: str) -> int:
        return max((r.revision for r in self._contents.records.values() if r.chain == chain), default=0)

    def apply(self, plan: Plan) -> None:
        plan.check_scope(self._scope)
        records = dict(self._contents.records)
        for id in plan.deletes:
            del records[id]
        records.update((put.record.id, put.record) for put in plan.puts)
        self._scopes[self._scope] = _Contents(plan.head, records, self._contents.epoch or object())
