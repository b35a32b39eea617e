"""Asking models over HTTP: for plugins whose embedder or generator is a server.

A plugin describes its server by an `Endpoint` and subclasses `HttpEmbedder` or `HttpGenerator`, saying how one request
is built and one answer read. Time-outs, retries, `Retry-After`, dead endpoints, errors and the masking of keys are the
same for all of them, and `nanomem_core.aio` awaits what they do by blocking.

* A request may take `timeout` seconds in all, `connect_timeout` of them to connect, and `read_timeout` in silence. Only
  the look-up of a host's name is the system's and knows no limit of ours.
* The requests of one call are repeated `retries` times in all, after waits that double and are drawn at random, or as
  long as the server wants it, up to a minute. What can't get better is not repeated.
* An endpoint that did not answer three times in a row is left alone for 30 seconds by the whole process; see `circuit`.
* Redirects are not followed, cookies not kept, and nothing is logged but URLs without their query, statuses and times.

httpx is imported by the first request.
"""

from .circuit import forget_unreachable_endpoints
from .client import Client
from .embedder import HttpEmbedder
from .endpoint import Endpoint, Key, find_key, reveal
from .exchange import Body, Call
from .generator import HttpGenerator, StreamReader, count, field, peek, server_events, text_of, with_schema
from .urls import Provider, complete_url, in_domain, parse_url, provider_of

__all__ = [
    "Body",
    "Call",
    "Client",
    "Endpoint",
    "HttpEmbedder",
    "HttpGenerator",
    "Key",
    "Provider",
    "StreamReader",
    "complete_url",
    "count",
    "field",
    "find_key",
    "forget_unreachable_endpoints",
    "in_domain",
    "parse_url",
    "peek",
    "provider_of",
    "reveal",
    "server_events",
    "text_of",
    "with_schema",
]
