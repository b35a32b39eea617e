"""Asking the taggers in turn, whatever a model does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..errors import GeneratorError, InputError
from ..hints import one_line
from ..interfaces import Generator, Statement, Tagger
from ..records import normalize_entity

__all__ = ["tag_texts"]


def tag_texts(
    taggers: Sequence[Tagger],
    texts: Sequence[str],
    *,
    previous: str | None = None,
    known: Callable[[], Mapping[str, str]] = dict,
    generator: Callable[[], Generator | None] = lambda: None,
    strict: bool = False,
) -> list[str | None]:
    """The entity of each of one user's `texts`, in normal form; what one tagger can't tell, the next is asked.

    A tagger whose model fails only loses its turn, and a warning is logged: what was said is to be kept all the same.

    Args:
        previous, known: as in `Tagger.tag_batch`.
        generator: gives the model; called only for a tagger that asks one.
        strict: raise when a model fails.

    Raises:
        GeneratorError: a model failed, and `strict`.
        InputError: a tagger answers with another number of entities, or with one that has no normal form.
    """
    statements = [Statement(text) for text in texts]
    for tagger in taggers:
        if all(said.entity is not None for said in statements):
            break
        try:
            model = generator() if tagger.asks_generator else None
            found = tagger.tag_batch(statements, previous=previous, known=known, generator=model)
        except GeneratorError as error:
            if strict:
                raise
            import logging  # takes longer to import than this module

            logging.getLogger("nanomem").warning(
                "tagger %r could not be asked, so the next one is: %s", tagger.name, one_line(error)
            )
            continue
        if len(found) != len(statements):
            raise InputError(
                f"tagger {tagger.name!r}: expected {len(statements)} entities, one for each statement; "
                f"found {len(found)}"
            )
        statements = [
            said if said.entity is not None or entity is None else Statement(said.text, normalize_entity(entity))
            for said, entity in zip(statements, found, strict=True)
        ]
    return [said.entity for said in statements]
