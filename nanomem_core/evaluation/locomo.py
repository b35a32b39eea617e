"""Evidence recall on LoCoMo: does a search for the question bring back the turns that hold the answer?

LoCoMo (Maharana et al., "Evaluating Very Long-Term Conversational Memory of LLM Agents", ACL 2024) has ten long
conversations and questions with the ids of the turns that answer them. Each conversation is a user, and its turns are
the records, or what is made of them (see `nanomem_core.evaluation.units`), true from the time of their session.
Categories 1 to 4 are asked; 5 is about what was never said.
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
from itertools import accumulate
from pathlib import Path
from typing import Any

from ..errors import FormatError, NotFoundError
from ..memory import Memory
from ..pipeline.context import estimate_tokens
from ..pipeline.search import Mode
from .units import Ingest, Turn, Unit, turns

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
    """One conversation, its turns in the order of time."""

    name: str
    turns: tuple[Turn, ...]
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
    said: list[Turn] = []
    sessions = sorted((int(key.removeprefix("session_")), key) for key in talk if re.fullmatch(r"session_\d+", key))
    for _, key in sessions:
        date = talk[f"{key}_date_time"]
        moment = datetime.strptime(date, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        said += [Turn(str(turn["dia_id"]), str(turn["speaker"]), str(turn["text"]), date, moment) for turn in talk[key]]
    known = {turn.id for turn in said}
    questions = []
    for entry in item["qa"]:
        named = {f"D{int(s)}:{int(t)}" for s, t in _TURN.findall(" ".join(entry.get("evidence", ())))}
        if entry["category"] in CATEGORIES and named & known:
            questions.append(Question(str(entry["question"]), entry["category"], frozenset(named & known)))
    return Conversation(str(item["sample_id"]), tuple(said), tuple(questions))


@dataclass(frozen=True, slots=True)
class ModeReport:
    """Recall of one search mode, in percent.

    Attributes:
        all_turns: of the questions, those that had every evidence turn in the first k hits, by k.
        any_turn: the same with at least one.
        by_category: `all_turns` for each category's name.
        last_all_turns, last_any_turn: the same two of the last conversations alone; empty if none were set apart.
        tokens: mean size of the first k hits together, estimated from their characters, by k.
        within: of the questions, those that had every evidence turn in the first hits of so many tokens together, by
            that number: what compares units of different sizes.
    """

    mode: str
    questions: int
    all_turns: dict[int, float]
    any_turn: dict[int, float]
    by_category: dict[str, dict[int, float]]
    last_all_turns: dict[int, float]
    last_any_turn: dict[int, float]
    tokens: dict[int, float]
    within: dict[int, float]
    milliseconds_a_question: float


@dataclass(slots=True)
class Report:
    """Recall of every mode, and what it took. `peak_mb` is the process's peak memory, None where unknown.

    Attributes:
        records: that the `turns` became.
    """

    conversations: int
    turns: int
    records: int
    embedder: str
    storage: str
    ingest_seconds: float = 0.0
    peak_mb: float | None = None
    modes: list[ModeReport] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Answer:
    """Where a question's evidence was: the `worst` and the `best` rank of its turns, and the `sizes` of the hits in
    tokens, each with those before it."""

    category: int
    worst: int
    best: int
    sizes: list[int]

    def size(self, depth: int) -> int:
        """Tokens of the first `depth` hits, or of all where there are fewer."""
        return self.sizes[min(depth, len(self.sizes)) - 1] if self.sizes else 0

    def fits(self, budget: int) -> bool:
        """True if the hits down to the worst one are found, and have no more than `budget` tokens."""
        return self.worst <= len(self.sizes) and self.size(self.worst) <= budget


def evaluate(
    memory: Memory,
    conversations: Sequence[Conversation],
    modes: Iterable[Mode] = ("text", "vector", "hybrid"),
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
    *,
    ingest: Ingest = turns,
    budgets: Sequence[int] = (),
    multihop: bool = False,
    neighbours: bool = False,
    last: int = 0,
) -> Report:
    """Ingest `conversations` into `memory` (a new one) and ask every question in every mode.

    `progress` is told what is being done, how much of it is done, and of how much. `ingest` makes records of a
    conversation. For `budgets` see `ModeReport.within`; a search then brings as many hits as the largest can hold.
    With `multihop` each question is searched in two hops; the second has the last places only, so it shows at the
    greatest depth. `neighbours` is that of `Memory.search`. With `last`, the recall on that many conversations at the
    end is also told by itself: parameters can then be chosen on the others.
    """
    start = time.perf_counter()
    held: dict[str, dict[str, Unit]] = {}
    for number, conversation in enumerate(conversations):
        progress("ingest", number, len(conversations))
        units = ingest(memory, conversation.name, conversation.turns)
        held[conversation.name] = {unit.id: unit for unit in units}
    progress("ingest", len(conversations), len(conversations))
    report = Report(
        len(conversations),
        sum(len(conversation.turns) for conversation in conversations),
        sum(map(len, held.values())),
        memory.embedder.id,
        memory.storage.name,
        time.perf_counter() - start,
    )
    for mode in modes:
        options = {"mode": mode, "multihop": multihop, "neighbours": neighbours}
        report.modes.append(_ask(memory, conversations, held, options, budgets, last, progress))
    report.peak_mb = _peak_mb()
    return report


def _ask(
    memory: Memory,
    conversations: Sequence[Conversation],
    held: Mapping[str, Mapping[str, Unit]],
    options: Mapping[str, Any],
    budgets: Sequence[int],
    last: int,
    progress: Callable[[str, int, int], None],
) -> ModeReport:
    mode = options["mode"]
    total = sum(len(conversation.questions) for conversation in conversations)
    answers: list[_Answer] = []
    before_last = 0
    seconds = 0.0
    for number, conversation in enumerate(conversations):
        if number + last < len(conversations):
            before_last += len(conversation.questions)
        units = held[conversation.name]
        kind = next((unit.kind for unit in units.values()), "fact")
        sizes = {id: estimate_tokens(unit.text) for id, unit in units.items()}
        depth = max([DEPTHS[-1], *(budget // min(sizes.values(), default=1) for budget in budgets)])
        # The first search of a scope builds its index, which is not a question's cost.
        memory.search("?", mode=mode, kind=kind, user=conversation.name)
        for question in conversation.questions:
            progress(f"ask ({mode})", len(answers), total)
            start = time.perf_counter()
            hits = memory.search(
                question.text,
                top_k=depth,
                decompose=False,
                kind=kind,
                user=conversation.name,
                **options,
            )
            seconds += time.perf_counter() - start
            ids = [hit["id"] for hit in hits]
            rank = {turn: n for n, id in reversed(list(enumerate(ids, 1))) for turn in units[id].turns}
            found = [rank.get(turn, sys.maxsize) for turn in question.evidence]
            cumulated = list(accumulate(sizes[id] for id in ids))
            answers.append(_Answer(question.category, max(found), min(found), cumulated))
    progress(f"ask ({mode})", total, total)
    by_category: dict[int, list[int]] = defaultdict(list)
    for answer in answers:
        by_category[answer.category].append(answer.worst)
    of_last = answers[before_last:]
    return ModeReport(
        mode,
        total,
        _shares(answer.worst for answer in answers),
        _shares(answer.best for answer in answers),
        {CATEGORIES[category]: _shares(worst) for category, worst in sorted(by_category.items())},
        _shares(answer.worst for answer in of_last) if last else {},
        _shares(answer.best for answer in of_last) if last else {},
        {k: _mean(answer.size(k) for answer in answers) for k in DEPTHS},
        {budget: 100 * _mean(answer.fits(budget) for answer in answers) for budget in budgets},
        1000 * seconds / total if total else 0.0,
    )


def _shares(ranks: Iterable[int]) -> dict[int, float]:
    held = list(ranks)
    return {k: 100 * _mean(rank <= k for rank in held) for k in DEPTHS}


def _mean(values: Iterable[float]) -> float:
    held = list(values)
    return sum(held) / len(held) if held else 0.0


def _peak_mb() -> float | None:
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
