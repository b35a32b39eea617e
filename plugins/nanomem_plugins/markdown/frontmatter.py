"""YAML front matter that keeps what it isn't asked to change: comments, order, quoting and line ends of every key.

Reading is stricter than YAML: one mapping, no key twice, no alias and no tag, so a document can neither grow nor make
objects. Times without quotes stay texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from nanomem_core.errors import InputError

__all__ = ["FrontMatter", "is_json", "parse", "render"]

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_TAG = "tag:yaml.org,2002:"
_TEXTS = frozenset({_TAG + "str", _TAG + "timestamp", _TAG + "value"})
_SCALARS = {_TAG + "null": "null", _TAG + "bool": "bool", _TAG + "int": "int", _TAG + "float": "float"}
_LINES = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""What YAML 1.1 counts as the end of a line."""


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The mapping of a front matter and, for each key, the lines that hold it (comments before a key belong to the
    key above).
    """

    values: dict[str, Any] = field(default_factory=dict)
    prefix: str = ""
    lines: dict[str, str] = field(default_factory=dict)


def parse(text: str) -> FrontMatter:
    """Read what stands between the two fences.

    Raises:
        InputError: it isn't one plain mapping with texts as keys.
    """
    loader = _Loader(text)
    try:
        try:
            node = loader.get_single_node()
            values = {} if node is None else _convert(loader, node, set())
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise InputError(f"front matter: no valid YAML: {' '.join(str(error).split())}") from None
    except (RecursionError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"front matter: can't be read: {type(error).__name__}: {error}") from None
    if not isinstance(values, dict):
        raise InputError(f"front matter: expected a mapping of keys to values; found {type(values).__name__}")
    return FrontMatter(values, *_split(text, node, list(values)))


def render(values: Mapping[str, Any], like: FrontMatter | None = None, newline: str = "\n") -> str:
    """`values` as block YAML in their order; what `like` holds with the same value keeps its lines and its place."""
    if like is None:
        return _dump(values)
    kept = [key for key in like.values if key in values]
    order = [*kept, *(key for key in values if key not in like.values)]
    parts = [like.prefix]
    for key in order:
        if key in like.lines and _same(like.values[key], values[key]):
            parts.append(like.lines[key])
        else:
            parts.append(_dump({key: values[key]}).replace("\n", newline))
    text = "".join(part if part.endswith("\n") or not part else part + newline for part in parts)
    try:
        found = parse(text).values
    except InputError:
        found = {}
    # A layout that can't be cut at its keys (a flow mapping, say) is written anew.
    is_right = found.keys() == values.keys() and all(_same(found[key], values[key]) for key in found)
    return text if is_right else _dump(values).replace("\n", newline)


def is_json(value: Any) -> bool:
    """True if `value` is the same after a way through JSON."""
    if value is None or isinstance(value, (str, bool, int)):
        return True
    if isinstance(value, float):
        return value == value and abs(value) != float("inf")
    if isinstance(value, list):
        return all(map(is_json, value))
    return isinstance(value, dict) and all(isinstance(key, str) and is_json(item) for key, item in value.items())


def _same(one: Any, other: Any) -> bool:
    # 1, 1.0 and true are equal, but not the same.
    return one == other and repr(one) == repr(other)


def _dump(values: Mapping[str, Any]) -> str:
    plain = json.loads(json.dumps(values)) if is_json(values) else dict(values)
    text: str = yaml.dump(
        plain, Dumper=_Dumper, allow_unicode=True, sort_keys=False, default_flow_style=False, width=1 << 30
    )
    return text


def _convert(loader: Any, node: Any, seen: set[int]) -> Any:
    if id(node) in seen:
        raise InputError(f"front matter: line {node.start_mark.line + 1}: aliases are not read; repeat the value")
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
        mapping: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = _convert(loader, key_node, seen)
            if isinstance(key, (dict, list)) or key_node.tag == _TAG + "merge":
                raise InputError(f"front matter: line {key_node.start_mark.line + 1}: expected a plain key")
            if key in mapping:
                raise InputError(f"front matter: line {key_node.start_mark.line + 1}: the key {key!r} stands twice")
            mapping[key] = _convert(loader, value_node, seen)
        return mapping
    if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
        return [_convert(loader, item, seen) for item in node.value]
    if node.tag in _TEXTS:
        return node.value
    if node.tag in _SCALARS:
        return getattr(loader, f"construct_yaml_{_SCALARS[node.tag]}")(node)
    if node.tag == _TAG + "merge":
        return node.value
    raise InputError(f"front matter: line {node.start_mark.line + 1}: the tag {node.tag!r} is not read; remove it")


def _split(text: str, node: Any, keys: list[str]) -> tuple[str, dict[str, str]]:
    """What stands before the first key, and the lines of each key."""
    if node is None or node.flow_style:
        return "", {}
    starts = [0, *(match.end() for match in _LINES.finditer(text))]
    firsts = [starts[min(key.start_mark.line, len(starts) - 1)] for key, _ in node.value]
    ends = [*firsts[1:], len(text)]
    lines = {key: text[first:end] for key, first, end in zip(keys, firsts, ends, strict=True) if first < end}
    return text[: firsts[0]] if firsts else "", lines
