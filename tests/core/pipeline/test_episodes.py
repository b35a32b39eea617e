"""Groups of messages get a fit size, a title, an account and a time, whatever a model answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.errors import GeneratorError
from nanomem_core.pipeline.episodes import (
    MAX_CONTENT,
    MAX_MESSAGE,
    Episode,
    arrange_groups,
    in_span,
    make_episode,
    narrate,
    shown,
)
from nanomem_core.pipeline.messages import Message
from nanomem_core.records import Record, check_record
from nanomem_core.testing import ScriptedGenerator
from nanomem_core.times import parse_time

START = parse_time("2026-03-01T10:00:00Z")


def talk(count: int, step: float = 60.0) -> list[Message]:
    return [Message("user", f"sentence {number}", START + step * number, {}, f"m{number}") for number in range(count)]


def answering(**answer: Any) -> ScriptedGenerator:
    return ScriptedGenerator([json.dumps(answer)] * 2)


def test_a_model_tells_title_content_and_time() -> None:
    generator = answering(title=" Rome\ntrip ", content="Ann plans Rome.", timestamp="2026-03-01T10:01:00Z")
    told = narrate(talk(3), generator, "a pause")
    assert (told.title, told.content, told.timestamp, told.fallback) == (
        "Rome trip",
        "Ann plans Rome.",
        START + 60,
        None,
    )
    asked = generator.calls[0].messages[-1]["content"]
    assert "a pause" in asked
    assert "[2026-03-01T10:02:00Z] user: sentence 2" in asked


@pytest.mark.parametrize(
    "timestamp",
    ["2026-03-01T09:59:59Z", "2026-03-01T10:02:01Z", "2031-01-01", "yesterday", "", None, 5, [], {}, True, "1e400"],
)
def test_a_time_outside_the_messages_is_not_believed(timestamp: Any) -> None:
    assert narrate(talk(3), answering(title="t", content="c", timestamp=timestamp), "x").timestamp == START


def test_a_time_with_another_zone_is_the_same_moment() -> None:
    assert in_span("2026-03-01T12:01:00+02:00", talk(3)) == START + 60


@pytest.mark.parametrize(
    "answers",
    [
        [GeneratorError("down")],
        [RuntimeError("a bug")],
        ["I could not do that."] * 2,
        ["[]"] * 2,
        ['{"title": "", "content": "c"}'] * 2,
        ['{"title": "t"}'] * 2,
        ['{"title": ["t"], "content": 5}'] * 2,
        [json.dumps({"title": "t", "content": "x" * (MAX_CONTENT + 1)})] * 2,
        [],
    ],
)
def test_without_a_usable_answer_the_whole_transcript_is_kept(answers: list[Any]) -> None:
    told = narrate(talk(3), ScriptedGenerator(answers), "x")
    assert told.title == "Conversation 2026-03-01 (3 messages)"
    assert told.content == "user: sentence 0\nuser: sentence 1\nuser: sentence 2"
    assert told.timestamp == START
    assert told.fallback


def test_without_a_model_the_whole_transcript_is_kept() -> None:
    told = narrate(talk(1), None, "x")
    assert (told.title, told.fallback) == ("Conversation 2026-03-01 (1 message)", "there is no generator")


def test_a_model_that_answers_badly_is_asked_once_more() -> None:
    generator = ScriptedGenerator(['{"title": ""}', '{"title": "t", "content": "c"}'])
    assert narrate(talk(2), generator, "x").fallback is None
    assert len(generator.calls) == 2


def test_of_a_very_long_message_the_model_sees_both_ends() -> None:
    long = Message("user", "a" * MAX_MESSAGE + "b" * MAX_MESSAGE, START)
    text = shown([long])
    assert len(text) < MAX_MESSAGE + 200
    assert text.startswith("[2026-03-01T10:00:00Z] user: aaa")
    assert text.endswith("bbb")
    assert f"{MAX_MESSAGE} characters left out" in text


def test_an_episode_holds_its_messages_and_where_they_came_from() -> None:
    messages = talk(2)
    record = make_episode(messages, narrate(messages, None, "x"), START + 500, "flushed", "weather")
    check_record(record)
    episode = Episode.from_record(record, "ann")
    assert episode.messages == tuple(messages)
    assert (episode.title, episode.boundary_reason) == ("Conversation 2026-03-01 (2 messages)", "flushed")
    assert episode.content == "user: sentence 0\nuser: sentence 1"
    assert record.metadata["message_ids"] == ["m0", "m1"]
    form = episode.to_dict()
    assert form["original_messages"][1]["content"] == "sentence 1"
    assert (form["message_count"], form["timestamp"]) == (2, "2026-03-01T10:00:00Z")
    assert form["metadata"]["topic"] == "weather"
    json.dumps(form)


def test_an_episode_of_another_program_is_read_with_what_it_lacks_filled_in() -> None:
    given = [
        {"role": "user", "content": "hi", "timestamp": "2026-03-01T10:00:01"},
        {"content": [{"type": "text", "text": "ho"}], "timestamp": "soon", "message_id": "own"},
        "bare",
        None,
    ]
    for messages in (given, {"a": 1}, "x", None):
        record = Record("e", "Title\n\nBody", kind="episode", valid_from=START, metadata={"messages": messages})
        episode = Episode.from_record(record)
        assert (episode.title, episode.content) == ("Title", "Body")
        json.dumps(episode.to_dict())
    read = Episode.from_record(replace(record, metadata={"messages": given})).messages
    assert [(m.message_id, m.role, m.content, m.timestamp) for m in read] == [
        ("e:0", "user", "hi", START + 1),
        ("own", "user", '[{"type": "text", "text": "ho"}]', START),
        ("e:2", "user", "bare", START),
        ("e:3", "user", "null", START),
    ]


# Sizes.


def partitions(count: int) -> st.SearchStrategy[list[list[int]]]:
    def grouped(owners: list[int]) -> list[list[int]]:
        groups: dict[int, list[int]] = {}
        for index, owner in enumerate(owners):
            groups.setdefault(owner, []).append(index)
        return list(groups.values())

    return st.lists(st.integers(0, 5), min_size=count, max_size=count).map(grouped)


@given(st.integers(1, 30).flatmap(partitions), st.integers(1, 5), st.integers(1, 8), st.sampled_from([30.0, 3600.0]))
def test_sizes_are_kept_where_they_can_be_and_nothing_is_dropped(
    groups: list[list[int]], smallest: int, more: int, pause: float
) -> None:
    largest = smallest + more
    count = sum(map(len, groups))
    arranged = arrange_groups(groups, talk(count), smallest, largest, pause)
    assert sorted(index for group in arranged for index in group) == list(range(count))
    assert all(group == sorted(group) for group in arranged)
    assert all(len(group) <= largest for group in arranged)
    if pause > 60 and count >= smallest and largest >= 2 * smallest:
        assert all(len(group) >= smallest for group in arranged)


def test_a_small_group_joins_the_one_before_it_and_at_the_start_the_one_after() -> None:
    assert arrange_groups([[0, 1, 2], [3], [4, 5]], talk(6), 2, 25) == [[0, 1, 2, 3], [4, 5]]
    assert arrange_groups([[0], [1, 2, 3]], talk(4), 2, 25) == [[0, 1, 2, 3]]
    assert arrange_groups([[0, 1, 4], [2], [3, 5]], talk(6), 2, 25) == [[0, 1, 2, 4], [3, 5]]


def test_a_small_group_is_not_joined_across_a_pause() -> None:
    assert arrange_groups([[0], [1], [2]], talk(3, step=7200), 2, 25, 3600) == [[0], [1], [2]]
    messages = [*talk(1), *[Message("user", "later", START + 7200 + n, {}, f"l{n}") for n in range(3)]]
    assert arrange_groups([[0], [1], [2, 3]], messages, 2, 25, 3600) == [[0], [1, 2, 3]]


def test_a_large_group_is_cut_evenly() -> None:
    assert [len(group) for group in arrange_groups([list(range(11))], talk(11), 2, 5)] == [4, 4, 3]


def test_the_result_of_a_tool_stays_with_its_call() -> None:
    messages = talk(6)
    messages[2] = Message("assistant", "[call]", START + 120, {"tool_calls": [{"id": "c", "name": "f"}]}, "m2")
    messages[3] = Message("tool", "12 C", START + 180, {"tool_call_id": "c"}, "m3")
    assert arrange_groups([[0, 1, 2], [3, 4, 5]], messages, 2, 25) == [[0, 1, 2, 3], [4, 5]]
    assert arrange_groups([list(range(6))], messages, 1, 3) == [[0, 1, 2, 3], [4, 5]]
