"""Every common shape of a message is read, and none breaks the others."""

from __future__ import annotations

import copy
import warnings
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.errors import InputError, TimeError
from nanomem_core.pipeline.messages import Message, read_messages, transcript

NOW = 1_773_133_200.0

SHAPES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "I love hiking."},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            {"type": "text", "text": "Near Lake Orr."},
        ],
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"place":"Lake Orr"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "12 C, rain"},
    {"role": "assistant", "content": ""},
    {"role": "user", "content": [{"type": "input_text", "text": "Thanks!"}]},
    {"role": "developer", "name": "x", "content": "note"},
]


def test_lists_of_parts_nothing_and_tools_are_all_read_and_what_was_given_is_not_changed() -> None:
    given = copy.deepcopy(SHAPES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = read_messages(given, NOW)
    assert given == SHAPES
    assert [(m.role, m.content) for m in read] == [
        ("system", "Be brief."),
        ("user", "I love hiking. Near Lake Orr. [image]"),
        ("assistant", '[call: weather({"place":"Lake Orr"})]'),
        ("tool", "12 C, rain"),
        ("user", "Thanks!"),
        ("developer", "note"),
    ]
    assert "AAAA" not in str([m.to_record(NOW) for m in read])
    assert read[2].metadata["tool_calls"] == [{"id": "c1", "name": "weather", "arguments": '{"place":"Lake Orr"}'}]
    assert read[3].metadata == {"tool_call_id": "c1"}
    assert read[5].metadata == {"name": "x"}


def test_the_other_common_form_of_tool_calls_is_read_alike() -> None:
    call, result = read_messages(
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "text", "text": "Let me look."},
                    {"type": "tool_use", "id": "t1", "name": "weather", "input": {"place": "Ört"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "12 C"}]}
                ],
            },
        ],
        NOW,
    )
    assert call.content == 'Let me look.\n[call: weather({"place": "Ört"})]'
    assert (result.content, result.metadata) == ("12 C", {"tool_call_id": "t1"})


def test_parts_of_unknown_types_are_left_out_with_one_warning() -> None:
    items = [
        {"role": "user", "content": [{"type": "hologram"}, {"type": "text", "text": "a"}]},
        {"role": "user", "content": [{"type": "hologram"}, {"type": "smell"}]},
    ]
    with pytest.warns(RuntimeWarning, match=r"'hologram' \(2\), 'smell' \(1\)") as caught:
        read = read_messages(items, NOW)
    assert len(caught) == 1
    assert [m.content for m in read] == ["a"]


@pytest.mark.parametrize(
    ("timestamp", "seconds"),
    [
        (None, NOW),
        (1_700_000_000, 1_700_000_000.0),
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC).timestamp()),
        ("2026-03-01T09:00:00+02:00", datetime(2026, 3, 1, 7, tzinfo=UTC).timestamp()),
        (datetime(2026, 3, 1, 7), datetime(2026, 3, 1, 7, tzinfo=UTC).timestamp()),
    ],
)
def test_a_time_without_a_zone_is_utc_and_no_time_is_now(timestamp: Any, seconds: float) -> None:
    (message,) = read_messages([{"role": "user", "content": "x", "timestamp": timestamp}], NOW)
    assert message.timestamp == seconds


def test_a_wrong_time_is_an_error_that_names_the_message() -> None:
    items = [{"role": "user", "content": "a"}, {"role": "user", "content": "b", "id": "m-2", "timestamp": "soon"}]
    with pytest.raises(TimeError, match=r"message 1 \('m-2'\): timestamp: .*'soon'"):
        read_messages(items, NOW)


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ("hello", "expected a mapping with role and content; found str"),
        ({"content": "x"}, "role: expected a text"),
        ({"role": 3, "content": "x"}, "role: expected a text"),
        ({"role": "user", "content": b"x"}, "content: expected a text, a list of parts, or None; found bytes"),
        ({"role": "user", "content": 5}, "content: expected a text, a list of parts, or None; found int"),
        ({"role": "user", "content": [5]}, "content: expected parts"),
        ({"role": "user", "content": "x", "metadata": [1]}, "metadata: expected a mapping; found list"),
        ({"role": "user", "content": "x", "message_id": ""}, "message_id: expected a name"),
        ({"role": "user", "content": "x", "message_id": 5}, "message_id: expected a text; found int"),
        ({"role": "user", "content": "x", "tool_calls": ["y"]}, "tool_calls: expected mappings"),
    ],
)
def test_what_is_malformed_is_refused_by_name(item: Any, problem: str) -> None:
    with pytest.raises(InputError, match=f"message 1.*{problem}"):
        read_messages([{"role": "user", "content": "fine"}, item], NOW)


@pytest.mark.parametrize("given", ["hello", b"x", {"role": "user", "content": "x"}])
def test_messages_come_in_a_list(given: Any) -> None:
    with pytest.raises(InputError, match="expected a list of messages"):
        read_messages(given, NOW)


def test_one_call_does_not_bring_an_id_twice() -> None:
    with pytest.raises(InputError, match="expected distinct ids; found 'm' 2 times"):
        read_messages([{"role": "user", "content": "x", "id": "m"}, {"role": "user", "content": "y", "id": "m"}], NOW)


def test_metadata_may_use_the_names_of_fields() -> None:
    (message,) = read_messages([{"role": "user", "content": "x", "metadata": {"source": "app", "user_id": "7"}}], NOW)
    record = message.to_record(NOW)
    assert record.metadata["metadata"] == {"source": "app", "user_id": "7"}
    assert (record.source, record.chain) == ("conversation", None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.text(min_size=1).filter(str.strip),
    st.text(min_size=1).filter(str.strip),
    st.floats(-1e9, 4e9),
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), JSON, max_size=3),
)
def test_a_message_survives_its_record_and_its_dict(
    role: str, content: str, time: float, extra: dict[str, Any]
) -> None:
    (message,) = read_messages([{"role": role, "content": content, "timestamp": time, "metadata": extra}], NOW)
    assert Message.from_record(message.to_record(NOW)) == message
    assert Message.from_dict(message.to_dict()) == message
    assert read_messages([message.to_dict()], NOW) == [message]


@given(st.lists(JSON | st.fixed_dictionaries({"role": JSON, "content": JSON, "tool_calls": JSON}), max_size=4))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_arbitrary_input_is_read_or_refused(items: list[Any]) -> None:
    try:
        read = read_messages(items, NOW)
    except InputError:
        return
    assert all(message.content.strip() and message.role for message in read)


def test_a_message_of_a_dict_that_lacks_a_field_is_refused() -> None:
    with pytest.raises(InputError, match="expected the field 'role'; found message_id"):
        Message.from_dict({"message_id": "m"})


def test_a_transcript_has_a_line_a_message() -> None:
    messages = [Message("user", "hi", 0.0), Message("Ann", "hello", 60.0)]
    assert transcript(messages) == "user: hi\nAnn: hello"
    assert transcript(messages, times=True) == "[1970-01-01T00:00:00Z] user: hi\n[1970-01-01T00:01:00Z] Ann: hello"
