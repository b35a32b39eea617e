"""Reading and completing the URLs of endpoints. Everything goes by the parsed URL, never by a part of its text."""

from __future__ import annotations

import re
import urllib.request
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from ..errors import ConfigError

__all__ = ["Provider", "complete_url", "in_domain", "parse_url", "provider_of", "proxy_for", "shown_url"]

Provider = Literal["anthropic", "ollama", "openai"]

_OPENAI_PORTS = (1234, 4891, 5000, 8000, 8080, 11435)
"""What LM Studio, GPT4All, text-generation-webui, vLLM, llama.cpp and others listen at."""

_LOOPBACK = re.compile(r"localhost|127(?:\.\d+){3}|::1")


def parse_url(url: str, key: str = "base_url") -> SplitResult:
    """The parts of `url`, which has a scheme, a host, and a port that is a number, if it has one.

    Raises:
        ConfigError: it has not; `key` names the option.
    """
    try:
        parts = urlsplit(url.strip())
        problem = None if parts.hostname else "no host"
        if parts.scheme not in ("http", "https"):
            problem = "no http:// or https:// at its start"
        _ = parts.port
    except ValueError as error:
        parts, problem = None, str(error)
    if parts is None or problem:
        shown = url.strip().rpartition("@")[2].partition("?")[0]
        raise ConfigError(
            f"{key}: expected a URL such as http://localhost:8080/v1; found {shown!r}: {problem}", key=key
        )
    return parts


def shown_url(url: SplitResult) -> str:
    """`url` without what may be secret: user, password, query and fragment."""
    return url._replace(netloc=url.netloc.rpartition("@")[2], query="", fragment="").geturl()


def complete_url(base: SplitResult, root: str, name: str) -> SplitResult:
    """The URL of the endpoint `name` below `base`; `root`, such as ``/v1``, is the path at which a server keeps them.

    A path that ends in ``/name`` is taken as it is; what is missing of ``root/name`` is added to any other one. The
    query stays.
    """
    path = base.path.rstrip("/")
    if path.endswith(f"/{name}"):
        return base
    if not path.endswith(root):
        path += root
    return base._replace(path=f"{path}/{name}")


def provider_of(url: str) -> Provider:
    """Whose protocol a server at `url` most likely speaks.

    Raises:
        ConfigError: it is no URL.
    """
    parts = parse_url(url)
    host, path = parts.hostname or "", parts.path.rstrip("/")
    if in_domain(host, "anthropic.com") or path.endswith("/messages"):
        return "anthropic"
    if path.endswith(("/chat/completions", "/embeddings", "/v1")):
        return "openai"
    if parts.port in _OPENAI_PORTS or in_domain(host, "openai.com", "azure.com"):
        return "openai"
    return "ollama"


def in_domain(host: str, *domains: str) -> bool:
    """True if `host` is one of the `domains` or below one."""
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


def proxy_for(url: SplitResult) -> str | None:
    """The proxy that the environment names for `url`; never one for this machine itself."""
    host = url.hostname or ""
    if _LOOPBACK.fullmatch(host) or urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"
