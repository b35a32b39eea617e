"""Which URL and which key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from nanomem_core.errors import ConfigError
from nanomem_core.http import Endpoint, Key, complete_url, find_key, in_domain, parse_url

__all__ = ["endpoint"]

_DEFAULT_URL = "https://api.openai.com/v1"
_NAMES = ("chat/completions", "embeddings")


def endpoint(
    name: Literal["chat/completions", "embeddings"],
    base_url: str | None,
    api_key: Key | None,
    headers: Mapping[str, str] | None,
    **limits: Any,
) -> Endpoint:
    """The endpoint `name` of the server at `base_url`.

    A `base_url` with a path gets only what is missing of the name, as in OpenAI's own client; one without is completed
    to ``/v1`` (Azure: ``/openai/v1``). Azure takes its key in the header ``api-key``, every other server as a bearer.

    Raises:
        ConfigError: the URL, the key or a limit is wrong.
    """
    given = base_url or os.environ.get("OPENAI_BASE_URL") or _DEFAULT_URL
    url = parse_url(given)
    path, host = url.path.rstrip("/"), url.hostname or ""
    for other in _NAMES:
        if other != name and path.endswith(f"/{other}"):
            raise ConfigError(f"base_url: expected the endpoint /{name}, or a base URL; found /{other}", key="base_url")
    azure = in_domain(host, "azure.com")
    root = "" if path else "/openai/v1" if azure else "/v1"
    variable = "AZURE_OPENAI_API_KEY" if azure else "OPENAI_API_KEY"
    key, key_help = find_key(api_key, variable, own=base_url is None or azure or in_domain(host, "openai.com"))
    sent: dict[str, str] = {}
    if key is not None:
        sent = {"api-key": key} if azure else {"authorization": f"Bearer {key}"}
    return Endpoint(
        "openai",
        complete_url(url, root, name),
        headers={**sent, **(headers or {})},
        key_help=key_help,
        **limits,
    )
