"""Chain accuracy: do taggers put just those statements into one chain that are values of one attribute?

The people of ``chains.yaml``, beside this module, were invented for this measure; it says what each part means. Names
of entities don't matter, only which statements share one.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import combinations
from pathlib import Path
from typing import Any

from ..errors import FormatError, InputError, NotFoundError
from ..interfaces import Generator, Statement, Tagger
from ..memory import Memory
from ..pipeline.usage import Usage
from ..records import normalize_entity

__all__ = ["DECLARED", "SPLITS", "Person", "TaggerReport", "evaluate", "read_chains"]

DECLARED = "declared"
"""In place of a tagger: the caller names every entity."""

SPLITS = ("development", "test")

TaggerSpec = Tagger | str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Person:
    """What one person says, in this order; the entity of a statement is the true one.

    Attributes:
        split: ``development`` or ``test``.
        kinds: how the values of each attribute are worded, by its entity.
    """

    name: str
    language: str
    split: str
    kinds: Mapping[str, str]
    said: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class TaggerReport:
    """How well one list of taggers made chains. Shares are percentages.

    Attributes:
        taggers: their names, joined by commas.
        chains, right: attributes in all, and those of which all statements, and no others, share an entity.
        accuracy: the share of the right ones.
        precision, recall, f1: of pairs of one person's statements that share an entity.
        by_kind, by_language: `accuracy` among the chains of each.
        untagged: statements that have an attribute, but got no entity.
        strays: statements that have none, but got an entity.
        seconds: that tagging took.
        usage: of the generator, see `nanomem_core.pipeline.usage.Usage.to_dict`.
    """

    taggers: str
    chains: int
    right: int
    accuracy: float
    precision: float
    recall: float
    f1: float
    by_kind: dict[str, float]
    by_language: dict[str, float]
    untagged: int
    strays: int
    seconds: float
    usage: dict[str, Any] = field(default_factory=dict)


def read_chains(path: str | Path | None = None) -> list[Person]:
    """The people of a file in the form of ``chains.yaml``, which is read for None.

    Raises:
        NotFoundError: no such file.
        FormatError: it has another form.
    """
    import yaml

    file = resources.files(__package__).joinpath("chains.yaml") if path is None else Path(path)
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFoundError(f"{file}: there is no such file") from None
    except (ValueError, yaml.YAMLError) as error:
        raise FormatError(f"{file}: not YAML: {error}") from None
    try:
        return [_person(entry) for entry in data]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{file}: not in the form of chains.yaml: {error}") from error


def _person(entry: Mapping[str, Any]) -> Person:
    said = [Statement(each) if isinstance(each, str) else _statement(each) for each in entry["said"]]
    kinds = {normalize_entity(entity): str(kind) for entity, kind in entry["chains"].items()}
    entities = {each.entity for each in said if each.entity is not None}
    if entities != kinds.keys():
        odd = ", ".join(sorted(entities ^ kinds.keys()))
        raise InputError(
            f"{entry['name']}: expected the same attributes in `chains` and `said`; found only once: {odd}"
        )
    if entry["split"] not in SPLITS:
        raise InputError(f"{entry['name']}: expected a split of {', '.join(SPLITS)}; found {entry['split']!r}")
    return Person(str(entry["name"]), str(entry["language"]), entry["split"], kinds, tuple(said))


def _statement(entry: Mapping[str, str]) -> Statement:
    ((entity, text),) = entry.items()
    return Statement(str(text), normalize_entity(entity))


def evaluate(
    memory: Memory,
    people: Sequence[Person],
    taggers: Iterable[Sequence[TaggerSpec]],
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    generator: Generator | None = None,
) -> list[TaggerReport]:
    """What each list of `taggers` makes of what `people` say, in `memory` (a new one, which has no taggers itself).

    Taggers are asked by `Memory.tag`, a person at a time; the list ``["declared"]`` has every entity named by the
    caller. `progress` is told the people done, and of how many.

    Raises:
        GeneratorError: the model of a tagger failed.
    """
    lists = [list(each) for each in taggers]
    ids = {
        person.name: memory.add_many([said.text for said in person.said], user=person.name, agent="undeclared")
        for person in people
    }
    reports = []
    for number, specs in enumerate(lists):
        usage = Usage()
        metered = None if generator is None else usage.meter(generator, "tagging")
        found: list[tuple[Person, list[str | None]]] = []
        began = time.perf_counter()
        for place, person in enumerate(people):
            progress(number * len(people) + place, len(lists) * len(people))
            if specs == [DECLARED]:
                entities = _declared(memory, person)
            else:
                plan = memory.tag(taggers=specs, generator=metered, user=person.name, agent="undeclared")
                told = {change.id: change.after for change in plan.changes}
                entities = [told.get(id) for id in ids[person.name]]
            found.append((person, entities))
        seconds = time.perf_counter() - began
        reports.append(_report(",".join(map(_label, specs)), found, seconds, usage))
    progress(len(lists) * len(people), len(lists) * len(people))
    return reports


def _declared(memory: Memory, person: Person) -> list[str | None]:
    items = [{"text": said.text, "entity": said.entity} for said in person.said]
    ids = memory.add_many(items, user=person.name, agent=DECLARED)
    stored = {entry.id: entry.entity for entry in memory.records(user=person.name, agent=DECLARED)}
    return [stored[id] for id in ids]


def _label(spec: TaggerSpec) -> str:
    if isinstance(spec, Mapping):
        return str(spec["use"])
    return spec if isinstance(spec, str) else spec.name


def _report(label: str, found: Sequence[tuple[Person, list[str | None]]], seconds: float, usage: Usage) -> TaggerReport:
    right: list[bool] = []
    of_kind: dict[str, list[bool]] = defaultdict(list)
    of_language: dict[str, list[bool]] = defaultdict(list)
    pairs: Counter[str] = Counter()
    untagged = strays = 0
    for person, entities in found:
        true = _groups([said.entity for said in person.said])
        made = _groups(entities)
        sets = {frozenset(group) for group in made.values()}
        for entity, group in true.items():
            is_right = frozenset(group) in sets
            right.append(is_right)
            of_kind[person.kinds[entity]].append(is_right)
            of_language[person.language].append(is_right)
        true_pairs, made_pairs = _pairs(true), _pairs(made)
        pairs.update(true=len(true_pairs), made=len(made_pairs), both=len(true_pairs & made_pairs))
        for said, guess in zip(person.said, entities, strict=True):
            untagged += said.entity is not None and guess is None
            strays += said.entity is None and guess is not None
    precision, recall = _share(pairs["both"], pairs["made"]), _share(pairs["both"], pairs["true"])
    return TaggerReport(
        label,
        len(right),
        sum(right),
        _share(sum(right), len(right)),
        precision,
        recall,
        _share(2 * pairs["both"], pairs["made"] + pairs["true"]),
        {kind: _share(sum(each), len(each)) for kind, each in sorted(of_kind.items())},
        {language: _share(sum(each), len(each)) for language, each in sorted(of_language.items())},
        untagged,
        strays,
        seconds,
        usage.to_dict(),
    )


def _groups(entities: Iterable[str | None]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = defaultdict(list)
    for place, entity in enumerate(entities):
        if entity is not None:
            groups[entity].append(place)
    return groups


def _pairs(groups: Mapping[str, Sequence[int]]) -> set[tuple[int, int]]:
    return {pair for group in groups.values() for pair in combinations(group, 2)}


def _share(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0
