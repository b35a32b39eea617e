"""Wording that the settings, the options of components and the hooks share in their error messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .masking import is_secret, mask_urls

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = ["NAME_A_GENERATOR", "did_you_mean", "first_problem", "one_line"]

NAME_A_GENERATOR = "name one in the settings file (`generator: {use: NAME, …}`) or by NANOMEM_GENERATOR__USE"
"""What to do where no generator is set."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the known word that is nearest to `word`, an empty text if none is near."""
    import difflib  # for messages only, and the start of a program waits for each import

    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def one_line(error: BaseException) -> str:
    """Type and message of `error` on a single line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def first_problem(error: ValidationError) -> tuple[tuple[int | str, ...], str]:
    """Where the first problem of a pydantic error is, and what was expected and found there.

    What was found is left out below a name that `is_secret`, and secrets in URLs are masked.
    """
    problem = error.errors(include_url=False)[0]
    where = problem["loc"]
    if problem["type"] == "missing":
        return where, "is required"
    cause = problem.get("ctx", {}).get("error")
    message = str(cause) if cause is not None else problem["msg"][:1].lower() + problem["msg"][1:]
    if cause is None and not any(is_secret(str(part)) for part in where):
        message += f"; found {mask_urls(repr(problem['input']))}"
    return where, message
