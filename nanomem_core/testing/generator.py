"""The contract of generators::

    class TestMyGenerator(GeneratorContract):
        @pytest.fixture
        def make_generator(self, server):
            return lambda: MyGenerator(url=server.url)      # answers every call

        @pytest.fixture
        def make_failing_generator(self):
            return lambda: MyGenerator(url="http://127.0.0.1:9")     # can't be reached, say

The contract needs an endpoint that answers; a real or a local one, as long as it stays up for the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ..errors import GeneratorError
from ..interfaces import ChatMessage, Completion, Generator

__all__ = ["GeneratorContract", "MakeGenerator"]

MakeGenerator = Callable[[], Generator]

_SCHEMA = {"type": "object", "properties": {"facts": {"type": "array", "items": {"type": "string"}}}}


def _conversation() -> list[ChatMessage]:
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Meets Zoë at Café Müller 🫖 on Fridays. 漢字\nline two"},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": "What do you know?"},
    ]


class GeneratorContract:
    """What `nanomem_core.interfaces.Generator` promises; see the module."""

    @pytest.fixture
    def make_generator(self) -> MakeGenerator:
        """Make a generator that answers; a plugin's test class overrides this."""
        raise NotImplementedError(f"{type(self).__name__}: expected a fixture make_generator; see {__name__}")

    @pytest.fixture
    def make_failing_generator(self) -> MakeGenerator:
        """Make a generator whose model can't be reached or refuses; a plugin's test class overrides this."""
        raise NotImplementedError(f"{type(self).__name__}: expected a fixture make_failing_generator; see {__name__}")

    @pytest.fixture
    def generator(self, make_generator: MakeGenerator) -> Iterator[Generator]:
        with make_generator() as generator:
            yield generator

    def test_a_conversation_is_completed_with_a_text(self, generator: Generator) -> None:
        completion = generator.complete(_conversation())
        assert isinstance(completion, Completion)
        assert isinstance(completion.text, str)
        assert completion.model is None or isinstance(completion.model, str)
        for count in (completion.input_tokens, completion.output_tokens):
            assert count is None or (type(count) is int and count >= 0)

    def test_every_option_is_accepted(self, generator: Generator) -> None:
        completion = generator.complete(_conversation(), temperature=0.7, max_tokens=64, schema=_SCHEMA)
        assert isinstance(completion.text, str)

    def test_the_pieces_of_a_stream_make_its_completion(self, generator: Generator) -> None:
        with generator.stream(_conversation(), temperature=0.0, max_tokens=64) as stream:
            pieces = list(stream)
            assert all(isinstance(piece, str) for piece in pieces)
            assert "".join(pieces) == stream.completion.text

    def test_generate_gives_the_text_of_one_turn(self, generator: Generator) -> None:
        assert isinstance(generator.generate("Say something.", temperature=0.0, max_tokens=16), str)

    def test_the_caller_s_messages_are_not_changed(self, generator: Generator) -> None:
        messages = _conversation()
        generator.complete(messages, schema=_SCHEMA)
        assert messages == _conversation()

    def test_a_failure_is_a_generator_error(self, make_failing_generator: MakeGenerator) -> None:
        with make_failing_generator() as generator:
            with pytest.raises(GeneratorError) as caught:
                generator.complete(_conversation())
            assert str(caught.value)
            with pytest.raises(GeneratorError):
                list(generator.stream(_conversation()))

    def test_close_may_be_repeated(self, make_generator: MakeGenerator) -> None:
        generator = make_generator()
        generator.close()
        generator.close()
