"""The summaries of a user."""

from __future__ import annotations

from typing import Any

import pytest

from nanomem_core.errors import InputError
from nanomem_plugins.markdown.manifest import empty_sections
from nanomem_plugins.markdown.summaries import adopted, complete, patched, profile_records

NOW = 1_700_000_000.0
WORK = {"user": {"workContext": {"summary": "Builds boats", "updatedAt": "2024-01-01T00:00:00Z"}}}


def test_a_patch_changes_what_it_names_and_nothing_else() -> None:
    before = patched(empty_sections(), WORK, NOW)
    after = patched(before, {"history": {"recentMonths": {"summary": "Sailed"}}}, NOW)
    assert after["user"] == before["user"]
    assert after["history"]["recentMonths"] == {"summary": "Sailed", "updatedAt": "2023-11-14T22:13:20Z"}
    assert before["history"] == empty_sections()["history"]


def test_the_same_text_keeps_its_time() -> None:
    before = patched(empty_sections(), WORK, NOW)
    assert patched(before, {"user": {"workContext": {"summary": "Builds boats"}}}, NOW) == before
    assert patched(before, {"user": {"topOfMind": {"summary": "", "updatedAt": ""}}}, NOW) == before


def test_names_and_fields_that_are_not_known_are_kept() -> None:
    odd = {"user": {"cognitiveStyle": {"summary": "Terse", "updatedAt": "2024-01-01", "by": "model"}, "x": 3}}
    assert complete(odd)["user"].items() >= odd["user"].items()
    assert (
        patched(empty_sections(), {"user": {"cognitiveStyle": odd["user"]["cognitiveStyle"]}}, NOW)["user"][
            "cognitiveStyle"
        ]
        == odd["user"]["cognitiveStyle"]
    )


@pytest.mark.parametrize(
    "patch",
    [
        None,
        [],
        {"facts": {}},
        {"user": None},
        {"user": {"workContext": None}},
        {"user": {"workContext": "text"}},
        {"user": {"workContext": {"summary": 3}}},
        {"user": {"workContext": {"summary": "a", "updatedAt": 3}}},
        {"user": {"workContext": {"summary": "a", "updatedAt": "soon"}}},
        {"user": {3: {"summary": "a"}}},
    ],
)
def test_a_patch_of_another_form_is_refused(patch: Any) -> None:
    with pytest.raises(InputError):
        patched(empty_sections(), patch, NOW)


def test_a_legacy_summary_is_adopted_where_there_is_none_or_the_same() -> None:
    assert adopted(empty_sections(), WORK, "old.json")["user"]["workContext"]["summary"] == "Builds boats"
    live = patched(empty_sections(), WORK, NOW)
    assert adopted(live, {"user": {"workContext": {"summary": " Builds boats\n"}}}, "old.json") == live
    with pytest.raises(InputError, match=r"old\.json: user\.workContext"):
        adopted(live, {"user": {"workContext": {"summary": "Sells boats"}}}, "old.json")


def test_texts_become_records_under_their_headings() -> None:
    [record] = profile_records(patched(empty_sections(), WORK, NOW))
    assert (record.kind, record.text, record.valid_from) == ("summary", "Builds boats", 1_704_067_200.0)
    assert record.metadata == {"section": "User Context", "title": "Work"}
    assert profile_records({"user": {"new": {"summary": "x", "updatedAt": None}}, "history": 3})[0].valid_from == 0
