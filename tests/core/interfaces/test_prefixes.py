"""What a model wants before texts and questions."""

from __future__ import annotations

from nanomem_core.interfaces import Prefixes


def test_texts_and_questions_have_prefixes_of_their_own() -> None:
    prefixes = Prefixes("passage: ", "query: ")
    assert prefixes.put(["tea", ""]) == ["passage: tea", "passage: "]
    assert prefixes.put(["tea"], query=True) == ["query: tea"]
    assert Prefixes().put(["tea"]) == Prefixes().put(["tea"], query=True) == ["tea"]


def test_an_id_tells_prefixes_apart_and_leaves_out_what_is_not_there() -> None:
    # Stores keep these ids: another form would make them refuse their own vectors.
    assert Prefixes().id("ollama:m") == "ollama:m"
    assert Prefixes("passage: ").id("ollama:m", "dimensions=8") == "ollama:m dimensions=8 document='passage: '"
    assert Prefixes("a", "b").id("x") == "x document='a' query='b'"
    assert Prefixes("", "b").id("x") == "x query='b'"
