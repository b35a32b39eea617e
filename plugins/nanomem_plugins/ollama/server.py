"""Which URL and which key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from nanomem_core.errors import ConfigError
from nanomem_core.http import Endpoint, Key, complete_url, find_key, in_domain, parse_url

__all__ = ["bare_name", "endpoint"]

_PORT = 11434


def endpoint(
    name: Literal["chat", "embed"],
    base_url: str | None,
    api_key: Key | None,
    headers: Mapping[str, str] | None,
    **limits: Any,
) -> Endpoint:
    """The endpoint ``/api/name`` of the server at `base_url`, of ``OLLAMA_HOST``, or of this machine.

    Raises:
        ConfigError: the URL, the key or a limit is wrong, or the URL is one of OpenAI's interface.
    """
    url = parse_url(base_url or _host())
    path = url.path.rstrip("/")
    if path.endswith(("/v1", "/chat/completions", "/embeddings")):
        raise ConfigError(
            f"base_url: expected one of Ollama's own interface, such as http://localhost:{_PORT}; found {path!r} at "
            "its end, which is OpenAI's interface. Choose `use: openai` for it, or leave the path out",
            key="base_url",
        )
    own = base_url is None or in_domain(url.hostname or "", "ollama.com")
    key, key_help = find_key(api_key, "OLLAMA_API_KEY", own)
    return Endpoint(
        "ollama",
        complete_url(url, "/api", name),
        headers={**({"authorization": f"Bearer {key}"} if key else {}), **(headers or {})},
        key_help=key_help,
        **limits,
    )


def bare_name(model: str) -> str:
    """The model's name without the tag that it has anyway."""
    return model.removesuffix(":latest")


def _host() -> str:
    """``OLLAMA_HOST`` as a URL. It is also what a server listens at, so it may be a host alone, or every address."""
    host = os.environ.get("OLLAMA_HOST", "").strip() or "localhost"
    if "://" in host:
        return host
    url = parse_url(f"http://{host}", "OLLAMA_HOST")
    name = "localhost" if url.hostname in ("0.0.0.0", "::") else url.hostname or ""
    return f"http://{f'[{name}]' if ':' in name else name}:{url.port or _PORT}{url.path}"
