"""The second hop of a search: facts that the question does not name, but the first hits do."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from nanomem_core.errors import GeneratorError, ReplyError
from nanomem_core.memory import Memory
from nanomem_core.pipeline.multihop import join_hops, name_questions, second_hop_places
from nanomem_core.registry.manager import PluginManager
from nanomem_core.results import Entry, SearchResults
from nanomem_core.testing.fakes import DictStorage, ScriptedGenerator
from nanomem_core.tokens import Tokenizer
from nanomem_plugins.lexical.embedder import LexicalEmbedder
from tests.memories import texts

# Question, the fact that it names, and the one that it needs. Of our own making.
BRIDGES = [
    ("Where does my manager live?", "My manager is Dana Reyes", "Dana Reyes moved to Bergen last year"),
    ("What does my dentist's daughter study?", "My dentist is called Ole Brandt", "Ole Brandt has Ada at law school"),
    ("Which city is my bank in?", "I have my bank account at Nordlys", "Nordlys has its counter in Tromsø"),
    ("Who founded the company I work for?", "I work for the company Birch Labs", "Birch Labs was begun by Ines Duarte"),
    ("What food does my cat like?", "My cat is called Miso", "Salmon is all that Miso touches"),
    ("Who owns the flat I rent?", "I rent a flat from Harbour Homes", "Harbour Homes belongs to Per Lund"),
    ("How long is the ferry to my island?", "My summer island is Senja", "Senja takes ninety minutes by boat"),
    ("When is my best friend's birthday?", "My best friend is Noor", "Cake for Noor on May 3"),
    ("What is wrong with my car?", "My car is a red Volvo", "The Volvo needs new brakes"),
    ("Where did my professor go to school?", "My professor of music is Tom Arden", "Tom Arden grew up in Leeds"),
]
OTHERS = [
    f"{who} {what} on {day}"
    for who in ("We", "My neighbour", "The choir", "Grandma")
    for what in ("baked bread", "watched a film", "went to the lake", "talked about the roof", "lost a key")
    for day in ("Monday", "Friday")
]


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(DictStorage(), LexicalEmbedder(), taggers=(), plugins=PluginManager()) as memory:
        memory.add_many([text for _, *both in BRIDGES for text in both] + OTHERS)
        yield memory


def found(memory: Memory, multihop: bool, top_k: int = 5) -> int:
    return sum(
        {first, second} <= set(texts(memory.search(question, top_k, multihop=multihop)))
        for question, first, second in BRIDGES
    )


def test_two_hops_find_what_one_does_not(memory: Memory) -> None:
    assert found(memory, multihop=False) <= 2
    assert found(memory, multihop=True) >= 8


def test_even_of_two_places_one_is_for_the_second_hop(memory: Memory) -> None:
    assert texts(memory.search(BRIDGES[0][0], 2, multihop=True)) == [*BRIDGES[0][1:]]
    assert texts(memory.search(BRIDGES[0][0], 1, multihop=True)) == [BRIDGES[0][1]]


def test_a_hit_of_the_second_hop_tells_the_question_that_found_it(memory: Memory) -> None:
    results = memory.search(BRIDGES[0][0], 3, multihop=True)
    assert results[-1].sub_query == "Dana Reyes live"
    assert "Dana Reyes live" in results.summary["second_hop"]
    assert results.returned == len(results) == 3
    assert "sub_query" not in results[0]
    json.dumps([*results, results.summary])


def test_where_no_name_is_found_the_answer_is_that_of_one_hop(memory: Memory) -> None:
    one, two = (memory.search("who baked bread?", 4, multihop=multihop) for multihop in (False, True))
    assert texts(one) == texts(two)
    assert two.summary["second_hop"] == []
    assert list(memory.search("", multihop=True)) == []


def test_a_filter_holds_for_both_hops(memory: Memory) -> None:
    memory.add("Dana Reyes has a boat", {"project": "sea"})
    results = memory.search(BRIDGES[0][0], 5, {"project": {"$exists": False}}, multihop=True)
    assert "Dana Reyes has a boat" not in texts(results)
    assert BRIDGES[0][2] in texts(results)


def test_a_model_may_write_the_questions_of_the_second_hop(memory: Memory) -> None:
    generator = ScriptedGenerator([json.dumps({"questions": ["Dana Reyes", " ", 7, "Dana  Reyes", "x" * 999]})])
    results = memory.search(BRIDGES[0][0], 3, multihop=True, generator=generator)
    assert texts(results)[-1] == BRIDGES[0][2]
    assert results.summary["second_hop"] == ["Dana Reyes"]
    assert "My manager is Dana Reyes" in generator.calls[0].messages[-1]["content"]


def test_a_model_is_not_asked_for_one_hop_or_without_a_hit(memory: Memory) -> None:
    generator = ScriptedGenerator()
    memory.search(BRIDGES[0][0], generator=generator)
    memory.search(BRIDGES[0][0], filter={"a": 1}, multihop=True, generator=generator)
    assert generator.calls == []


@pytest.mark.parametrize(("answers", "error"), [([GeneratorError("gone")], GeneratorError), (["x", "y"], ReplyError)])
def test_a_model_that_fails_is_an_error(memory: Memory, answers: list[str], error: type[Exception]) -> None:
    with pytest.raises(error):
        memory.search(BRIDGES[0][0], multihop=True, generator=ScriptedGenerator(answers))


def test_asking_in_two_hops_counts_both_calls(memory: Memory) -> None:
    generator = ScriptedGenerator(['{"questions": ["Dana Reyes"]}', "In Bergen [3]."])
    answer = memory.ask(BRIDGES[0][0], generator, top_k=3, multihop=True)
    assert [phase["phase"] for phase in answer.usage["phases"]] == ["answer", "multihop"]
    assert [cited["text"] for cited in answer.citations] == [BRIDGES[0][2]]


def test_names_are_runs_of_capitals_that_the_question_lacks_and_few_records_hold() -> None:
    def names(question: str, *said: str, mentions: int = 2) -> list[str]:
        hits = [Entry(id=text, text=text) for text in said]
        return name_questions(question, hits, Tokenizer(), lambda name: mentions)

    assert names("who taught?", "The lead is Ludwig van Beethoven of Bonn") == ["Ludwig van Beethoven of Bonn taught"]
    assert names("where now?", "It was Ann O’Brien’s, in Oslo of old") == ["Ann O'Brien now", "Oslo now"]
    assert names("x", "Don’t ask. The end.") == []
    assert names("where does she live?", "Dana is she") == ["Dana live"]
    assert names("x", "Well, it is well") == []
    assert names("x", "I'm sure that I said so") == []
    assert names("does Dana cook?", "Ask Dana Reyes") == []
    assert names("x", "Ask Dana", mentions=1) == names("x", "Ask Dana", mentions=6) == []
    assert names("x", "We ask Bo, Cy and Di", "We ask Ed") == ["Bo x", "Cy x", "Di x"]
    assert names("x", "мы спросим Анну", "问张伟") == ["Анну x"]


def test_the_first_hop_keeps_its_order_and_gives_up_only_its_last_places() -> None:
    def results(*ids: str, query: str = "q") -> SearchResults:
        return SearchResults([Entry(id=id) for id in ids], {"query": query, "truncated": False})

    first = results(*"abcdefghij")
    joined = join_hops(first, [results(*"XcY", query="one"), results(*"aZ", query="two")], 10)
    assert [hit.id for hit in joined] == [*"abcdefgh", "X", "Z"]
    assert joined.truncated
    assert [hit.id for hit in join_hops(results("a"), [results(*"aXYZ")], 3)] == ["a", "X", "Y"]
    assert [hit.id for hit in join_hops(results("a"), [results("a")], 3)] == ["a"]
    assert [second_hop_places(top_k) for top_k in (0, 1, 2, 5, 10, 20)] == [0, 0, 1, 1, 2, 4]
