"""The measure of taggers, and its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from nanomem_core.errors import FormatError, NotFoundError, UnreachableError
from nanomem_core.evaluation.chains import DECLARED, SPLITS, Person, evaluate, read_chains
from nanomem_core.interfaces import Generator, Statement, Tagger
from nanomem_core.memory import Memory
from nanomem_core.registry.manager import PluginManager
from nanomem_core.testing.fakes import Completion, DictStorage, HashEmbedder, ScriptedGenerator
from nanomem_plugins.keyword.tagger import KeywordTagger

PERSON = Person(
    "ann",
    "english",
    "test",
    {"home_phone": "sibling", "office_phone": "sibling", "gym": "narrative"},
    (
        Statement("home one", "home_phone"),
        Statement("office one", "office_phone"),
        Statement("What a week!"),
        Statement("gym one", "gym"),
        Statement("home two", "home_phone"),
        Statement("office two", "office_phone"),
        Statement("gym two", "gym"),
    ),
)


class FixedTagger(Tagger):
    """Gives each text the entity that a mapping says, and asks its model for a text if it is told to."""

    name = "fixed"

    def __init__(self, entities: Mapping[str, str], asks: bool = False) -> None:
        self.entities = entities
        self.asks_generator = asks  # type: ignore[misc]

    def tag(self, text: str, *, previous: str | None = None, generator: Generator | None = None) -> str | None:
        if generator is not None:
            generator.generate(text)
        return self.entities.get(text)


@pytest.fixture
def memory() -> Memory:
    return Memory(DictStorage(), HashEmbedder(), taggers=(), plugins=PluginManager())


GOOD = {said.text: f"any_name_{said.entity}" for said in PERSON.said if said.entity is not None}


@pytest.mark.parametrize(
    ("entities", "right", "precision", "recall", "untagged", "strays"),
    [
        (GOOD, 3, 100, 100, 0, 0),
        ({}, 0, 0, 0, 6, 0),
        (GOOD | {"What a week!": "mood"}, 3, 100, 100, 0, 1),
        (GOOD | {"What a week!": "any_name_gym"}, 2, 60, 100, 0, 1),
        (GOOD | {"gym two": "sport"}, 2, 100, 200 / 3, 0, 0),
        ({text: entity for text, entity in GOOD.items() if text != "gym two"}, 2, 100, 200 / 3, 1, 0),
        ({text: "phone" if "phone" in entity else entity for text, entity in GOOD.items()}, 1, 300 / 7, 100, 0, 0),
        (GOOD | {"office two": "any_name_home_phone"}, 1, 50, 200 / 3, 0, 0),
    ],
)
def test_a_chain_is_right_if_exactly_its_statements_share_an_entity(
    memory: Memory,
    entities: Mapping[str, str],
    right: int,
    precision: float,
    recall: float,
    untagged: int,
    strays: int,
) -> None:
    [report] = evaluate(memory, [PERSON], [[FixedTagger(entities)]])
    assert (report.taggers, report.chains, report.right) == ("fixed", 3, right)
    assert report.accuracy == pytest.approx(100 * right / 3)
    assert (report.precision, report.recall) == pytest.approx((precision, recall))
    harmonic = 2 * precision * recall / (precision + recall) if precision else 0
    assert report.f1 == pytest.approx(harmonic)
    assert (report.untagged, report.strays) == (untagged, strays)


def test_entities_of_two_people_are_never_compared(memory: Memory) -> None:
    other = Person(
        "bo", "german", "test", {"gym": "narrative"}, (Statement("gym one", "gym"), Statement("gym two", "gym"))
    )
    [report] = evaluate(memory, [PERSON, other], [[FixedTagger(GOOD)]])
    assert (report.right, report.precision, report.recall) == (4, 100, 100)
    assert report.by_language == {"english": 100, "german": 100}
    assert report.by_kind == {"narrative": 100, "sibling": 100}


def test_naming_every_entity_makes_every_chain(memory: Memory) -> None:
    people = read_chains()
    [report] = evaluate(memory, people, [[DECLARED]])
    assert (report.taggers, report.accuracy, report.f1, report.untagged, report.strays) == ("declared", 100, 100, 0, 0)


def test_what_one_tagger_can_not_tell_the_next_one_is_asked_and_the_model_s_calls_are_counted(memory: Memory) -> None:
    half = {text: entity for text, entity in GOOD.items() if "gym" in text}
    model = ScriptedGenerator(lambda call: Completion("ok", "small", 10, 1))
    lists: list[Sequence[Tagger]] = [[FixedTagger(half)], [FixedTagger(half), FixedTagger(GOOD, asks=True)]]
    seen: list[tuple[int, int]] = []
    alone, both = evaluate(memory, [PERSON], lists, lambda done, total: seen.append((done, total)), generator=model)
    assert (alone.right, both.right, both.taggers) == (1, 3, "fixed,fixed")
    assert alone.usage["tokens"] == 0
    assert both.usage["tokens"] == 11 * 5
    assert both.usage["phases"][0]["phase"] == "tagging"
    assert seen == [(0, 2), (1, 2), (2, 2)]


def test_a_model_that_fails_gives_no_figures(memory: Memory) -> None:
    model = ScriptedGenerator(lambda call: UnreachableError("no route"))
    with pytest.raises(UnreachableError):
        evaluate(memory, [PERSON], [[FixedTagger(GOOD, asks=True)]], generator=model)


class TestTheData:
    def test_there_are_enough_chains_of_every_kind_in_both_languages_and_halves(self) -> None:
        people = read_chains()
        chains = [(person, kind) for person in people for kind in person.kinds.values()]
        assert len(chains) >= 100
        for split in SPLITS:
            for language in ("english", "german"):
                found = {kind for person, kind in chains if (person.split, person.language) == (split, language)}
                assert found == {"canonical", "correction", "narrative", "sibling", "third_person"}

    def test_every_attribute_has_several_values_and_everybody_says_something_else_too(self) -> None:
        for person in read_chains():
            entities = [said.entity for said in person.said]
            assert all(entities.count(entity) >= 2 for entity in person.kinds), person.name
            assert entities.count(None) >= 2, person.name
            assert len({said.text for said in person.said}) == len(person.said)

    def test_the_keyword_tagger_joins_nothing_that_does_not_belong_together(self, memory: Memory) -> None:
        tagger = KeywordTagger(languages=("english", "german"))
        [report] = evaluate(memory, read_chains(), [[tagger]])
        assert report.precision == 100
        assert report.strays == 0
        assert report.accuracy >= 40

    def test_a_file_of_one_s_own_is_read(self, tmp_path: Path, memory: Memory) -> None:
        file = tmp_path / "mine.yaml"
        file.write_text(
            "- {name: a, language: french, split: test, chains: {Ville Natale: canonical},\n"
            "   said: [{Ville Natale: Je suis de Lyon.}, Bonjour, {Ville Natale: 'Non, de Nice.'}]}\n",
            encoding="utf-8",
        )
        [person] = read_chains(file)
        assert person.said[0] == Statement("Je suis de Lyon.", "ville_natale")
        assert person.said[1] == Statement("Bonjour")

    def test_a_file_that_is_missing_or_has_another_form_is_an_error_that_names_it(self, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError, match=r"absent\.yaml"):
            read_chains(tmp_path / "absent.yaml")
        file = tmp_path / "foreign.yaml"
        good = "- {name: a, language: x, split: test, chains: {b: canonical}, said: [{b: c}]}"
        file.write_text(good, encoding="utf-8")
        assert len(read_chains(file)) == 1
        for text in (
            "{",
            "a: 1",
            "- 1",
            "- {name: a}",
            good.replace("{b: c}", "{b: c, d: e}"),
            good.replace("{b: c}", "{d: c}"),
            good.replace("split: test", "split: half"),
        ):
            file.write_text(text, encoding="utf-8")
            with pytest.raises(FormatError, match=r"foreign\.yaml"):
                read_chains(file)
