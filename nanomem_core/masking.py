"""What is secret, and how it is shown: one rule for settings, messages and endpoints."""

from __future__ import annotations

import re

__all__ = ["MASK", "PUBLIC_QUERY", "is_secret", "mask_urls"]

MASK = "**********"
"""Shown in place of a secret."""

PUBLIC_QUERY = frozenset({"api-version"})
"""What may be seen of a URL's query; everything else in one may be a signature or a key."""

_SECRET = re.compile(
    r"(?:^|[_\-.])(?:api[_-]?key|(?:access|secret|private)_?key|token|pass(?:word|wd|phrase)|secret|credentials?|authorization|headers)$",
    re.IGNORECASE,
)

# A password that was not quoted may hold any sign. What follows a colon, and is no port, is taken for one up to the
# last "@".
_USER = re.compile(r"(?<=://)(?:([^/?#@:]*:)(?!\d*(?:[/?#]|$)).*|[^/?#]*)(?=@)", re.DOTALL)
_QUERY = re.compile(r"(?<=[?&])(?:([^=&#]*)=)?([^&#]+)")


def is_secret(name: str) -> bool:
    """True if an option of that name holds something that must not be shown, judged by its last words."""
    return _SECRET.search(name) is not None


def mask_urls(text: str) -> str:
    """`text` with `MASK` for the passwords in its URLs, or a name without one, and for what stands in their queries."""
    if "://" not in text:
        return text
    text = _USER.sub(lambda found: f"{found[1] or ''}{MASK}", text)
    return _QUERY.sub(_masked_value, text)


def _masked_value(found: re.Match[str]) -> str:
    name = found[1]
    if name is None:
        return MASK
    return found[0] if name in PUBLIC_QUERY else f"{name}={MASK}"
