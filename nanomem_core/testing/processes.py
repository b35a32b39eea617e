"""Calling functions in other processes, started afresh, as the contracts need it."""

from __future__ import annotations

import multiprocessing
import pickle
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import pytest

__all__ = ["in_processes", "must_be_picklable"]


def must_be_picklable(factory: Callable[..., object], fixture: str) -> None:
    """Fail with advice if `factory`, which the `fixture` returned, can't be sent to another process."""
    try:
        pickle.dumps(factory)
    except Exception as error:
        pytest.fail(f"{fixture}: return a class, a function or a functools.partial, which can be pickled; {error}")


def in_processes(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    """What `function` returns for the arguments of each of `calls`, each called in a process of its own, all at once.

    Fails with the traceback of a process that raised.
    """
    context = multiprocessing.get_context("spawn")
    running = []
    for arguments in calls:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_answer, args=(sender, function, arguments))
        process.start()
        sender.close()
        running.append((process, receiver))
    results, failures = [], []
    for process, receiver in running:
        try:
            result, failure = receiver.recv()
        except EOFError:
            result, failure = None, "the process ended without an answer"
        process.join()
        receiver.close()
        results.append(result)
        if failure or process.exitcode:
            failures.append(f"exit code {process.exitcode}: {failure}")
    assert not failures, failures[0]
    return results


def _answer(sender: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    result, failure = None, None
    try:
        result = function(*arguments)
    except BaseException:
        failure = traceback.format_exc()
    sender.send((result, failure))
