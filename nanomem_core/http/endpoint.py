"""An endpoint: where a model is asked, with which headers, and how long and how often."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable
from urllib.parse import SplitResult, parse_qsl, unquote

from ..errors import ConfigError
from ..masking import MASK, PUBLIC_QUERY
from .urls import parse_url, shown_url

__all__ = ["Endpoint", "Key", "find_key", "reveal"]

_SHORTEST_SECRET = 6
"""Shorter ones, such as the ``none`` that some servers want for a key, are words, and no secrets."""


@runtime_checkable
class Secret(Protocol):
    """What pydantic's ``SecretStr`` is, which need not be imported for it."""

    def get_secret_value(self) -> str: ...


Key = str | Secret
"""A key, as text or as pydantic's ``SecretStr``."""


def reveal(key: Key | None) -> str | None:
    """The text of `key`; None for an empty one.

    Raises:
        ConfigError: no HTTP header can hold it; the message does not show it.
    """
    text = key if key is None or isinstance(key, str) else key.get_secret_value()
    if text is not None and not (text := text.strip()).isprintable():
        raise ConfigError("api_key: expected one line of text; found a control character in it", key="api_key")
    if text is not None and not text.isascii():
        raise ConfigError("api_key: expected ASCII characters only; found another one", key="api_key")
    return text or None


def find_key(api_key: Key | None, variable: str, own: bool) -> tuple[str | None, str]:
    """The key to send, and what to do where the server wants another one, for `Endpoint.key_help`.

    Args:
        api_key: the one that was given, if any.
        variable: of the environment, that holds the provider's key.
        own: whether the server is the provider's. A key from the environment goes nowhere else.
    """
    key = reveal(api_key)
    if own:
        return key or reveal(os.environ.get(variable)), f"give one as api_key, or set {variable}"
    return key, f"give one as api_key ({variable} is not sent to this server)"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One URL of a model's server. Its `repr` and what `mask` lets through hold no secret.

    Attributes:
        provider: the name of the plugin that talks to it.
        url: the full URL. User and password in it are sent as Basic authentication.
        headers: sent with each request, whatever is missing to JSON aside.
        key_help: what to do where the server wants a key, for messages.
        timeout: seconds that one request may take in all.
        connect_timeout: seconds to connect.
        read_timeout: seconds of silence; None is no other limit than `timeout`.
        retries: how often the requests of one call are repeated in all.
        proxy: URL of a proxy; None goes by the environment (``HTTPS_PROXY``, ``NO_PROXY`` and so on).
    """

    provider: str
    url: SplitResult = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    key_help: str = "give one as api_key"
    timeout: float = 60.0
    connect_timeout: float = 5.0
    read_timeout: float | None = None
    retries: int = 2
    proxy: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        limits = {"timeout": self.timeout, "connect_timeout": self.connect_timeout, "read_timeout": self.read_timeout}
        for name, seconds in limits.items():
            if seconds is not None and not seconds > 0:
                raise ConfigError(f"{name}: expected more than 0 seconds; found {seconds}", key=name)
        if self.retries < 0:
            raise ConfigError(f"retries: expected 0 or more; found {self.retries}", key="retries")
        for name, value in self.headers.items():
            if not (name.isascii() and name.isprintable() and name.strip() and value.isprintable() and value.isascii()):
                raise ConfigError(f"headers: {name!r}: expected one line of ASCII characters", key="headers")
        if self.proxy is not None:
            parse_url(self.proxy, "proxy")

    @property
    def shown(self) -> str:
        """The URL, fit for messages."""
        return shown_url(self.url)

    @property
    def origin(self) -> str:
        """Scheme, host and port: what is dead if the endpoint is."""
        return self.url._replace(netloc=self.url.netloc.rpartition("@")[2], path="", query="", fragment="").geturl()

    def all_headers(self) -> dict[str, str]:
        """Every header of a request, names in lower case."""
        plain = {"content-type": "application/json", "accept-encoding": "gzip, deflate", "user-agent": "nanomem-core"}
        return plain | self._own_headers()

    def _own_headers(self) -> dict[str, str]:
        headers = {}
        if self.url.username is not None:
            user = f"{unquote(self.url.username)}:{unquote(self.url.password or '')}"
            headers["authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
        return headers | {name.lower(): value for name, value in self.headers.items()}

    def target(self) -> str:
        """The URL to ask, without user and password."""
        return self.url._replace(netloc=self.url.netloc.rpartition("@")[2], fragment="").geturl()

    def mask(self, text: str) -> str:
        """`text` with every secret of this endpoint replaced by `MASK`."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, MASK)
        return text

    def _secrets(self) -> set[str]:
        # Of "Bearer key" and "Basic key" the last word is the key.
        words = {word for value in self._own_headers().values() for word in (value, value.rpartition(" ")[2])}
        words |= {value for name, value in parse_qsl(self.url.query) if name not in PUBLIC_QUERY}
        for url in (self.url, parse_url(self.proxy, "proxy") if self.proxy else self.url):
            if url.password:
                words |= {url.password, unquote(url.password)}
        return {word for word in words if len(word) >= _SHORTEST_SECRET}
