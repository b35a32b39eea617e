"""The interface of generators: language models that complete a conversation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from .component import Component

__all__ = ["ChatMessage", "Completion", "Generator"]


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

    def generate(self, prompt: str, *, temperature: float = 0.0, max_tokens: int | None = None) -> str:
        """The answer to a single user turn."""
        message: ChatMessage = {"role": "user", "content": prompt}
        return self.complete([message], temperature=temperature, max_tokens=max_tokens).text
