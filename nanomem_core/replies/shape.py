"""The outer shape that a JSON Schema asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["misfit", "only_array", "wanted"]

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_NAMES = {dict: "an object", list: "an array", str: "a text", bool: "a truth value", type(None): "null"}


def misfit(value: Any, schema: Mapping[str, Any]) -> str | None:
    """What `value` is instead of the shape of `schema`; None if it fits."""
    if not isinstance(value, (dict, list)):
        return "an answer that breaks off too early"
    if not _is_type(value, schema.get("type")):
        return _name(value)
    if not isinstance(value, dict):
        return None
    for name in schema.get("required", ()):
        if name not in value:
            return f"an object without {name!r}"
    for name, wanted in schema.get("properties", {}).items():
        if name not in value:
            continue
        if not _is_type(value[name], wanted.get("type")):
            return f"an object in which {name!r} is {_name(value[name])}"
        if "enum" in wanted and value[name] not in wanted["enum"]:
            return f"an object in which {name!r} is none of {', '.join(map(str, wanted['enum']))}"
    return None


def _is_type(value: Any, types: str | list[str] | None) -> bool:
    if types is None:
        return True
    names = [types] if isinstance(types, str) else types
    return any(isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool)) for name in names)


def _name(value: Any) -> str:
    return _NAMES.get(type(value), "a number")


def wanted(schema: Mapping[str, Any]) -> str:
    kinds = schema.get("type", ["object", "array"])
    kind = " or ".join([kinds] if isinstance(kinds, str) else kinds)
    properties = schema.get("properties", {})
    required = [
        f"{name!r} ({properties[name]['type']})"
        if isinstance(properties.get(name, {}).get("type"), str)
        else repr(name)
        for name in schema.get("required", ())
    ]
    return f"a JSON {kind}" + (f" with {', '.join(required)}" if required else "")


def only_array(schema: Mapping[str, Any]) -> str | None:
    """The one required property of an object, if it is an array."""
    required = schema.get("required", ())
    if schema.get("type") != "object" or len(required) != 1:
        return None
    name: str = required[0]
    return name if schema.get("properties", {}).get(name, {}).get("type") == "array" else None
