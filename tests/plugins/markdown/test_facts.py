"""DeerMem's form of a fact."""

from __future__ import annotations

from typing import Any

import pytest

from nanomem_core.errors import InputError
from nanomem_plugins.markdown.facts import (
    category_of,
    derived_title,
    normalise,
    public_form,
    source_text,
)

SCOPE = {"userId": "ann", "agentName": "default"}
NOW = 1_700_000_000.0


def made(stored: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return normalise({"content": "Prefers tea", **fields}, SCOPE, NOW, stored)


def test_a_fact_gets_every_field_with_its_default() -> None:
    fact = made(id="f1")
    assert fact == {
        "id": "f1",
        "schemaVersion": 2,
        "content": "Prefers tea",
        "title": "Prefers tea",
        "category": "context",
        "topics": [],
        "confidence": 0.5,
        "status": "active",
        "scope": SCOPE,
        "source": {"type": "unknown", "threadId": None},
        "createdAt": "2023-11-14T22:13:20Z",
        "updatedAt": "2023-11-14T22:13:20Z",
        "revision": 1,
        "consolidatedFrom": [],
    }
    assert made()["id"].startswith("fact_")
    assert len(made()["id"]) == 37


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("topics", "python"),
        ("topics", [1]),
        ("consolidatedFrom", "f1"),
        ("revision", []),
        ("revision", 0),
        ("revision", True),
        ("confidence", float("nan")),
        ("confidence", True),
        ("confidence", 1.5),
        ("confidence", "95"),
        ("confidence", None),
        ("content", ""),
        ("content", " \n"),
        ("content", None),
        ("status", "archived"),
        ("id", "a/b"),
        ("id", "a.b"),
        ("id", "a\n"),
        ("id", ""),
        ("id", "ä"),
        ("title", 3),
        ("category", ""),
        ("category", 3),
        ("category", None),
        ("categoryExtension", 3),
        ("source", 3),
        ("source", {"type": "manual", "threadId": 3}),
        ("source", {"type": ""}),
        ("createdAt", 3),
        ("createdAt", "yesterday-ish"),
        ("updatedAt", "soon"),
        ("lastConfirmedAt", "soon"),
        ("confirmationCount", 0),
        ("confirmationCount", True),
        ("expected_valid_days", 1.5),
        ("sourceError", 3),
        ("scope", {"userId": "bob"}),
        ("scope", {"agentName": "other"}),
        ("scope", "ann"),
        ("mood", object()),
        ("mood", {1: 2}),
        ("mood", [float("inf")]),
    ],
)
def test_a_value_of_the_wrong_form_is_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(InputError, match=key):
        made(**{key: value})


def test_what_is_no_mapping_is_no_fact() -> None:
    with pytest.raises(InputError, match="NoneType"):
        normalise(None, SCOPE, NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "stored", "text"),
    [
        ("manual", {"type": "manual", "threadId": None}, "manual"),
        ("consolidation", {"type": "consolidation", "threadId": None}, "consolidation"),
        ("import", {"type": "import", "threadId": None}, "import"),
        ("unknown", {"type": "unknown", "threadId": None}, "unknown"),
        ("", {"type": "unknown", "threadId": None}, "unknown"),
        (None, {"type": "unknown", "threadId": None}, "unknown"),
        ("thread_1", {"type": "conversation", "threadId": "thread_1"}, "thread_1"),
        ({"type": "conversation", "threadId": "t"}, {"type": "conversation", "threadId": "t"}, "t"),
        ({"type": "conversation"}, {"type": "conversation", "threadId": None}, "conversation"),
        ({"type": "manual", "url": "x"}, {"type": "manual", "url": "x", "threadId": None}, "manual"),
    ],
)
def test_a_source_is_kept_as_a_mapping_and_shown_as_one_text(given: Any, stored: Any, text: str) -> None:
    fact = made(source=given)
    assert fact["source"] == stored
    assert source_text(fact["source"]) == public_form(fact)["source"] == text


def test_an_unknown_category_stands_beside_other_and_is_shown_by_its_name() -> None:
    fact = made(category="knowledge")
    assert (fact["category"], fact["categoryExtension"]) == ("other", "knowledge")
    assert category_of(fact) == public_form(fact)["category"] == "knowledge"
    assert "categoryExtension" not in made(category="cognitive"), "one of DeerMem's later ones"
    again = normalise(fact, SCOPE, NOW, fact)
    assert again is fact


def test_a_new_category_replaces_the_extension_of_the_old_one() -> None:
    stored = made(id="f1", category="knowledge")
    assert made(stored, id="f1", category="goal").get("categoryExtension") is None
    assert category_of(made(stored, **{**stored, "category": "skill"})) == "skill"
    assert category_of(made(stored, **{**stored, "category": "goal"})) == "goal"


def test_a_title_follows_the_content_unless_it_was_given() -> None:
    stored = made(id="f1", content="Prefers tea\nwith milk")
    assert stored["title"] == "Prefers tea"
    assert made(stored, **{**stored, "content": "Prefers coffee"})["title"] == "Prefers coffee"
    named = made(id="f1", title="Drinks\r\nand\u2028more")
    assert named["title"] == "Drinks and more"
    assert made(named, **{**named, "content": "Prefers coffee"})["title"] == "Drinks and more"
    assert len(made(title="x" * 500)["title"]) == len(derived_title("y" * 500)) == 160


def test_an_update_keeps_the_creation_and_counts_on() -> None:
    stored = made(id="f1", createdAt="2020-01-01T00:00:00Z")
    changed = normalise({**stored, "content": "Prefers coffee", "createdAt": "2021-01-01"}, SCOPE, NOW, stored)
    assert (changed["createdAt"], changed["revision"]) == ("2020-01-01T00:00:00Z", 2)
    assert changed["updatedAt"] == "2023-11-14T22:13:20Z"


def test_a_fact_that_differs_in_nothing_but_numbers_and_time_is_the_stored_one() -> None:
    stored = made(id="f1", topics=["a"], mood={"deep": [1, None, "x"]})
    assert normalise({**stored, "revision": 1, "updatedAt": "2030-01-01"}, SCOPE, NOW + 5, stored) is stored


def test_unknown_keys_and_optional_fields_are_kept() -> None:
    extra = {
        "lastConfirmedAt": "2024-01-01T00:00:00Z",
        "confirmationCount": 3,
        "sourceError": "ran pip",
        "expected_valid_days": 10**20,
        "mood": {"deep": [1, None, "x"]},
    }
    fact = made(**extra)
    assert {key: fact[key] for key in extra} == extra
    assert "sourceError" not in made(sourceError=None)


def test_what_was_consolidated_tells_when() -> None:
    assert made(consolidatedFrom=["a"], updatedAt="2024-01-01")["consolidatedAt"] == "2024-01-01"
    assert "consolidatedAt" not in made()
