"""The memory as a text for a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import InputError
from ..frame import Frame
from ..pipeline.context import (
    Budget,
    CountTokens,
    best_known,
    build_context,
    estimate_tokens,
    fact_lines,
    most_facts,
    of_categories,
)
from ..ranking import read_direction
from ..records import Record
from ..results import Entry, SearchResults
from ..times import TimeLike
from .reading import Reading

__all__ = ["Prompting"]


class Prompting(Reading):
    """The part of `Memory` that writes for a language model."""

    def context(
        self,
        query: str | None = None,
        max_tokens: int = 2000,
        *,
        guaranteed: Sequence[str] = ("correction",),
        guaranteed_tokens: int = 500,
        count_tokens: CountTokens = estimate_tokens,
        filter: Mapping[str, Any] | None = None,
        as_of: TimeLike | None = None,
        known_at: TimeLike | None = None,
        user: str | None = None,
        agent: str | None = None,
    ) -> str:
        """What is remembered, as a text for a prompt of at most `max_tokens`; an empty text where nothing fits.

        First come summaries, where there are any, then facts, one a line: ``- [category | 0.95] content``, with
        `category` and `confidence` from the metadata. With a `query` facts are chosen by search, without by confidence
        (0.5 where there is none), then by the time since when they are true. Whatever comes first is never passed over
        for something shorter. Values that were superseded or have ended are left out; if `query` asks about the past
        ("where did I work before?") they may answer, labelled with what replaced them.

        Args:
            guaranteed: categories whose facts come before all others, up to `guaranteed_tokens` of `max_tokens`.
            count_tokens: counts the tokens of a text as the model will; by default an estimate from its characters.
        """
        for name, number in (("max_tokens", max_tokens), ("guaranteed_tokens", guaranteed_tokens)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise InputError(f"{name}: expected a whole number from 0; found {number!r}")
        if isinstance(guaranteed, str):
            raise InputError(f"guaranteed: expected a list of categories; found the text {guaranteed!r}")
        query = query if query is not None and query.strip() else None
        past = query is not None and read_direction(query) != "newest"
        now = self._frame(user=user, agent=agent, filter=filter, as_of=as_of, known_at=known_at)
        frame = replace(now, holding=not past)
        budget = Budget(max_tokens, guaranteed_tokens, count_tokens)
        sure = of_categories(now, filter, guaranteed)
        first = self._chosen(sure, query, budget)
        # A search by words alone finds a part of them, and guaranteed are all.
        found = {entry.id for entry in first}
        first += [entry for entry in best_known(sure, most_facts(budget)) if entry.id not in found]
        facts = self._chosen(frame, query, budget)
        if query is not None:
            self.plugins.searched(frame.columns.scope, query, SearchResults(facts))
        lines = fact_lines(frame, facts)
        return build_context(self._summaries(now), fact_lines(sure, first), lines, budget)

    def _chosen(self, frame: Frame, query: str | None, budget: Budget) -> list[Entry]:
        limit = most_facts(budget)
        if query is None:
            return best_known(frame, limit)
        return list(self._search(frame, query, mode=None, top_k=limit, neighbours=self.neighbours))

    def _summaries(self, frame: Frame) -> list[Record]:
        """Summaries that hold at the frame's times: first those of the user as a whole, then the scope's own."""
        profile = [
            record
            for record in self.storage.profile(frame.columns.scope)
            if (frame.as_of is None or record.valid_from <= frame.as_of)
            and (frame.known_at is None or record.recorded_at <= frame.known_at)
        ]
        own = replace(frame, kind="summary", filter=None, holding=True)
        return [*profile, *own.records(np.flatnonzero(own.allowed).tolist()).values()]
