"""What models are asked, and in which form they are to answer.

Whatever somebody else wrote goes into a prompt through `escaped`, so that it can't end the block it stands in or pass
for another item. What a model then writes to be kept comes back through `unescaped`.
"""

from __future__ import annotations

from typing import Any

from .interfaces import ChatMessage

__all__ = ["TEXT", "chat_prompt", "escaped", "list_of", "object_of", "unescaped"]

_MARKUP = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ESCAPES = str.maketrans(_MARKUP)

TEXT: dict[str, Any] = {"type": "string"}
"""The JSON Schema of a text."""


def chat_prompt(instructions: str, material: str) -> list[ChatMessage]:
    """The conversation that asks a model to follow `instructions`, which are ours, with `material`, which is not."""
    return [{"role": "system", "content": instructions}, {"role": "user", "content": material}]


def escaped(text: str) -> str:
    """`text` as a prompt may hold it: no markup, and its second and later lines indented."""
    return "  ".join(text.translate(_ESCAPES).splitlines(keepends=True))


def unescaped(text: str) -> str:
    """What a model that repeats parts of its prompt means by `text`."""
    for mark, escape in reversed(_MARKUP.items()):
        text = text.replace(escape, mark)
    return text


def object_of(**properties: Any) -> dict[str, Any]:
    """The JSON Schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def list_of(items: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a list."""
    return {"type": "array", "items": items}
