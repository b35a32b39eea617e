"""The interface of generators: language models that complete a conversation."""

from __future__ import annotations

from abc import abstractmethod
from collections import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from ..errors import GeneratorError, ReplyError
from .component import Closing, Component

__all__ = ["ChatMessage", "Completion", "Generator", "Stream"]


_SHOWN = 8000
"""Characters of an answer that is shown to the model again, at most."""


class ChatMessage(TypedDict):
    """One turn: `role` is ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model answered.

    Attributes:
        text: the answer, verbatim.
        model: the model's name as the provider gives it, or None.
        input_tokens, output_tokens: the provider's own counts, or None where it gives none.
    """

    text: str
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class ToItsEnd:
    """What has a completion once it was read to its end."""

    _completion: Completion | None = None

    @property
    def completion(self) -> Completion:
        """The whole answer, once the last piece was taken.

        Raises:
            GeneratorError: the end was not reached.
        """
        if self._completion is None:
            raise GeneratorError("the stream was not read to its end, so there is no completion; take all pieces first")
        return self._completion


class Stream(ToItsEnd, Closing, Iterator[str]):
    """The pieces of an answer as they come; together they are its text. Made of a generator that returns it.

    Whoever stops early closes it (it is a context manager), which ends the work for it where the model can do that.
    """

    def __init__(self, pieces: abc.Generator[str, None, Completion]) -> None:
        self._pieces = pieces

    def __next__(self) -> str:
        try:
            return next(self._pieces)
        except StopIteration as stop:
            self._completion = self._completion or stop.value
            raise StopIteration from None

    def close(self) -> None:
        """Take no more pieces. May be called more than once."""
        self._pieces.close()


class Generator(Component):
    """Completes conversations::

        class EchoGenerator(Generator):
            name = "echo"

            def complete(self, messages, *, temperature=0.0, max_tokens=None, schema=None):
                return Completion(messages[-1]["content"])

    Prove it with `nanomem_core.testing.GeneratorContract`.
    """

    @abstractmethod
    def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        temperature: float = 0.0,
        max_tokens: int | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Completion:
        """The model's next turn. `schema` is a JSON Schema the answer should follow, where the model can do that.

        Raises:
            GeneratorError: the model can't be reached, refuses, or breaks its contract.
        """

    def stream(
        self, messages: Sequence[ChatMessage], *, temperature: float = 0.0, max_tokens: int | None = None
    ) -> Stream:
        """The model's next turn piece by piece; override where the model can do that. Else it comes in one piece.

        Nothing is asked before the first piece is taken. A failure is raised by the piece it prevents, so pieces that
        came before may be of an answer that never ended.

        Raises:
            GeneratorError: as in `complete`.
        """

        def whole() -> abc.Generator[str, None, Completion]:
            completion = self.complete(messages, temperature=temperature, max_tokens=max_tokens)
            yield completion.text
            return completion

        return Stream(whole())

    # Core gives these.

    def generate(self, prompt: str, *, temperature: float = 0.0, max_tokens: int | None = None) -> str:
        """The answer to a single user turn."""
        message: ChatMessage = {"role": "user", "content": prompt}
        return self.complete([message], temperature=temperature, max_tokens=max_tokens).text

    def generate_json(
        self,
        messages: Sequence[ChatMessage],
        *,
        schema: Mapping[str, Any],
        check: Callable[[Any], None] | None = None,
        temperature: float = 0.0,
        max_tokens: int | None = None,
    ) -> Any:
        """The object or array that the model answers, read by `nanomem_core.replies.parse_reply`.

        An answer that can't be used is shown to the model once, with what is wrong; it may then answer again.

        Args:
            schema: a JSON Schema. The model gets it; the answer is held against its outer shape only (see
                `parse_reply`), so the caller reads every element as what it is: text from outside.
            check: raises ReplyError for a value that is of no use, without quoting it.

        Raises:
            GeneratorError: the model failed. ReplyError: its second answer can't be used either.
        """
        turns = self.json_turns(messages, schema, check)
        try:
            asked = next(turns)
            while True:
                completion = self.complete(asked, temperature=temperature, max_tokens=max_tokens, schema=schema)
                asked = turns.send(completion.text)
        except StopIteration as stop:
            return stop.value

    def json_turns(
        self, messages: Sequence[ChatMessage], schema: Mapping[str, Any], check: Callable[[Any], None] | None = None
    ) -> abc.Generator[list[ChatMessage], str, Any]:
        """What `generate_json` does apart from asking: yields each conversation to be completed, is sent the text of
        the answer, and returns the value. For callers that ask in a way of their own, such as by awaiting.
        """
        from ..replies import parse_reply  # which a program that asks no model needn't load

        turns = list(messages)
        for last in (False, True):
            text = yield turns
            try:
                reply = parse_reply(text, schema)
                if check is not None:
                    check(reply.value)
            except ReplyError as error:
                self.note_reply({}, error)
                import logging  # takes longer to import than this module

                logging.getLogger("nanomem").warning("generator %r: %s", self.name, error)
                if last:
                    raise
                turns = [
                    *turns,
                    {"role": "assistant", "content": text[:_SHOWN] or "(nothing)"},
                    {"role": "user", "content": _RETRY.format(expected=error.expected, found=error.found)},
                ]
            else:
                self.note_reply(reply.repairs, None)
                return reply.value
        raise AssertionError("unreachable")

    def note_reply(self, repairs: Mapping[str, int], error: ReplyError | None) -> None:
        """Told how each answer to `generate_json` could be read; a generator that counts overrides it."""
        return


_RETRY = (
    "That answer can't be used: expected {expected}; found {found}. "
    "Answer the request again with the JSON alone: no other text, no code fence."
)
