"""What an endpoint answered, and which error a refusal is."""

from __future__ import annotations

import email.utils
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from ..errors import (
    AuthenticationError,
    BadResponseError,
    ContextLengthError,
    EndpointError,
    EndpointTimeoutError,
    RateLimitedError,
    RefusedError,
    UnreachableError,
)
from .endpoint import Endpoint
from .urls import Provider, provider_of

__all__ = ["Answer", "parse_json", "refusal", "retry_after", "worth_retrying"]

_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses that may be gone at the next try; 529 is Anthropic's "overloaded"."""

_HOPELESS_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})

_TOO_LONG = re.compile(
    r"context.?length|context.?(?:window|size)|maximum context|prompt is too long|too many (?:input )?tokens"
    r"|maximum input length|input (?:length|is too long)|exceeds? the (?:available|maximum)",
    re.IGNORECASE,
)

_LONGEST_QUOTE = 300


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a server; its `content` is decompressed. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


def parse_json(endpoint: Endpoint, content: bytes, status: int | None = 200) -> Any:
    """The JSON value in `content`; NaN and infinities become None.

    Raises:
        BadResponseError: it is none.
    """
    try:
        return json.loads(content, parse_constant=lambda name: None)
    except (ValueError, RecursionError) as error:
        what = f"{len(content)} bytes that are none" if content.strip() else "an empty answer"
        raise BadResponseError(
            f"{endpoint.shown}: expected JSON; found {what}. Is this the URL of {endpoint.provider}'s interface?",
            url=endpoint.shown,
            status=status,
        ) from error


def refusal(endpoint: Endpoint, answer: Answer) -> RefusedError:
    """The error for an answer whose status is no success."""
    text, code, parameter = _complaint(answer.content)
    status, wait = answer.status, retry_after(answer.headers)
    quoted = endpoint.mask(" ".join(text.split()))
    quoted = "".join(letter for letter in quoted if letter.isprintable())[:_LONGEST_QUOTE]
    message = f"{endpoint.shown} answered with status {status}" + (f": {quoted}" if quoted else "")
    kind: type[RefusedError] = RefusedError
    if status in (401, 403):
        kind, message = AuthenticationError, f"{message}. If it wants another key, {endpoint.key_help}"
    elif status == 429:
        kind = RateLimitedError
        if wait is not None:
            message += f" (it may be asked again in {wait:.0f} s)"
    elif status in (400, 413, 422, 500) and _TOO_LONG.search(f"{code} {text}"):
        kind = ContextLengthError
    elif 300 <= status < 400:
        target = endpoint.mask(answer.headers.get("location", "elsewhere").partition("?")[0])
        message += f": it redirects to {target}, which is not followed, as the key is not meant for there"
    elif status == 404:
        message += ". Are the URL and the name of the model right?"
        likely = provider_of(endpoint.url.geturl())
        if endpoint.provider in get_args(Provider) and likely != endpoint.provider:
            message += f" A server there rather speaks the interface of the plugin {likely!r}"
    return kind(
        message, url=endpoint.shown, status=status, retry_after=wait, code=code, parameter=parameter
    )  # fmt: skip


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, by ``retry-after-ms`` or ``retry-after`` (a number, or a date of HTTP); None if unsaid."""
    for name, factor in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", value):
            return float(value) * factor
    try:
        date = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, date.timestamp() - time.time())
    except (ValueError, OverflowError, OSError):
        return None


def worth_retrying(error: EndpointError) -> bool:
    """True if the same request may well succeed a moment later."""
    if isinstance(error, ContextLengthError):
        return False
    if isinstance(error, RefusedError):
        return error.status in _PASSING and error.code not in _HOPELESS_CODES
    if isinstance(error, BadResponseError):
        return error.status is None
    return isinstance(error, (UnreachableError, EndpointTimeoutError))


def _complaint(content: bytes) -> tuple[str, str | None, str | None]:
    """What an answer says is wrong: a text, a code and a field of the request, in the shapes that servers use."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return content.decode("utf-8", "replace") if b"<html" not in content[:1000].lower() else "", None, None
    error = found.get("error", found) if isinstance(found, Mapping) else found
    if not isinstance(error, Mapping):
        return str(error), None, None
    text = error.get("message") or error.get("detail") or error
    code = error.get("code") if isinstance(error.get("code"), str) else error.get("type")
    parameter = error.get("param")
    return (
        text if isinstance(text, str) else json.dumps(text),
        code if isinstance(code, str) else None,
        parameter if isinstance(parameter, str) else None,
    )
