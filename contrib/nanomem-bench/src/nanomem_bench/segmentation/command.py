"""``nanomem bench segmentation``."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from nanomem_core.cli.common import Session, echo_json, json_option, pass_session
from nanomem_core.cli.opening import progress_bar, stdout_kept_clean
from nanomem_core.interfaces import Generator, Segmenter
from nanomem_core.records import Record

from ..report import markdown_table
from .dialogues import Dialogue, Partition, read_dialogues
from .scores import WINDOW, Scores, labels, library_version, score

__all__ = ["Result", "segmentation"]

Propose = Callable[[Sequence[Record]], Partition]

_BASELINES = ("none", "random", "even")
"""No boundary; each gap by chance, as often as the file has boundaries; segments of the file's mean length."""

_DEFAULT = "texttiling"


@dataclass(frozen=True, slots=True)
class Result:
    """What one segmenter, or baseline, reached on one file, and how long it took."""

    segmenter: str
    scores: Scores
    seconds_a_dialogue: float


@click.command("segmentation")
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(dir_okay=False, exists=True, path_type=Path)
)
@click.option(
    "--segmenter",
    "names",
    multiple=True,
    metavar="NAME",
    help=f"Only this segmenter, or baseline ({', '.join(_BASELINES)}); may be repeated.  [the configured one, "
    f"{_DEFAULT}, and the baselines]",
)
@click.option("--seed", type=int, default=0, help="Seed of the baseline random.  [0]")
@click.option("--markdown", type=click.Path(dir_okay=False, path_type=Path), help="Also write the tables to this file.")
@json_option
@pass_session
def segmentation(
    session: Session, files: Sequence[Path], names: Sequence[str], seed: int, markdown: Path | None, as_json: bool
) -> None:
    """Measure how well segmenters find where the topics of dialogues change.

    FILE is JSONL, a dialogue a line: {"dialogue": "user: …[NEWLINE][BOUNDARY][NEWLINE]…"}, or {"utterances": […]} with
    "segments" (their lengths) or "groups" (lists of positions from 0, which may interleave).

    Segmenters have the options, the embedder and the generator of the settings.
    """
    measure = library_version()
    found: dict[str, tuple[list[Dialogue], list[Result]]] = {}
    with ExitStack() as stack:
        stack.enter_context(stdout_kept_clean())
        segmenters, generator = _built(session, names, stack)
        for file in files:
            dialogues = read_dialogues(file)
            contenders = {
                name: partial(segmenter.segment, generator=generator)
                if isinstance(segmenter, Segmenter)
                else _baseline(name, dialogues, seed)
                for name, segmenter in segmenters.items()
            }
            found[str(file)] = (dialogues, [_measured(name, dialogues, contenders[name]) for name in contenders])
    written = "\n\n".join(_table(file, *rows) for file, rows in found.items()) + f"\n\n{_note(measure)}\n"
    if markdown is not None:
        markdown.write_text(written, encoding="utf-8")
    if as_json:
        echo_json(
            {
                "library": measure,
                "window": WINDOW,
                "files": [
                    {
                        "file": file,
                        "dialogues": len(dialogues),
                        "messages": _messages(dialogues),
                        "groups": _groups(dialogues),
                        "results": [
                            {"segmenter": r.segmenter, **asdict(r.scores), "seconds_a_dialogue": r.seconds_a_dialogue}
                            for r in results
                        ],
                    }
                    for file, (dialogues, results) in found.items()
                ],
            }
        )
    else:
        click.echo(written, nl=False)


def _built(
    session: Session, names: Sequence[str], stack: ExitStack
) -> tuple[Mapping[str, Segmenter | None], Generator | None]:
    """The segmenters to measure by name, None for a baseline, and the configured generator."""
    settings, plugins = session.settings, session.plugins

    def build(kind: str, spec: Mapping[str, Any] | str) -> Any:
        return stack.enter_context(plugins.build(kind, spec, data_dir=settings.data_dir))

    configured = settings.segmenter or {"use": _DEFAULT}
    wanted = dict.fromkeys(names or (*_BASELINES, _DEFAULT, configured["use"]))
    chosen = {
        name: None
        if name in _BASELINES
        else build("segmenter", configured if name == configured["use"] else {"use": name})
        for name in wanted
    }
    built = [segmenter for segmenter in chosen.values() if segmenter is not None]
    if not built:
        return chosen, None
    embedder = build("embedder", settings.embedder)
    for segmenter in built:
        segmenter.embedder = embedder
    return chosen, None if settings.generator is None else build("generator", settings.generator)


def _baseline(name: str, dialogues: Sequence[Dialogue], seed: int) -> Propose:
    messages = _messages(dialogues)
    boundaries = sum(labels(dialogue.groups).count("1") for dialogue in dialogues)
    if name == "none":
        return lambda dialogue: _segments(len(dialogue), ())
    if name == "even":
        length = max(1, round(messages / (boundaries + len(dialogues))))
        return lambda dialogue: _segments(len(dialogue), range(length, len(dialogue), length))
    dice = random.Random(seed)
    gaps = messages - len(dialogues)
    rate = boundaries / gaps if gaps else 0.0
    return lambda dialogue: _segments(
        len(dialogue), [number for number in range(1, len(dialogue)) if dice.random() < rate]
    )


def _segments(count: int, starts: Sequence[int]) -> Partition:
    return [list(range(a, b)) for a, b in zip([0, *starts], [*starts, count], strict=True)]


def _measured(name: str, dialogues: Sequence[Dialogue], propose: Propose) -> Result:
    pairs = []
    seconds = 0.0
    with progress_bar(name) as show:
        for number, dialogue in enumerate(dialogues):
            show(number, len(dialogues))
            begin = time.perf_counter()
            groups = propose(dialogue.messages)
            seconds += time.perf_counter() - begin
            pairs.append((dialogue.groups, groups))
    return Result(name, score(pairs), seconds / len(dialogues))


def _messages(dialogues: Sequence[Dialogue]) -> int:
    return sum(len(dialogue.messages) for dialogue in dialogues)


def _groups(dialogues: Sequence[Dialogue]) -> int:
    return sum(len(dialogue.groups) for dialogue in dialogues)


def _table(file: str, dialogues: Sequence[Dialogue], results: Sequence[Result]) -> str:
    title = f"{file}: {len(dialogues)} dialogues, {_messages(dialogues)} messages, {_groups(dialogues)} groups"
    headers = ["segmenter", "Pk", "WindowDiff", "F1", "score", "pairwise F1", "boundaries", "ms/dialogue"]
    rows = [
        [
            result.segmenter,
            f"{result.scores.pk:.3f}",
            f"{result.scores.window_diff:.3f}",
            f"{result.scores.boundary_f1:.3f}",
            f"{result.scores.score:.3f}",
            f"{result.scores.pairwise_f1:.3f}",
            f"{result.scores.boundaries}/{result.scores.expected}",
            f"{1000 * result.seconds_a_dialogue:.2f}",
        ]
        for result in results
    ]
    return f"{title}\n\n{markdown_table(headers, rows)}"


def _note(measure: str) -> str:
    return (
        f"Pk and WindowDiff by {measure}, {WINDOW}: 0 is best. F1: boundaries that are exactly right, pooled. "
        "score: 0.5 F1 + 0.25 (1 - Pk) + 0.25 (1 - WindowDiff). pairwise F1: pairs of messages in one group, pooled."
    )
