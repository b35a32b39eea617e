"""Search, in the order in which it happens: divide the question, score all rows, cut, arrange chains, load the hits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from ..columns import Rows
from ..errors import InputError
from ..frame import Frame
from ..index.exact import top_rows
from ..index.vectors import Cosines
from ..ranking import arrange, fuse, resolve_direction
from ..results import Entry, SearchResults
from .chunking import passages
from .questions import split_question

__all__ = ["MODES", "Mode", "SearchRequest", "search"]

Mode = Literal["vector", "text", "hybrid"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A question and how to answer it; see `Memory.search` for the meaning of each field.

    Attributes:
        embed_query: gives the unit vector of a question; not called in mode ``text``.
        intents: gives the entities that a question may ask about, the likeliest first.
        same_entity: tells whether two entity names mean one attribute.
        by_chain: let the value that holds at the asked time lead its chain; False ranks every record for itself.
    """

    question: str
    embed_query: Callable[[str], npt.NDArray[np.float32]]
    intents: Callable[[str], Sequence[str]]
    same_entity: Callable[[str, str], bool]
    top_k: int = 3
    mode: Mode = "hybrid"
    min_score: float = 0.0
    temporal_direction: str = "current"
    decompose: bool = True
    by_chain: bool = True


@dataclass(frozen=True, slots=True)
class _Answer:
    entries: list[Entry]
    qualified: int


def search(frame: Frame, request: SearchRequest) -> SearchResults:
    """Answer `request` from what `frame` shows.

    Raises:
        InputError: an unknown mode or direction.
    """
    if request.mode not in MODES:
        raise InputError(f"mode: expected one of {', '.join(MODES)}; found {request.mode!r}")
    resolve_direction(request.temporal_direction, request.question)
    question = request.question.strip()
    parts = split_question(question) if request.decompose else [question]
    summary = {
        "query": request.question,
        "top_k": request.top_k,
        "mode": request.mode,
        "floor": request.min_score,
        "decomposed": len(parts) > 1,
    }
    if not question or request.top_k <= 0:
        return SearchResults((), summary | {"returned": 0, "n_above_floor": 0, "truncated": False})
    if len(parts) > 1:
        return _search_parts(frame, request, parts, summary)
    answer = _search_one(frame, replace(request, question=question))
    return SearchResults(
        answer.entries,
        summary
        | {
            "returned": len(answer.entries),
            "n_above_floor": answer.qualified,
            "truncated": answer.qualified > len(answer.entries),
        },
    )


def _search_parts(frame: Frame, request: SearchRequest, parts: list[str], summary: dict[str, object]) -> SearchResults:
    """Answer each part by itself, then take turns: every part's best hit comes before any part's second."""
    depth = max(2, request.top_k)
    answers = [_search_one(frame, replace(request, question=part, top_k=depth)) for part in parts]
    queue = [
        (place, -entry["score"], number, entry)
        for number, answer in enumerate(answers)
        for place, entry in enumerate(answer.entries)
    ]
    queue.sort(key=lambda item: item[:3])
    distinct: dict[str, Entry] = {}
    for _, _, number, entry in queue:
        if entry["id"] not in distinct:
            entry["sub_query"] = parts[number]
            distinct[entry["id"]] = entry
    entries = list(distinct.values())[: request.top_k]
    shown = {entry["id"] for entry in entries}
    reports = []
    for part, answer in zip(parts, answers, strict=True):
        returned = sum(entry["id"] in shown for entry in answer.entries)
        reports.append(
            {
                "query": part,
                "n_above_floor": answer.qualified,
                "returned": returned,
                "answered": returned > 0,
                "truncated": answer.qualified > returned,
            }
        )
    return SearchResults(
        entries,
        summary
        | {
            "returned": len(entries),
            "n_above_floor": None,
            "n_distinct_found": len(distinct),
            "truncated": len(distinct) > len(entries) or not all(report["answered"] for report in reports),
            "sub_queries": reports,
        },
    )


def _search_one(frame: Frame, request: SearchRequest) -> _Answer:
    columns, view = frame.columns, frame.view
    cosine = bm25 = None
    if request.mode != "text":
        query = request.embed_query(request.question)
        vectors = view.vectors(columns)
        cosine = vectors.cosines(query, len(columns))
    if request.mode != "vector":
        bm25 = view.text_scores(columns, request.question, frame.allowed)
    floor = request.min_score
    if cosine is not None:
        qualified = frame.allowed & (cosine.high > -np.inf)
        if floor > 0:
            # The cosine decides where there is one, so that a floor means the same in both modes that have it.
            cosine.settle_floor(floor, qualified)
            qualified &= cosine.low >= floor
    else:
        assert bm25 is not None
        qualified = (bm25 > 0) & (bm25 >= floor)
    count = int(np.count_nonzero(qualified))
    rows, values = _best(frame, request, cosine, bm25, qualified)
    if cosine is not None:
        # Codes may promise a vector that turns out to be damaged.
        rows, values = rows[values > -np.inf], values[values > -np.inf]
    order = [(row, row) for row in rows.tolist()]
    chains = frame.chains(rows.tolist())
    if request.by_chain:
        direction = resolve_direction(request.temporal_direction, request.question)
        order = arrange(columns, rows, chains, frame.allowed, direction, request.top_k)
    shown = [row for row, _ in order]
    if cosine is not None:
        cosine.settle(np.array(shown, np.intp))
    score = dict(zip(rows.tolist(), values.tolist(), strict=True))
    # A place keeps its score, so scores descend although a chain's leader may have won the place by its chain alone.
    fields = {
        row: {
            "score": score[winner],
            "cosine": None if cosine is None else _finite(cosine.low[row]),
            "bm25": None if bm25 is None else float(bm25[row]),
        }
        for row, winner in order
    }
    entries = frame.entries(shown, fields, chains)
    for row, entry in entries.items():
        parts = passages(entry["text"])
        best = vectors.best_passage(query, row) if cosine is not None and len(parts) > 1 else 0
        entry["passage"] = parts[best]
    return _Answer(list(entries.values()), count)


def _finite(cosine: np.floating) -> float | None:
    """None for a record without a vector, which may lead its chain all the same."""
    return float(cosine) if np.isfinite(cosine) else None


def _best(
    frame: Frame,
    request: SearchRequest,
    cosine: Cosines | None,
    bm25: npt.NDArray[np.float32] | None,
    qualified: npt.NDArray[np.bool_],
) -> tuple[Rows, npt.NDArray[np.floating]]:
    """The first rows by BM25, by cosine, or by one score of both and of the entity asked for; and their scores."""
    if cosine is None:
        assert bm25 is not None
        rows = top_rows(bm25, qualified, request.top_k)
        return rows, bm25[rows]
    if bm25 is None or not qualified.any():
        return cosine.best(request.top_k, qualified)
    words, span, best = bm25, cosine.span(qualified), float(bm25[qualified].max())
    named = _named_chains(frame, request)
    chosen = np.isin(frame.columns.chain, named) if named else None

    def score(cosines: npt.NDArray[np.float32], rows: Rows | slice) -> npt.NDArray[np.float64]:
        return fuse(cosines, words[rows], span, best, None if chosen is None else chosen[rows])

    return cosine.best(request.top_k, qualified, score)


def _named_chains(frame: Frame, request: SearchRequest) -> list[int]:
    """Codes of the chains of the first entity that the question may ask about and the scope knows."""
    if not frame.columns.chains:
        return []
    for intent in request.intents(request.question):
        codes = frame.view.chains_of_entity(frame.columns, intent, request.same_entity)
        if codes:
            return codes
    return []
