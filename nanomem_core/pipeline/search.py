"""Search, in the order in which it happens: divide the question, score all rows, cut, arrange chains, load the hits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from ..columns import Rows
from ..errors import InputError
from ..frame import Frame
from ..index.exact import top_rows
from ..index.vectors import Cosines
from ..ranking import arrange, check_direction, fused, resolve_direction
from ..results import Entry, SearchResults
from .chunking import passages
from .neighbours import considered, lift
from .questions import split_question

__all__ = ["MODES", "Mode", "SearchRequest", "search"]

Mode = Literal["vector", "text", "hybrid"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(slots=True, eq=False)
class SearchRequest:
    """A question and how to answer it; see `Memory.search` for the meaning of each field. Not to be changed.

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
    neighbours: bool = False


class _Answer(NamedTuple):
    entries: list[Entry]
    qualified: int


def search(frame: Frame, request: SearchRequest) -> SearchResults:
    """Answer `request` from what `frame` shows.

    Raises:
        InputError: an unknown mode or direction.
    """
    if request.mode not in MODES:
        raise InputError(f"mode: expected one of {', '.join(MODES)}; found {request.mode!r}")
    check_direction(request.temporal_direction)
    question = request.question.strip()
    parts = split_question(question) if request.decompose else [question]
    summary: dict[str, Any] = {
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
    answer = _search_one(frame, request, question, request.top_k)
    summary["returned"] = len(answer.entries)
    summary["n_above_floor"] = answer.qualified
    summary["truncated"] = answer.qualified > len(answer.entries)
    return SearchResults(answer.entries, summary)


def _search_parts(frame: Frame, request: SearchRequest, parts: list[str], summary: dict[str, Any]) -> SearchResults:
    """Answer each part by itself, then take turns: every part's best hit comes before any part's second."""
    depth = max(2, request.top_k)
    answers = [_search_one(frame, request, part, depth) for part in parts]
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


def _search_one(frame: Frame, request: SearchRequest, question: str, top_k: int) -> _Answer:
    columns, view, allowed = frame.columns, frame.view, frame.allowed
    cosine = bm25 = None
    if request.mode != "text":
        query = request.embed_query(question)
        vectors = view.vectors(columns)
        cosine = vectors.cosines(query, len(columns))
    if request.mode != "vector":
        bm25 = view.text_scores(columns, question, allowed)
    floor = request.min_score
    if cosine is None:
        assert bm25 is not None
        qualified = (bm25 > 0) & (bm25 >= floor)
    elif floor > 0:
        # The cosine decides where there is one, so that a floor means the same in both modes that have it.
        qualified = cosine.reaching(floor, allowed)
    else:
        qualified = cosine.within(allowed)
    worded = np.empty(0, np.intp)
    if bm25 is not None and cosine is not None and floor <= 0 and qualified is not allowed:
        # What has no vector, as messages have none, is found by its words alone.
        worded = np.flatnonzero(allowed & ~qualified & (bm25 > 0))
    count = int(np.count_nonzero(qualified)) + len(worded)
    if not count:
        return _Answer([], 0)
    depth = considered(top_k) if request.neighbours else top_k
    found, scores = _best(frame, request, question, depth, cosine, bm25, qualified, worded)
    if request.neighbours and len(found):
        found, scores = lift(columns, allowed, found, scores)
        found, scores = found[:top_k], scores[:top_k]
    rows, values = found.tolist(), scores.tolist()
    # Places, each a row that is shown and the one that won the place: a place keeps its score, so scores descend
    # although a chain's leader may have won it by its chain alone.
    places = list(zip(rows, rows, strict=True))
    chains = frame.chains(rows)
    if chains and request.by_chain:
        direction = resolve_direction(request.temporal_direction, question)
        places = arrange(columns, found, chains, allowed, direction, top_k)
    shown = [row for row, _ in places]
    score = dict(zip(rows, values, strict=True))
    cosines = [None] * len(shown) if cosine is None else cosine.of(np.array(shown, np.intp)).tolist()
    entries = frame.entries(shown, chains)
    answer = []
    for (row, winner), similarity in zip(places, cosines, strict=True):
        entry = entries.get(row)
        if entry is None:
            continue
        entry["score"] = score[winner]
        # A record without a vector may lead its chain all the same.
        entry["cosine"] = None if similarity == -np.inf else similarity
        entry["bm25"] = None if bm25 is None else float(bm25[row])
        parts = passages(entry["text"])
        best = vectors.best_passage(query, row) if cosine is not None and len(parts) > 1 else 0
        entry["passage"] = parts[best]
        answer.append(entry)
    return _Answer(answer, count)


def _best(
    frame: Frame,
    request: SearchRequest,
    question: str,
    top_k: int,
    cosine: Cosines | None,
    bm25: npt.NDArray[np.float32] | None,
    qualified: npt.NDArray[np.bool_],
    worded: Rows,
) -> tuple[Rows, npt.NDArray[np.floating]]:
    """The first rows by BM25, by cosine, or by one score of both and of the entity asked for; and their scores.

    Rows `worded`, ascending, have no vector: in the last case they count as if they had the least cosine of all.
    """
    if cosine is None:
        assert bm25 is not None
        rows = top_rows(bm25, qualified, top_k)
        return rows, bm25[rows]
    fusion, span = None, (0.0, 1.0)
    some = bool(qualified.any())
    if bm25 is not None:
        codes = _named_chains(frame, request, question)
        span = cosine.span(qualified) if some else span
        best = max(float(bm25.max(where=qualified, initial=0)), float(bm25[worded].max(initial=0)))
        fusion = fused(bm25, span, best, frame.view.rows_of_chains(frame.columns, codes))
    rows, scores = cosine.best(top_k, qualified, fusion) if some else (worded[:0], np.empty(0))
    # Codes may promise a vector that turns out to be damaged.
    count = len(rows) if some and scores[-1] > -np.inf else int(np.count_nonzero(scores > -np.inf))
    rows, scores = rows[:count], scores[:count]
    if fusion is None or not len(worded):
        return rows, scores
    least = np.full(len(worded), span[0], np.float32)
    rows, scores = np.append(rows, worded), np.append(scores, fusion.score(least, worded))
    order = np.lexsort((rows, -scores))[:top_k]
    return rows[order], scores[order]


def _named_chains(frame: Frame, request: SearchRequest, question: str) -> list[int]:
    """Codes of the chains of the first entity that the question may ask about and the scope knows."""
    if not frame.columns.chains:
        return []
    for intent in request.intents(question):
        codes = frame.view.chains_of_entity(frame.columns, intent, request.same_entity)
        if codes:
            return codes
    return []
