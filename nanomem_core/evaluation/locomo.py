"""Evidence recall on LoCoMo: does a search for the question bring back the turns that hold the answer?

LoCoMo (Maharana et al., "Evaluating Very Long-Term Conversational Memory of LLM Agents", ACL 2024) has ten long
conversations and questions with the ids of the turns that answer them. Each conversation is a user, each turn a record
("date speaker: text"), true from the time of its session. Categories 1 to 4 are asked; 5 is about what was never said.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..errors import FormatError, NotFoundError
from ..memory import Memory
from ..pipeline.search import Mode

__all__ = ["CATEGORIES", "DEPTHS", "Conversation", "ModeReport", "Question", "Report", "evaluate", "read_locomo"]

DEPTHS = (1, 5, 10, 20)
CATEGORIES: dict[int, str] = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}

_TURN = re.compile(r"D:?(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its category and the ids of the turns that hold the answer."""

    text: str
    category: int
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation: `turns` are arguments of `Memory.add`."""

    name: str
    turns: tuple[dict[str, Any], ...]
    questions: tuple[Question, ...]


def read_locomo(path: str | Path) -> list[Conversation]:
    """Read ``locomo10.json``. Questions without a known evidence turn, and those of category 5, are left out.

    Raises:
        NotFoundError: no such file.
        FormatError: the file has another form.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFoundError(f"{path}: there is no such file; LoCoMo's locomo10.json is expected") from None
    except ValueError as error:
        raise FormatError(f"{path}: not JSON: {error}") from None
    try:
        return [_conversation(item) for item in data]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{path}: not in the form of LoCoMo's locomo10.json: {error!r}") from error


def _conversation(item: Mapping[str, Any]) -> Conversation:
    talk = item["conversation"]
    turns = []
    sessions = sorted((int(key.removeprefix("session_")), key) for key in talk if re.fullmatch(r"session_\d+", key))
    for _, key in sessions:
        date = talk[f"{key}_date_time"]
        moment = datetime.strptime(date, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        turns += [
            {
                "id": turn["dia_id"],
                "text": f"{date} {turn['speaker']}: {turn['text']}",
                "timestamp": moment,
                "source": "conversation",
            }
            for turn in talk[key]
        ]
    known = {turn["id"] for turn in turns}
    questions = []
    for entry in item["qa"]:
        named = {f"D{int(s)}:{int(t)}" for s, t in _TURN.findall(" ".join(entry.get("evidence", ())))}
        if entry["category"] in CATEGORIES and named & known:
            questions.append(Question(str(entry["question"]), entry["category"], frozenset(named & known)))
    return Conversation(str(item["sample_id"]), tuple(turns), tuple(questions))


@dataclass(frozen=True, slots=True)
class ModeReport:
    """Recall of one search mode, in percent: ``all_turns[k]`` of the questions had every evidence turn in the top k,
    ``any_turn[k]`` at least one; ``by_category`` gives the former for each category's name."""

    mode: str
    questions: int
    all_turns: dict[int, float]
    any_turn: dict[int, float]
    by_category: dict[str, dict[int, float]]
    milliseconds_a_question: float


@dataclass(slots=True)
class Report:
    """Recall of every mode, and what it took. `peak_mb` is the process's peak memory, None where unknown."""

    conversations: int
    turns: int
    embedder: str
    storage: str
    ingest_seconds: float = 0.0
    peak_mb: float | None = None
    modes: list[ModeReport] = field(default_factory=list)


def evaluate(
    memory: Memory,
    conversations: Sequence[Conversation],
    modes: Iterable[Mode] = ("text", "vector", "hybrid"),
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Report:
    """Ingest `conversations` into `memory` (a new one) and ask every question in every mode.

    `progress` is told what is being done, how much of it is done, and of how much.
    """
    turns = sum(len(conversation.turns) for conversation in conversations)
    report = Report(len(conversations), turns, memory.embedder.id, memory.storage.name)
    start = time.perf_counter()
    for number, conversation in enumerate(conversations):
        progress("ingest", number, len(conversations))
        memory.add_many(conversation.turns, user=conversation.name)
    progress("ingest", len(conversations), len(conversations))
    report.ingest_seconds = time.perf_counter() - start
    for mode in modes:
        report.modes.append(_ask(memory, conversations, mode, progress))
    report.peak_mb = _peak_mb()
    return report


def _ask(
    memory: Memory, conversations: Sequence[Conversation], mode: Mode, progress: Callable[[str, int, int], None]
) -> ModeReport:
    total = sum(len(conversation.questions) for conversation in conversations)
    ranks: list[tuple[int, int, int]] = []  # category, worst and best rank of the evidence
    seconds = 0.0
    for conversation in conversations:
        # The first search of a scope builds its index, which is not a question's cost.
        memory.search("?", mode=mode, user=conversation.name)
        for question in conversation.questions:
            progress(f"ask ({mode})", len(ranks), total)
            start = time.perf_counter()
            hits = memory.search(question.text, top_k=DEPTHS[-1], mode=mode, decompose=False, user=conversation.name)
            seconds += time.perf_counter() - start
            place = {hit["id"]: rank for rank, hit in enumerate(hits, 1)}
            found = [place.get(id, sys.maxsize) for id in question.evidence]
            ranks.append((question.category, max(found), min(found)))
    progress(f"ask ({mode})", total, total)
    by_category: dict[int, list[int]] = defaultdict(list)
    for category, worst, _ in ranks:
        by_category[category].append(worst)
    return ModeReport(
        mode,
        total,
        _shares(worst for _, worst, _ in ranks),
        _shares(best for _, _, best in ranks),
        {CATEGORIES[category]: _shares(worst) for category, worst in sorted(by_category.items())},
        1000 * seconds / total if total else 0.0,
    )


def _shares(ranks: Iterable[int]) -> dict[int, float]:
    held = list(ranks)
    return {k: 100 * sum(rank <= k for rank in held) / len(held) if held else 0.0 for k in DEPTHS}


def _peak_mb() -> float | None:
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
