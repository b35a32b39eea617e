"""Readers of exported chats. Every message gets an id that depends on the export alone, so importing again is safe."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ..errors import FormatError, InputError
from .jsonlines import is_json_lines, json_objects

__all__ = ["FORMATS", "Chat", "ChatFormat", "read_chats", "read_lines"]

ChatFormat = Literal["openai", "jsonl"]
FORMATS: tuple[ChatFormat, ...] = get_args(ChatFormat)


@dataclass(frozen=True, slots=True)
class Chat:
    """One conversation of an export.

    Attributes:
        title: what the export calls it, or an empty text.
        messages: as `nanomem_core.pipeline.messages.read_messages` takes them, each with an id.
    """

    title: str
    messages: list[dict[str, Any]]


def read_chats(path: str | os.PathLike[str], form: ChatFormat | None = None) -> Iterator[Chat]:
    """The conversations of an export, in its order.

    `form` None goes by the name: ``.jsonl`` and ``.ndjson`` are messages line by line, all else is ChatGPT's
    ``conversations.json``. An export that is one JSON document is read whole.

    Raises:
        FormatError: the file is of another form; the place is named.
    """
    if form is None:
        form = "jsonl" if is_json_lines(path) else "openai"
    if form == "jsonl":
        with open(path, encoding="utf-8-sig") as file:
            messages = read_lines(file, os.fspath(path), Path(path).name)
        if messages:
            yield Chat("", messages)
    elif form == "openai":
        yield from _read_openai(path)
    else:
        raise InputError(f"form: expected one of {', '.join(FORMATS)}; found {form!r}")


# Lines.


def read_lines(lines: Iterable[str], name: str, conversation: str | None = None) -> list[dict[str, Any]]:
    """Messages that stand one a line, as JSON objects with ``role``, ``content``, and perhaps ``timestamp``,
    ``metadata`` and ``message_id``; `name` is how errors name their source.

    With `conversation`, a message without an id gets one made of what it says, when, and how often the same was said
    before; without a time, of that and the name of the `conversation`, since "yes" is said in many.

    Raises:
        FormatError: a line is no such object.
    """
    messages: list[dict[str, Any]] = []
    same: Counter[bytes] = Counter()
    for place, message in json_objects(lines, name):
        if "role" not in message or "content" not in message:
            raise FormatError(f"{place}: expected a JSON object with role and content")
        if conversation is not None and message.get("message_id", message.get("id")) is None:
            at = message.get("timestamp")
            source = conversation if at is None else None
            told = json.dumps([message["role"], message["content"], at, source], sort_keys=True).encode()
            digest = hashlib.blake2b(told + b"%d" % same[told], digest_size=16).hexdigest()
            same[told] += 1
            message["message_id"] = f"line:{digest}"
        messages.append(message)
    return messages


# ChatGPT. The format is not documented by its maker; this is what its exports of 2023 to 2025 hold.


def _read_openai(path: str | os.PathLike[str]) -> Iterator[Chat]:
    try:
        data = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{os.fspath(path)}: expected the conversations.json of a ChatGPT export: {error}") from None
    for number, conversation in enumerate(data if isinstance(data, list) else [data]):
        if not isinstance(conversation, dict) or not isinstance(conversation.get("mapping"), dict):
            raise FormatError(f"{os.fspath(path)}: conversation {number} has no mapping of messages")
        chat = conversation.get("conversation_id") or conversation.get("id")
        if chat is None:
            chat = hashlib.blake2b(json.dumps(sorted(conversation["mapping"])).encode(), digest_size=16).hexdigest()
        messages: list[dict[str, Any]] = []
        last = conversation.get("create_time")
        for node in _branch(conversation):
            message = _openai_message(node, f"chatgpt:{chat}", last)
            if message is not None:
                last = message["timestamp"]
                messages.append(message)
        if messages:
            yield Chat(str(conversation.get("title") or ""), messages)


def _branch(conversation: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The nodes from the root to the current one. Branches that the user left (by editing a message) are not shown."""
    mapping = conversation["mapping"]
    id: str | None = conversation.get("current_node")
    if not isinstance(id, str) or id not in mapping:
        # Of several answers the last one is shown.
        roots = [key for key, node in mapping.items() if _parent(node) not in mapping]
        id = roots[-1] if roots else None
        seen = set()
        while id is not None and id not in seen:
            seen.add(id)
            children = [child for child in mapping[id].get("children") or () if child in mapping]
            if not children:
                break
            id = children[-1]
    branch: dict[str, Mapping[str, Any]] = {}
    while id is not None and id not in branch and isinstance(mapping.get(id), dict):
        branch[id] = mapping[id]
        id = _parent(mapping[id])
    return list(branch.items())[::-1]


def _parent(node: object) -> str | None:
    parent = node.get("parent") if isinstance(node, dict) else None
    return parent if isinstance(parent, str) else None


def _openai_message(node: tuple[str, Mapping[str, Any]], prefix: str, last: Any) -> dict[str, Any] | None:
    id, message = node[0], node[1].get("message")
    if not isinstance(message, dict):
        return None
    author, extra = message.get("author"), message.get("metadata")
    if isinstance(extra, dict) and extra.get("is_visually_hidden_from_conversation"):
        return None
    role = author.get("role") if isinstance(author, dict) else None
    created = message.get("create_time")
    timestamp = last if created is None else created
    return {
        "message_id": f"{prefix}:{message.get('id') or id}",
        "role": role if isinstance(role, str) and role else "user",
        "content": _openai_content(message.get("content")),
        "timestamp": timestamp,
    }


def _openai_content(content: Any) -> str | list[Any] | None:
    if not isinstance(content, dict):
        return None
    kind = content.get("content_type")
    if kind in ("thoughts", "reasoning_recap", "user_editable_context", "model_editable_context"):
        return None
    parts = content.get("parts")
    if isinstance(parts, list):
        return [part for part in parts if isinstance(part, (str, dict))]
    text = content.get("text", content.get("result"))
    return text if isinstance(text, str) else None
