"""How a call goes on, without any input or output: what to send, how long to wait, when to give up.

`exchange` is a generator. It yields `Send` and `Wait`, and is given an `Answer` or is thrown an `EndpointError`; a
client that blocks and one that awaits drive the same one. What a provider does in one call is a generator as well, a
`Call`: it yields bodies of requests, is given answers, and returns what the caller wants.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ..errors import EndpointError, EndpointTimeoutError, UnreachableError
from . import circuit
from .answers import Answer, parse_json, refusal, worth_retrying
from .endpoint import Endpoint

__all__ = ["FIRST_WAIT", "LONGEST_WAIT", "Body", "Call", "Send", "Steps", "Wait", "exchange", "opening"]

_log = logging.getLogger("nanomem")

FIRST_WAIT = 0.5
"""Seconds before the first repetition, at most; each further one may wait twice as long."""

LONGEST_WAIT = 60.0
"""Seconds that are waited for a server that says when to come back; for longer ones the call fails at once."""

_LONGEST_OWN_WAIT = 8.0

T = TypeVar("T")

Body = Mapping[str, Any]
"""The JSON of a request."""

Call = Generator[Body, Any, T]
"""What a provider does in one call: yields bodies, is given the JSON of each answer or is thrown an `EndpointError`."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send `content`. With `stream`, an answer that is a success is kept open and comes without its content."""

    content: bytes
    stream: bool


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


Steps = Generator[Send | Wait, Answer | None, T]


def exchange(endpoint: Endpoint, call: Call[T]) -> Steps[T]:
    """Drives `call`. All its requests together are repeated `Endpoint.retries` times at most.

    Raises:
        EndpointError: a request failed for good, and `call` did not handle it.
    """
    attempts = _Attempts(endpoint)
    try:
        body = next(call)
        while True:
            try:
                answer = yield from attempts.send(body)
                found = parse_json(endpoint, answer.content)
            except EndpointError as error:
                body = call.throw(error)
            else:
                body = call.send(found)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        call.close()


def opening(endpoint: Endpoint, call: Call[Any]) -> Steps[None]:
    """Opens a stream: sends the first body that `call` yields and the server accepts. The answer is left open."""
    attempts = _Attempts(endpoint)
    body = next(call)
    try:
        while True:
            try:
                yield from attempts.send(body, stream=True)
            except EndpointError as error:
                body = call.throw(error)
            else:
                return
    finally:
        call.close()


class _Attempts:
    """The attempts of one call."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._left = endpoint.retries
        self._wait = FIRST_WAIT

    def send(self, body: Body, stream: bool = False) -> Steps[Answer]:
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        send = Send(content.encode("utf-8", "replace"), stream)
        while True:
            try:
                return (yield from self._try(send))
            except EndpointError as error:
                seconds = self._next_wait(error)
                if seconds is None:
                    raise
                _log.debug("%s; trying again in %.1f s", error, seconds)
            yield Wait(seconds)

    def _try(self, send: Send) -> Steps[Answer]:
        endpoint = self._endpoint
        if (seconds := circuit.seconds_to_wait(endpoint.origin)) is not None:
            self._left = 0
            raise UnreachableError(
                f"{endpoint.shown} did not answer {circuit.FAILURES} times in a row, so it is left alone for "
                f"{seconds:.0f} s more (nanomem_core.http.forget_unreachable_endpoints() ends that)",
                url=endpoint.shown,
            )
        try:
            answer = yield send
        except (UnreachableError, EndpointTimeoutError):
            circuit.failed(endpoint.origin)
            raise
        assert answer is not None
        circuit.answered(endpoint.origin)
        if not 200 <= answer.status < 300:
            raise refusal(endpoint, answer)
        return answer

    def _next_wait(self, error: EndpointError) -> float | None:
        """Seconds to wait before trying again; None to give up."""
        if not self._left or not worth_retrying(error):
            return None
        if error.retry_after is not None and error.retry_after > LONGEST_WAIT:
            return None
        self._left -= 1
        wait, self._wait = self._wait, min(2 * self._wait, _LONGEST_OWN_WAIT)
        jittered = random.uniform(wait / 2, wait)  # callers that failed together don't come back together
        return max(error.retry_after or 0.0, jittered)
