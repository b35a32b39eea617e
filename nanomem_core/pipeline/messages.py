"""Messages of a conversation: every common shape of them brought into one."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError, TimeError
from ..records import Record, check_name, clean_metadata, clean_text, new_id
from ..times import TimeLike, format_time, parse_time

__all__ = ["Message", "read_messages", "transcript"]

SOURCE = "conversation"
"""`Record.source` of messages."""

_TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "audio_transcription": "text",
    "refusal": "refusal",
}
_PLACEHOLDERS = {
    "image": "[image]",
    "image_url": "[image]",
    "input_image": "[image]",
    "image_asset_pointer": "[image]",
    "audio": "[audio]",
    "input_audio": "[audio]",
    "audio_url": "[audio]",
    "audio_asset_pointer": "[audio]",
    "real_time_user_audio_video_asset_pointer": "[audio]",
    "video": "[video]",
    "video_url": "[video]",
    "document": "[file]",
    "file": "[file]",
    "input_file": "[file]",
}
_CALLS = ("tool_use", "tool_call", "function_call")
_RESULTS = ("tool_result", "function_call_output")
_NOT_SAID = ("thinking", "redacted_thinking", "reasoning")
"""What a model thought, which nobody in the conversation was told."""


@dataclass(frozen=True, slots=True)
class Message:
    """One thing that was said.

    Attributes:
        role: who said it: ``user``, ``assistant``, ``tool``, ``system``, or a speaker's name.
        content: the text. Pictures and other files stand at its end as placeholders such as ``[image]``, without their
            bytes; a call of a tool as ``[call: name(arguments)]``.
        timestamp: when, unix seconds.
        metadata: a JSON object. ``tool_calls`` (a list with ``id``, ``name`` and ``arguments``), ``tool_call_id`` and
            ``name`` are set from the fields of chat APIs with these names.
        message_id: unique in its scope.
    """

    role: str
    content: str
    timestamp: float
    metadata: Mapping[str, Any] = field(default_factory=dict)
    message_id: str = field(default_factory=new_id)

    def to_dict(self) -> dict[str, Any]:
        """JSON types under the names of the fields, the time as ISO 8601; `from_dict` reads it back."""
        return {
            "message_id": self.message_id,
            "role": self.role,
            "content": self.content,
            "timestamp": format_time(self.timestamp),
            "metadata": dict(self.metadata),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Message:
        """Read `to_dict`'s form.

        Raises:
            InputError: a field is missing or of the wrong type.
        """
        missing = [key for key in ("message_id", "role", "content", "timestamp") if data.get(key) is None]
        if missing:
            raise InputError(f"message: expected the field {missing[0]!r}; found {', '.join(map(str, data)) or 'none'}")
        return cls(
            _role(data["role"]),
            clean_text(str(data["content"])),
            _seconds(data["timestamp"]),
            _nested(data.get("metadata") or {}),
            check_name(data["message_id"], "message_id"),
        )

    def to_record(self, recorded_at: float) -> Record:
        """The record of a message that waits in a buffer."""
        return Record(
            self.message_id,
            self.content,
            kind="message",
            valid_from=self.timestamp,
            recorded_at=recorded_at,
            source=SOURCE,
            metadata={"role": self.role, **({"metadata": dict(self.metadata)} if self.metadata else {})},
        )

    @classmethod
    def from_record(cls, record: Record) -> Message:
        """Read `to_record`'s form; a record of kind ``message`` from elsewhere is of the role ``user``."""
        role, metadata = record.metadata.get("role"), record.metadata.get("metadata")
        return cls(
            role if isinstance(role, str) and role else "user",
            record.text,
            record.valid_from,
            metadata if isinstance(metadata, Mapping) else {},
            record.id,
        )


def transcript(messages: Iterable[Message], times: bool = False) -> str:
    """One line ``role: content`` a message, with the time before it if `times`."""
    return "\n".join(
        f"[{format_time(m.timestamp)}] {m.role}: {m.content}" if times else f"{m.role}: {m.content}" for m in messages
    )


def read_messages(items: Iterable[Message | Mapping[str, Any]], now: float) -> list[Message]:
    """The messages of `items` without those that say nothing; what was given is never changed.

    An item is a `Message`, or a mapping as chat APIs have it: ``role``; ``content``, a text, a list of parts, or None;
    ``tool_calls``; ``tool_call_id``; and here also ``timestamp`` (`now` by default), ``metadata`` and ``message_id``
    (or ``id``). Parts of an unknown type are left out with one warning for the whole call.

    Raises:
        InputError: an item is malformed; the message names it, and none is returned.
    """
    if isinstance(items, (str, bytes, Mapping)):
        raise InputError(f"messages: expected a list of messages; found {type(items).__name__}")
    unknown: Counter[str] = Counter()
    messages = []
    for number, item in enumerate(items):
        message = item if isinstance(item, Message) else _read_message(item, now, f"message {number}", unknown)
        if message is not None and message.content.strip():
            messages.append(message)
    ids = Counter(message.message_id for message in messages)
    doubled = next((id for id, times in ids.items() if times > 1), None)
    if doubled is not None:
        raise InputError(f"messages: expected distinct ids; found {doubled!r} {ids[doubled]} times")
    if unknown:
        named = ", ".join(f"{kind!r} ({times})" for kind, times in sorted(unknown.items()))
        warnings.warn(f"parts of an unknown type were left out of messages: {named}", RuntimeWarning, stacklevel=2)
    return messages


def _read_message(item: Mapping[str, Any], now: float, what: str, unknown: Counter[str]) -> Message | None:
    """One message, `what` in errors; None where it says nothing. Parts of types that aren't known are counted."""
    if not isinstance(item, Mapping):
        raise InputError(f"{what}: expected a mapping with role and content; found {type(item).__name__}")
    id = item.get("message_id", item.get("id"))
    if id is not None:
        what = f"{what} ({id!r:.80})"
    try:
        role = _role(item.get("role"))
        given = item.get("metadata")
        metadata = _nested({} if given is None else given)
        content, calls = _content(item.get("content"), unknown)
        calls += [_call(call) for call in item.get("tool_calls") or ()]
        if item.get("function_call"):
            calls.append(_call(item["function_call"]))
        for key in ("tool_call_id", "name"):
            if isinstance(item.get(key), str) and item[key]:
                metadata[key] = clean_text(item[key])
        result_of = next((call["result_of"] for call in calls if "result_of" in call), None)
        if result_of is not None:
            metadata.setdefault("tool_call_id", result_of)
        calls = [call for call in calls if "result_of" not in call]
        if calls:
            metadata["tool_calls"] = calls
            said = [f"[call: {call['name']}({call['arguments']})]" for call in calls]
            content = "\n".join([content, *said] if content else said)
        if not content.strip():
            return None
        timestamp = item.get("timestamp")
        return Message(
            role,
            content,
            round(now, 6) if timestamp is None else _seconds(timestamp),
            metadata,
            new_id() if id is None else check_name(id, "message_id"),
        )
    except InputError as error:
        raise type(error)(f"{what}: {error}") from None


def _role(role: object) -> str:
    if not isinstance(role, str) or not role.strip():
        raise InputError(f"role: expected a text such as user or assistant; found {role!r:.80}")
    return clean_text(" ".join(role.split()))


def _seconds(value: TimeLike) -> float:
    try:
        # To the microsecond, so that a message is the same after `to_dict` and back.
        return round(parse_time(value, "timestamp"), 6)
    except TypeError as error:
        raise TimeError(f"timestamp: {error}") from None


def _nested(metadata: object) -> dict[str, Any]:
    if not isinstance(metadata, Mapping):
        raise InputError(f"metadata: expected a mapping; found {type(metadata).__name__}")
    # Below a key of its own, where no name is reserved for a field of the record.
    cleaned: dict[str, Any] = clean_metadata({"metadata": metadata})["metadata"]
    return cleaned


def _content(content: object, unknown: Counter[str]) -> tuple[str, list[dict[str, Any]]]:
    """The text of a message, and the calls of tools among its parts."""
    if content is None:
        return "", []
    if isinstance(content, str):
        return clean_text(content), []
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, Sequence) or isinstance(content, (bytes, bytearray)):
        raise InputError(f"content: expected a text, a list of parts, or None; found {type(content).__name__}")
    texts: list[str] = []
    marks: list[str] = []
    calls: list[dict[str, Any]] = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, Mapping):
            raise InputError(f"content: expected parts that are texts or mappings; found {type(part).__name__}")
        # ChatGPT's export says content_type; a part with nothing but a text may leave the type out.
        kind = part.get("type", part.get("content_type", "text" if "text" in part else ""))
        if kind in _TEXT_PARTS:
            text = part.get(_TEXT_PARTS[kind])
            if isinstance(text, str):
                texts.append(text)
        elif kind in _PLACEHOLDERS:
            marks.append(_PLACEHOLDERS[kind])
        elif kind in _CALLS:
            calls.append(_call(part))
        elif kind in _RESULTS:
            text, _ = _content(part.get("content", part.get("output")), unknown)
            texts.append(text)
            calls.append({"result_of": clean_text(str(part.get("tool_use_id", part.get("call_id", ""))))})
        elif kind not in _NOT_SAID:
            unknown[str(kind)] += 1
    return " ".join(clean_text(text).strip() for text in [*texts, *marks] if text.strip()), calls


def _call(call: object) -> dict[str, Any]:
    """A call of a tool from either API's form: ``id``, ``name``, and ``arguments`` as a text."""
    if not isinstance(call, Mapping):
        raise InputError(f"tool_calls: expected mappings; found {type(call).__name__}")
    inner = call.get("function")
    function = inner if isinstance(inner, Mapping) else call
    arguments = function.get("arguments", function.get("input", ""))
    if not isinstance(arguments, str):
        arguments = json.dumps(clean_metadata({"arguments": arguments})["arguments"], ensure_ascii=False)
    id = call.get("id", call.get("call_id"))
    return {
        "id": None if id is None else clean_text(str(id)),
        "name": clean_text(str(function.get("name", ""))),
        "arguments": clean_text(arguments),
    }
