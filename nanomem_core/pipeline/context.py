"""A scope's memory as a text for a prompt: summaries, then facts, within a budget of tokens.

Each fact is a list item, ``- [category | 0.95] content``, with what is known of it left out where it is not. Content
is data, not instructions: ``<``, ``>`` and ``&`` are escaped, and the second and later lines of a text are indented, so
that nothing that was remembered can end the block it stands in or pass for another item. Everything else is verbatim.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from ..filters import parse_filter
from ..frame import Frame
from ..prompts import escaped
from ..records import Record, read_share
from ..results import Entry
from ..times import format_date
from .chunking import UNSPACED_CHAR, passages

__all__ = [
    "DEFAULT_CONFIDENCE",
    "Budget",
    "CountTokens",
    "best_known",
    "build_context",
    "estimate_tokens",
    "excerpt",
    "fact_lines",
    "most_facts",
    "most_fitting",
    "of_categories",
    "successor_texts",
]

CountTokens = Callable[[str], int]

DEFAULT_CONFIDENCE = 0.5
"""Of a fact whose metadata has no `confidence` between 0 and 1."""

_SHORTEST_FACT = 8
"""Tokens; facts that are shorter on average may leave a part of a budget unused."""

_MORE = " …"


def estimate_tokens(text: str) -> int:
    """The tokens of `text`, from its characters alone, rounded up.

    Four ASCII characters make a token, and so do two of other alphabets; each character of a script without spaces
    (Chinese, Japanese, Thai …) and of Korean is one. Tokenizers differ; on ordinary prose this is rather too high.
    """
    if text.isascii():
        return -(-len(text) // 4)
    unspaced = len(re.findall(UNSPACED_CHAR, text))
    other = len(re.findall(r"[^\x00-\x7f]", text)) - unspaced
    return -(-(len(text) + other + 3 * unspaced) // 4)


class Budget(NamedTuple):
    """How much a text may hold, in tokens.

    Attributes:
        total: of all together, headers too.
        guaranteed: of `total`, what is kept for facts of guaranteed categories; what they don't need is for all.
        count: counts the tokens of a text.
    """

    total: int
    guaranteed: int
    count: CountTokens


def most_facts(budget: Budget) -> int:
    """How many facts are worth loading."""
    return budget.total // _SHORTEST_FACT + 1


def of_categories(frame: Frame, filter: Mapping[str, Any] | None, categories: Sequence[str]) -> Frame:
    """`frame`, whose filter is `filter`, cut to what holds of these categories."""
    wanted = {"category": {"$in": list(categories)}}
    return replace(frame, holding=True, filter=parse_filter({"$and": [filter, wanted]} if filter else wanted))


def best_known(frame: Frame, limit: int) -> list[Entry]:
    """The entries of the highest confidence, at most `limit`; of equal ones the later `valid_from`, then the later
    written one first."""
    rows = np.flatnonzero(frame.allowed)
    if not len(rows):
        return []
    column = frame.view.values(frame.columns, ["confidence"])["confidence"]
    # One place more than there are values, which answers for the negative codes.
    table = np.array([*map(_confidence, column.values), DEFAULT_CONFIDENCE])
    scores = table[np.maximum(column.codes, -1)][rows]
    order = np.lexsort((-rows, -frame.columns.valid_from[rows], -scores))
    return list(frame.entries(rows[order[:limit]].tolist()).values())


def _confidence(value: Any) -> float:
    share = read_share(value)
    return DEFAULT_CONFIDENCE if share is None else share


def fact_lines(frame: Frame, entries: Sequence[Entry]) -> list[str]:
    """The list item of each entry. One that no longer holds tells since when, and what replaced it.

    Of a text longer than a passage the best passage is shown, or the first.
    """
    successors = successor_texts(frame, entries)
    return [_fact_line(entry, successors.get(entry.id)) for entry in entries]


def successor_texts(frame: Frame, entries: Iterable[Entry]) -> dict[str, str]:
    """The text of the next value of the chain, by the id of each entry that was superseded."""
    following: dict[str, int] = {}
    replaced = {entry.id for entry in entries if entry.status == "superseded"}
    rows = {
        id: row for id in replaced if (row := frame.columns.source.row(id)) is not None and row < len(frame.columns)
    }
    chains = frame.chains(rows.values())
    for id, row in rows.items():
        chain = chains[int(frame.columns.chain[row])].rows.tolist()
        following[id] = chain[chain.index(row) + 1]
    records = frame.records(dict.fromkeys(following.values()))
    return {id: records[row].text for id, row in following.items() if row in records}


def _fact_line(entry: Entry, successor: str | None) -> str:
    metadata = entry.metadata
    label = []
    if isinstance(metadata.get("category"), str) and metadata["category"].strip():
        label.append(escaped(" ".join(metadata["category"].split())))
    if "confidence" in metadata:
        label.append(f"{_confidence(metadata['confidence']):.2f}")
    line = f"- [{' | '.join(label)}] " if label else "- "
    line += escaped(excerpt(entry.text, entry.get("passage")))
    error = metadata.get("sourceError")
    if isinstance(error, str) and error.strip():
        line += f" (avoid: {escaped(error)})"
    if entry.superseded:
        line += f" (until {format_date(entry.superseded_at)}"
        line += ")" if successor is None else f"; then: {escaped(excerpt(successor))})"
    return line


def excerpt(text: str, passage: str | None = None) -> str:
    """What is shown of a text in a prompt: the `passage`, by default the first, with a mark where that is not all."""
    shown = passages(text)[0] if passage is None else passage
    return shown if len(shown) == len(text) else shown + _MORE


def build_context(summaries: Sequence[Record], guaranteed: Sequence[str], facts: Sequence[str], budget: Budget) -> str:
    """The text, of at most `budget.total` tokens, in this order of claims:

    1. `guaranteed`, lines of facts, up to `budget.guaranteed`;
    2. `summaries`, up to half of the total, or more where the facts leave it; the one that does not fit is cut;
    3. `facts`, lines in the order of their rank, up to the first that does not fit. A line of `guaranteed` that found
       no place there stands in `facts` as well.
    """

    def fits(limit: int, *sections: str) -> bool:
        return budget.count(_joined(*sections)) <= limit

    kept = guaranteed[
        : most_fitting(len(guaranteed), lambda n: fits(min(budget.guaranteed, budget.total), _facts(guaranteed[:n])))
    ]
    first = set(kept)
    others = [line for line in facts if line not in first]
    room = max(budget.total // 2, budget.total - budget.count(_facts([*kept, *others])))
    about = _cut_summaries(summaries, lambda text: fits(room, text) and fits(budget.total, text, _facts(kept)))
    count = most_fitting(len(others), lambda n: fits(budget.total, about, _facts([*kept, *others[:n]])))
    return _joined(about, _facts([*kept, *others[:count]]))


def _joined(*sections: str) -> str:
    return "\n\n".join(filter(None, sections))


def _facts(lines: Sequence[str]) -> str:
    return "\n".join(["Facts:", *lines]) if lines else ""


def _cut_summaries(summaries: Sequence[Record], fits: Callable[[str], bool]) -> str:
    items = [_Summary(*_place(record), record.text.strip()) for record in summaries if record.text.strip()]
    whole = most_fitting(len(items), lambda n: fits(_summaries(items[:n])))
    if whole == len(items):
        return _summaries(items)
    cut = items[whole]
    words = [match.end() for match in re.finditer(r"\S+", cut.text)]

    def shortened(count: int) -> str:
        return _summaries([*items[:whole], cut._replace(text=cut.text[: words[count - 1]] + _MORE)])

    count = most_fitting(len(words), lambda n: n == 0 or fits(shortened(n)))
    return shortened(count) if count else _summaries(items[:whole])


class _Summary(NamedTuple):
    section: str
    title: str
    text: str


def _place(record: Record) -> tuple[str, str]:
    """The heading a summary stands under, and its own."""
    section, title = (record.metadata.get(key) for key in ("section", "title"))
    return (
        escaped(" ".join(section.split())) if isinstance(section, str) else "Summary",
        escaped(" ".join(title.split())) if isinstance(title, str) else "",
    )


def _summaries(items: Sequence[_Summary]) -> str:
    sections = []
    for section, members in groupby(items, key=lambda item: item.section):
        lines = [f"- {item.title + ': ' if item.title else ''}{escaped(item.text)}" for item in members]
        sections.append("\n".join([f"{section}:", *lines]))
    return "\n\n".join(sections)


def most_fitting(count: int, fits: Callable[[int], bool]) -> int:
    """The greatest n up to `count` with `fits(n)`, which must hold for 0, and hold for n if it does for n + 1.

    Tokens of a text are not the sum of those of its parts, so the whole is counted: log2(count) times.
    """
    low, high = 0, count
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
