"""What models are asked, and in which form they are to answer."""

from __future__ import annotations

from typing import Any

from ..interfaces import ChatMessage

__all__ = ["TEXT", "chat_prompt", "list_of", "object_of"]

TEXT: dict[str, Any] = {"type": "string"}
"""The JSON Schema of a text."""


def chat_prompt(instructions: str, material: str) -> list[ChatMessage]:
    """The conversation that asks a model to follow `instructions`, which are ours, with `material`, which is not."""
    return [{"role": "system", "content": instructions}, {"role": "user", "content": material}]


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
