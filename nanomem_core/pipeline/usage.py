"""What the models cost: calls, tokens, time and unreadable answers, by phase of the work and by model."""

from __future__ import annotations

import threading
import time
from collections import Counter, abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import BudgetError, ReplyError
from ..interfaces import ChatMessage, Completion, Generator, Stream

__all__ = ["MeteredGenerator", "Usage", "in_phase"]


@dataclass(slots=True)
class _Totals:
    """One row of the account."""

    calls: int = 0
    errors: int = 0
    replies: int = 0
    format_errors: int = 0
    repairs: Counter[str] = field(default_factory=Counter)
    input_tokens: int = 0
    output_tokens: int = 0
    uncounted: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        known = self.calls - self.errors > self.uncounted
        return {
            "calls": self.calls,
            "errors": self.errors,
            "input_tokens": self.input_tokens if known else None,
            "output_tokens": self.output_tokens if known else None,
            "uncounted_calls": self.uncounted,
            "format_errors": self.format_errors,
            "format_error_rate": self.format_errors / self.replies if self.replies else None,
            "repairs": dict(sorted(self.repairs.items())),
            "seconds": self.seconds,
        }


class Usage:
    """An account of the calls of generators, from the providers' own numbers; holds nothing of what was said.

    A token count that a provider does not give stays unknown: such calls are counted as ``uncounted_calls``, their
    tokens nowhere.

    Args:
        budget: tokens, in and out, that may be used; None sets no limit. It is checked before each call against what
            is counted until then, so calls that run at the same time, and the last one, may go beyond it.
        timer: seconds from any start, for the durations.
    """

    def __init__(self, budget: int | None = None, timer: Callable[[], float] = time.perf_counter) -> None:
        self.budget = budget
        self._timer = timer
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, str], _Totals] = {}
        self._tokens = 0

    def meter(self, generator: Generator, phase: str) -> MeteredGenerator:
        """`generator` with its calls on this account, under the name of the `phase`."""
        return MeteredGenerator(generator, self, phase)

    @property
    def tokens(self) -> int:
        """Tokens counted so far, in and out."""
        return self._tokens

    def to_dict(self) -> dict[str, Any]:
        """The account as JSON types: ``tokens``, ``budget``, and ``phases``, a row for each phase and model.

        A row gives ``phase, model, calls, errors`` (calls that failed), ``input_tokens`` and ``output_tokens`` (None if
        no call was counted), ``uncounted_calls``, ``format_errors`` (answers that could not be used),
        ``format_error_rate`` (their part of the answers that had to be JSON, None if there were none), ``repairs`` (of
        the others, by kind) and ``seconds`` (all calls together).
        """
        with self._lock:
            rows = [{"phase": phase, "model": model, **row.to_dict()} for (phase, model), row in self._rows.items()]
            return {
                "tokens": self._tokens,
                "budget": self.budget,
                "phases": sorted(rows, key=lambda row: (row["phase"], row["model"])),
            }

    def _check_budget(self) -> None:
        with self._lock:
            if self.budget is not None and self._tokens >= self.budget:
                raise BudgetError(self.budget, self._tokens)

    def _called(self, phase: str, model: str, seconds: float, completion: Completion | None) -> None:
        with self._lock:
            row = self._rows.setdefault((phase, model), _Totals())
            row.calls += 1
            row.seconds += seconds
            if completion is None:
                row.errors += 1
                return
            row.uncounted += completion.input_tokens is None or completion.output_tokens is None
            row.input_tokens += completion.input_tokens or 0
            row.output_tokens += completion.output_tokens or 0
            self._tokens += (completion.input_tokens or 0) + (completion.output_tokens or 0)

    def _replied(self, phase: str, model: str, repairs: Mapping[str, int], failed: bool) -> None:
        with self._lock:
            row = self._rows.setdefault((phase, model), _Totals())
            row.replies += 1
            row.format_errors += failed
            row.repairs.update(repairs)


class MeteredGenerator(Generator):
    """A generator with its calls on an account; made by `Usage.meter`. Closing it leaves the other one open."""

    def __init__(self, generator: Generator, usage: Usage, phase: str) -> None:
        self.name = generator.name  # type: ignore[misc]  # what is logged names the one that was asked
        self._generator = generator
        self._usage = usage
        self._phase = phase
        self._model = generator.name

    def phase(self, name: str) -> MeteredGenerator:
        """The same generator and account under another phase."""
        return MeteredGenerator(self._generator, self._usage, name)

    def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        temperature: float = 0.0,
        max_tokens: int | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Completion:
        """The model's next turn.

        Raises:
            BudgetError: the budget is used up; the model is not asked.
            GeneratorError: the model failed.
        """
        self._usage._check_budget()
        began = self._usage._timer()
        completion = None
        try:
            completion = self._generator.complete(
                messages, temperature=temperature, max_tokens=max_tokens, schema=schema
            )
            self._model = completion.model or self._model
            return completion
        finally:
            self._usage._called(self._phase, self._model, self._usage._timer() - began, completion)

    def stream(
        self, messages: Sequence[ChatMessage], *, temperature: float = 0.0, max_tokens: int | None = None
    ) -> Stream:
        """As in `complete`; a stream that is left before its end counts as an error, since its tokens aren't known."""

        def metered() -> abc.Generator[str, None, Completion]:
            self._usage._check_budget()
            began = self._usage._timer()
            completion = None
            try:
                with self._generator.stream(messages, temperature=temperature, max_tokens=max_tokens) as stream:
                    yield from stream
                    completion = stream.completion
                self._model = completion.model or self._model
                return completion
            finally:
                self._usage._called(self._phase, self._model, self._usage._timer() - began, completion)

        return Stream(metered())

    def note_reply(self, repairs: Mapping[str, int], error: ReplyError | None) -> None:
        self._usage._replied(self._phase, self._model, repairs, error is not None)


def in_phase(generator: Generator, name: str) -> Generator:
    """`generator` with its calls counted under the phase `name`, if they are counted."""
    return generator.phase(name) if isinstance(generator, MeteredGenerator) else generator
