"""The contract of taggers::

    class TestMyTagger(TaggerContract):
        @pytest.fixture
        def make_tagger(self):
            return MyTagger              # called without arguments, also in another process

        statements = ("I live in Lisbon.",)      # some that it recognises

A tagger that asks a generator also overrides ``make_generator``, so that it returns one that answers every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import pytest

from ..interfaces import Statement, Tagger
from ..records import normalize_entity
from .fixtures import GivenGenerator, ModelFixtures
from .processes import in_processes, must_be_picklable
from .samples import ODD_TEXTS

__all__ = ["MakeTagger", "TaggerContract"]

MakeTagger = Callable[[], Tagger]


class TaggerContract(ModelFixtures):
    """What `nanomem_core.interfaces.Tagger` promises; see the module."""

    statements: ClassVar[Sequence[str]] = ()
    """Texts to which the tagger gives an entity."""

    @pytest.fixture
    def make_tagger(self) -> MakeTagger:
        """Make the tagger again, with the same options; a plugin's test class overrides this."""
        raise NotImplementedError(f"{type(self).__name__}: expected a fixture make_tagger; see {__name__}")

    @pytest.fixture
    def tagger(self, make_tagger: MakeTagger) -> Iterator[Tagger]:
        with make_tagger() as tagger:
            yield tagger

    def test_known_statements_get_an_entity(self, tagger: Tagger, make_generator: GivenGenerator) -> None:
        assert self.statements, "name some texts in `statements` that the tagger recognises"
        for text in self.statements:
            entity = tagger.tag(text, generator=make_generator())
            assert entity is not None, text
            assert normalize_entity(entity)

    def test_any_text_gets_an_entity_or_none(self, tagger: Tagger, make_generator: GivenGenerator) -> None:
        for text in (*ODD_TEXTS, "my " * 2_000, "it's", "?"):
            for previous in (None, "city"):
                entity = tagger.tag(text, previous=previous, generator=make_generator())
                assert entity is None or normalize_entity(entity)
            assert all(normalize_entity(entity) for entity in tagger.intents(text))

    def test_nothing_said_gives_no_entity(self, tagger: Tagger, make_generator: GivenGenerator) -> None:
        for text in ("", " ", "\n"):
            assert tagger.tag(text, generator=make_generator()) is None

    def test_a_batch_answers_for_each_statement_and_keeps_what_is_known(
        self, tagger: Tagger, make_generator: GivenGenerator
    ) -> None:
        texts = [*self.statements, "", *ODD_TEXTS]
        batch = [Statement(text) for text in texts]
        found = tagger.tag_batch(batch, known=lambda: {"city": "Lives in Oslo."}, generator=make_generator())
        assert len(found) == len(texts)
        assert all(found[: len(self.statements)]), "a statement of `statements` gets no entity in a batch"
        assert found[len(self.statements)] is None
        assert all(entity is None or normalize_entity(entity) for entity in found)
        given = [Statement(text, "given") for text in self.statements]
        assert tagger.tag_batch(given, previous="city", generator=make_generator()) == ["given"] * len(given)
        assert tagger.tag_batch([], generator=make_generator()) == []

    def test_same_is_reflexive_and_symmetric(self, tagger: Tagger, make_generator: GivenGenerator) -> None:
        tags = [tagger.tag(text, generator=make_generator()) for text in self.statements]
        names = ["city", "employer", *(normalize_entity(tag) for tag in tags if tag is not None)]
        for name in names:
            assert tagger.same(name, name)
            for other in names:
                assert tagger.same(name, other) == tagger.same(other, name)

    def test_another_process_says_the_same(
        self, tagger: Tagger, make_tagger: MakeTagger, make_generator: GivenGenerator
    ) -> None:
        if make_generator() is not None:
            pytest.skip("what it says depends on the generator")
        must_be_picklable(make_tagger, "make_tagger")
        [answers] = in_processes(_tag, [(make_tagger, tuple(self.statements))])
        assert answers == [tagger.tag(text) for text in self.statements]
        assert answers == [tagger.tag(text) for text in self.statements], "a second time it says something else"

    def test_close_may_be_repeated(self, make_tagger: MakeTagger) -> None:
        tagger = make_tagger()
        tagger.close()
        tagger.close()


def _tag(make_tagger: MakeTagger, texts: Sequence[str]) -> list[str | None]:
    with make_tagger() as tagger:
        return [tagger.tag(text) for text in texts]
