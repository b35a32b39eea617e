"""Exports of chats are read with ids that stay the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nanomem_core.errors import FormatError, InputError
from nanomem_core.pipeline.chats import read_chats
from nanomem_core.pipeline.messages import read_messages

AT = 1_700_000_000.5


def node(id: str, parent: str | None, children: list[str], message: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"id": id, "parent": parent, "children": children, "message": message}


def said(id: str, role: str, *parts: Any, **extra: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": list(parts)}
    return {"id": id, "author": {"role": role}, "create_time": AT, "content": content, "metadata": {}, **extra}


def conversation(current: str | None = "c") -> dict[str, Any]:
    return {
        "title": "Rome",
        "conversation_id": "conv-1",
        "create_time": AT - 5,
        "current_node": current,
        "mapping": {
            "root": node("root", None, ["s"]),
            "s": node("s", "root", ["a"], said("s", "system", "", create_time=None)),
            "a": node("a", "s", ["b", "b2"], said("a", "user", "Where to?", create_time=None)),
            "b": node("b", "a", ["c"], said("b", "assistant", "Rome.")),
            "b2": node("b2", "a", [], said("b2", "assistant", "Paris.")),
            "c": node(
                "c",
                "b",
                [],
                said("c", "user", {"content_type": "image_asset_pointer", "asset_pointer": "x"}, "Like this?"),
            ),
        },
    }


def read(folder: Path, data: Any, name: str = "conversations.json") -> list[list[tuple[str, str, str]]]:
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return [[(m.message_id, m.role, m.content) for m in read_messages(chat.messages, 0.0)] for chat in read_chats(path)]


def test_of_a_chat_with_branches_the_current_one_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, [conversation()]) == [
        [
            ("chatgpt:conv-1:a", "user", "Where to?"),
            ("chatgpt:conv-1:b", "assistant", "Rome."),
            ("chatgpt:conv-1:c", "user", "Like this? [image]"),
        ]
    ]
    assert read(tmp_path, [conversation("b2")])[0][-1][2] == "Paris."


def test_without_a_current_node_the_last_answers_are_taken(tmp_path: Path) -> None:
    assert [text for _, _, text in read(tmp_path, [conversation(None)])[0]] == ["Where to?", "Paris."]
    assert [text for _, _, text in read(tmp_path, conversation("gone"))[0]] == ["Where to?", "Paris."]


def test_a_message_without_a_time_has_that_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps([conversation()]))
    (chat,) = read_chats(path)
    assert chat.title == "Rome"
    assert [m.timestamp for m in read_messages(chat.messages, 0.0)] == [AT - 5, AT, AT]


def test_what_the_user_was_not_shown_is_left_out(tmp_path: Path) -> None:
    data = conversation()
    data["mapping"]["b"]["message"]["metadata"]["is_visually_hidden_from_conversation"] = True
    data["mapping"]["a"]["message"]["content"] = {"content_type": "thoughts", "thoughts": []}
    assert [text for _, _, text in read(tmp_path, [data])[0]] == ["Like this? [image]"]


def test_code_and_its_output_are_texts(tmp_path: Path) -> None:
    data = conversation()
    data["mapping"]["b"]["message"]["content"] = {"content_type": "code", "text": "print(1)"}
    data["mapping"]["c"]["message"]["content"] = {"content_type": "tether_browsing_display", "result": "found"}
    assert [text for _, _, text in read(tmp_path, [data])[0]] == ["Where to?", "print(1)", "found"]


@pytest.mark.parametrize("breakage", ["parent", "children"])
def test_a_tree_that_goes_round_in_a_circle_ends(tmp_path: Path, breakage: str) -> None:
    data = conversation(None)
    if breakage == "parent":
        data["current_node"] = "c"
        data["mapping"]["root"]["parent"] = "c"
    else:
        data["mapping"]["b2"]["children"] = ["a"]
    assert "Where to?" in [text for _, _, text in read(tmp_path, [data])[0]]


@pytest.mark.parametrize("data", ["", "{", "[5]", "[{}]", '"x"', '[{"mapping": []}]'])
def test_another_document_is_refused(tmp_path: Path, data: str) -> None:
    with pytest.raises(FormatError, match=r"conversations\.json"):
        read(tmp_path, data)


def test_lines_get_ids_of_what_they_say(tmp_path: Path) -> None:
    hi = '{"role": "user", "content": "hi", "timestamp": 5}'
    lines = [hi, "", hi, '{"role": "user", "content": "own", "message_id": "m-1"}']
    (first,) = read(tmp_path, "\n".join(lines), "a.jsonl")
    (again,) = read(tmp_path, "﻿" + "\n\n".join([*lines, '{"role": "user", "content": "more"}']), "b.ndjson")
    assert again[:3] == first
    assert len({id for id, _, _ in again}) == 4
    assert first[2][0] == "m-1"
    assert read(tmp_path, "\n", "empty.jsonl") == []


def test_lines_without_a_time_are_told_apart_by_their_file(tmp_path: Path) -> None:
    yes = '{"role": "user", "content": "yes"}'
    (first,), (second,) = read(tmp_path, yes, "a.jsonl"), read(tmp_path, yes, "b.jsonl")
    assert first[0][0] != second[0][0]
    assert read(tmp_path, f"{yes}\n{yes}", "a.jsonl")[0][0] == first[0]


@pytest.mark.parametrize("line", ["{", "5", '"x"', "[]", '{"role": "user"}', '{"content": "x"}', "[" * 100_000])
def test_a_wrong_line_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(FormatError, match=r"a\.jsonl, line 2: expected a JSON object"):
        read(tmp_path, '{"role": "user", "content": "hi"}\n' + line, "a.jsonl")


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"role": "user", "content": "né"}'.encode("latin-1"))
    with pytest.raises(FormatError, match="expected UTF-8"):
        list(read_chats(path))


def test_an_unknown_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="form: expected one of openai, jsonl; found 'xml'"):
        list(read_chats(tmp_path / "a", "xml"))  # type: ignore[arg-type]
