"""Names of users, agents and records as names of files: reversible, and distinct on every disk.

`encode_name` makes one path component of a name:

* Lower-case letters, digits and ``- _ . @ +`` stand for themselves, and so do letters of other scripts:
  ``ann@example.org``, ``hi..there`` and ``用户-一`` are unchanged.
* A capital letter is ``^`` and its small letter, since a disk may not tell the two apart: ``Ann`` is ``^ann``.
* Everything else is ``%`` and two hex digits for each byte of its UTF-8 form: ``a/b`` is ``a%2fb``. So are a dot at
  either end, the first letter of a name that Windows reserves (``con``, ``nul.md``), and letters that some disks
  change or merge with others (decomposable or compatibility forms).
* What is longer than `MAX_COMPONENT` bytes then is cut, and ``=`` and 32 hex digits of the SHA-256 of the name follow.
  That form can't be read back: a store that meets it keeps the full name inside its file.

No result holds ``~``, ``#``, ``!`` or a space, so a store can use these in names of its own beside it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import stat
import unicodedata
from pathlib import Path

from ..errors import InputError, StorageError
from ..records import check_name

__all__ = ["MAX_COMPONENT", "confined", "decode_name", "encode_name"]

MAX_COMPONENT = 120
"""Bytes of an encoded name at most; this leaves half of what disks allow for suffixes such as ``.jsonl.tmp-1234``."""

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.@+")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|$)")
_SEPARATORS = frozenset("/\\:\0")
_DIGEST_MARK = "="
_DIGEST_LENGTH = 32
_ESCAPED = re.compile(r"(?:%[0-9a-f]{2})+|\^.")


def encode_name(name: str) -> str:
    """`name` as one path component. Two names never give the same one, not even when upper and lower case are merged.

    Raises:
        InputError: `name` is empty, longer than 1024 UTF-8 bytes, or holds a NUL or an unpaired surrogate.
    """
    check_name(name, "name")
    parts = [_encode_char(char) for char in name]
    if not unicodedata.is_normalized("NFC", "".join(parts)):
        # Some letters would join their neighbours on a disk that normalises names.
        parts = [part if part.isascii() else _hex(char) for part, char in zip(parts, name, strict=True)]
    if name[0] == "." or _RESERVED.match("".join(parts)):
        parts[0] = _hex(name[0])
    if name[-1] == ".":
        parts[-1] = _hex(name[-1])
    component = "".join(parts)
    if len(component.encode("utf-8")) <= MAX_COMPONENT:
        return component
    return _cut(parts, MAX_COMPONENT - _DIGEST_LENGTH - 1) + _DIGEST_MARK + _digest(name)


def decode_name(component: str) -> str | None:
    """The name that `component` was made of, or None if it was too long to be kept whole.

    Raises:
        InputError: `encode_name` never gives this component.
    """
    component = unicodedata.normalize("NFC", component)  # macOS may list a name in decomposed form
    head, mark, digest = component.partition(_DIGEST_MARK)
    if mark:
        if head and re.fullmatch(rf"[0-9a-f]{{{_DIGEST_LENGTH}}}", digest):
            return None
        name = ""
    else:
        name = _ESCAPED.sub(_unescape, component)
    try:
        if encode_name(name) == component:
            return name
    except InputError:
        pass
    raise InputError(f"{component!r} is no encoded name: `encode_name` never gives it")


def confined(root: str | os.PathLike[str], *parts: str) -> Path:
    """The path `root`/`parts`, where each part is the name of one entry and no entry below `root` is a link.

    `root` itself may be a symbolic link: that is the user's choice. The check looks at what exists now; it guards
    against links that were planted before, not against somebody who swaps entries at the very moment.

    Raises:
        InputError: a part is empty, ``.`` or ``..``, or holds a separator, a drive or a NUL.
        StorageError: an entry on the way is a symbolic link (or a junction on Windows).
    """
    # Texts, not Path objects, on the way: every file that is read or written passes here.
    path = os.fspath(root)
    for part in parts:
        if part in ("", ".", "..") or not _SEPARATORS.isdisjoint(part):
            raise InputError(f"path: expected the name of one entry below {root}; found {part!r}")
        path = os.path.join(path, part)
        if _is_link(path):
            raise StorageError(f"{path} is a link, which is never followed; remove it, or move its target here")
    return Path(path)


@functools.lru_cache(maxsize=4096)
def _encode_char(char: str) -> str:
    if _stands_for_itself(char):
        return char
    small = char.lower()
    if len(small) == 1 and small != char and small.upper() == char and _stands_for_itself(small):
        return "^" + small
    return _hex(char)


def _stands_for_itself(char: str) -> bool:
    if char.isascii():
        return char in _PLAIN
    # The case conditions make the mapping to upper case one-to-one over all letters that pass: disks compare by it.
    return (
        unicodedata.category(char) in ("Ll", "Lo", "Nd")
        and unicodedata.normalize("NFKC", char) == char
        and char.casefold() == char
        and char.upper().lower() == char
    )


def _hex(char: str) -> str:
    return "".join(f"%{byte:02x}" for byte in char.encode("utf-8"))


def _unescape(match: re.Match[str]) -> str:
    text = match[0]
    if text[0] == "^":
        return text[1].upper()
    return bytes.fromhex(text.replace("%", "")).decode("utf-8", "replace")


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8")).hexdigest()[:_DIGEST_LENGTH]


def _cut(parts: list[str], room: int) -> str:
    used, kept = 0, []
    for part in parts:
        used += len(part.encode("utf-8"))
        if used > room:
            break
        kept.append(part)
    return "".join(kept)


def _is_link(path: str) -> bool:
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return False
    junction: int | None = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)
    return stat.S_ISLNK(info.st_mode) or (junction is not None and getattr(info, "st_reparse_tag", 0) == junction)
