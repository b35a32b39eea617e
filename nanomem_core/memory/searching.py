"""Searching."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..frame import Frame
from ..interfaces import Generator
from ..pipeline.multihop import join_hops, name_questions, second_hop_places, written_questions
from ..pipeline.search import Mode, SearchRequest, search
from ..records import clean_text, normalize_entity
from ..results import SearchResults
from ..times import TimeLike
from .base import MemoryBase

__all__ = ["Searching"]


class Searching(MemoryBase):
    """The part of `Memory` that searches."""

    def search(
        self,
        query: str,
        top_k: int | None = None,
        filter: Mapping[str, Any] | None = None,
        min_score: float = 0.0,
        temporal_direction: str = "current",
        decompose: bool = True,
        *,
        mode: Mode | None = None,
        neighbours: bool | None = None,
        multihop: bool = False,
        generator: Generator | None = None,
        entity: str | None = None,
        as_of: TimeLike | None = None,
        known_at: TimeLike | None = None,
        kind: str | None = "fact",
        user: str | None = None,
        agent: str | None = None,
    ) -> SearchResults:
        """The records that answer `query` best, best first, each labelled with its standing at the asked time.

        Search is exact: every record that passes the filter is scored. In a chain whose entity was declared, the
        value that holds at the asked time leads, whatever its wording; older values follow, labelled.

        Args:
            top_k: how many at most; the memory's default for None, nothing for 0 or less.
            filter: which records may answer; applied before the cut.
            min_score: least cosine (in mode ``text``: least BM25 score) of an answer; 0 sets no floor.
            temporal_direction: ``current`` reads the wording ("where did I work *before*?"); ``present``,
                ``newest``, ``latest`` and ``now`` ask for the newest value, ``previous`` for the one before it,
                ``oldest`` and ``historical`` for the first.
            decompose: divide a text that asks several things, and answer each.
            mode: ``vector``, ``text`` (BM25), or ``hybrid`` (a weighted sum of both).
            neighbours: let each record gain a share of the scores of those that were told just before and after it,
                within an hour: for turns of conversations; see `nanomem_core.pipeline.neighbours`. The memory's
                default for None.
            multihop: search once more for what the first hits mention, and give the last fifth of the places to what
                that brings; see `nanomem_core.pipeline.multihop`.
            generator: writes the questions of that second search; for None they are made of names by a rule.
            kind: which records: ``fact``, ``episode``, ``message``, ``summary``, or None for all. Messages have no
                vectors: they are found by their words, so not in mode ``vector``, nor with a least cosine. If there
                is no hit, `SearchResults.other_kinds` tells what was not searched.

        Raises:
            EmbedderMismatchError: the store holds vectors of another embedder (not in mode ``text``).
            GeneratorError: `generator` failed.
        """
        frame = self._frame(
            user=user, agent=agent, kind=kind, filter=filter, entity=entity, as_of=as_of, known_at=known_at
        )
        return self._hops(
            frame,
            query,
            multihop=multihop,
            generator=generator,
            top_k=self.top_k if top_k is None else top_k,
            mode=mode,
            min_score=min_score,
            temporal_direction=temporal_direction,
            decompose=decompose,
            neighbours=neighbours,
        )

    def _hops(
        self,
        frame: Frame,
        query: str,
        *,
        multihop: bool,
        generator: Generator | None,
        top_k: int,
        neighbours: bool | None,
        **options: Any,
    ) -> SearchResults:
        """Search once, or twice if `multihop`, and tell the plugins."""
        options["neighbours"] = self.neighbours if neighbours is None else neighbours
        results = self._search(frame, query, top_k=top_k, **options)
        if multihop and results:
            results = self._second_hop(frame, query, results, generator, top_k, options)
        if not results and query.strip() and top_k > 0 and (others := frame.other_kinds()):
            results.summary["other_kinds"] = others
        self.plugins.searched(frame.columns.scope, query, results)
        return results

    def _second_hop(
        self,
        frame: Frame,
        query: str,
        first: SearchResults,
        generator: Generator | None,
        top_k: int,
        options: Mapping[str, Any],
    ) -> SearchResults:
        if generator is None:
            questions = name_questions(query, first, self._tokenizer, lambda name: self._mentions(frame, name))
        else:
            questions = written_questions(query, first, generator)
        depth = len(first) + second_hop_places(top_k)  # what the first hop found already is no news
        second = [self._search(frame, each, top_k=depth, **{**options, "decompose": False}) for each in questions]
        return join_hops(first, second, top_k)

    def _search(self, frame: Frame, query: str, *, mode: Mode | None, **options: Any) -> SearchResults:
        mode = self.mode if mode is None else mode
        source = frame.columns.source
        fitting = source is self._fitting
        if not fitting and mode != "text" and query.strip():
            self._adopt()

        def embed_query(question: str) -> npt.NDArray[np.float32]:
            vector = self.embedder.embed_query(question)
            if not fitting:
                self._adopt(first=True)
                self._fitting = source
            return vector

        request = SearchRequest(
            clean_text(query),
            embed_query,
            lambda question: [
                normalize_entity(intent) for tagger in self.taggers for intent in tagger.intents(question)
            ],
            lambda entity, other: any(tagger.same(entity, other) for tagger in self.taggers),
            mode=mode,
            **options,
        )
        return search(frame, request)

    @staticmethod
    def _mentions(frame: Frame, words: str) -> int:
        return int(np.count_nonzero(frame.view.text_scores(frame.columns, words, frame.allowed)))
