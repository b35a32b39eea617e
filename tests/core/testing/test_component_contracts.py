"""The contracts of embedders, segmenters, taggers and generators accept sound parts and refuse broken ones."""

import itertools

import numpy as np
import pytest

from nanomem_core.errors import EmbedderError
from nanomem_core.interfaces import Completion, Embedder, Generator, Segmenter, Tagger
from nanomem_core.testing import (
    EmbedderContract,
    GeneratorContract,
    HashEmbedder,
    ScriptedGenerator,
    SegmenterContract,
    TaggerContract,
)

REFUSED = (AssertionError, pytest.fail.Exception)


class LengthSegmenter(Segmenter):
    name = "length"

    def due(self, messages):
        return "ten messages" if len(messages) >= 10 else None

    def split(self, messages, generator=None):
        return [list(range(i, min(i + 4, len(messages)))) for i in range(0, len(messages), 4)]


class AskingSegmenter(Segmenter):
    name = "asking"

    def split(self, messages, generator=None):
        cut = int(generator.generate("Where does the topic change?"))
        return [list(range(cut)), list(range(cut, len(messages)))]


class WordTagger(Tagger):
    name = "word"

    def tag(self, text, *, previous=None, generator=None):
        return "city" if "live" in text else None


class TestLengthSegmenter(SegmenterContract):
    @pytest.fixture
    def make_segmenter(self):
        return LengthSegmenter


class TestAskingSegmenter(SegmenterContract):
    @pytest.fixture
    def make_segmenter(self):
        return AskingSegmenter

    @pytest.fixture
    def make_generator(self):
        return lambda: ScriptedGenerator(["4"])


class TestWordTagger(TaggerContract):
    statements = ("I live in Lisbon.",)

    @pytest.fixture
    def make_tagger(self):
        return WordTagger


class WordyTagger(WordTagger):
    def tag(self, text, *, previous=None, generator=None):
        return "city"


class ChangingTagger(WordTagger):
    answers = itertools.cycle(["city", "town"])

    def tag(self, text, *, previous=None, generator=None):
        return next(self.answers)


class OneSidedTagger(WordTagger):
    def same(self, entity, other):
        return entity <= other


class UntidySegmenter(LengthSegmenter):
    def split(self, messages, generator=None):
        return [[0, 1, 99], ["2"]]


class RestlessSegmenter(LengthSegmenter):
    calls = itertools.count(1)

    def split(self, messages, generator=None):
        cut = next(self.calls)
        return [list(range(cut)), list(range(cut, len(messages)))]


class ImpatientSegmenter(LengthSegmenter):
    def due(self, messages):
        return "always"


class BatchEmbedder(HashEmbedder):
    """The vector of a text depends on the texts beside it."""

    def encode(self, texts):
        return super().encode(texts) + np.float32(len(texts))


class SaltedEmbedder(Embedder):
    """Python's own hash differs from process to process."""

    name = "salted"
    id = "salted"
    dim = 2

    def encode(self, texts):
        return [[1.0, hash(text) % 1000 / 100] for text in texts]


class RenamedEmbedder(HashEmbedder):
    numbers = itertools.count()

    def __init__(self):
        super().__init__(id=f"hash {next(self.numbers)}")


class ConstantEmbedder(HashEmbedder):
    def encode(self, texts):
        return np.ones((len(texts), self.dim))


class DeafGenerator(Generator):
    name = "deaf"

    def complete(self, messages, *, temperature=0.0, max_tokens=None, schema=None):
        messages.append({"role": "system", "content": "changed"})
        return Completion("…", output_tokens=-1)


def test_unlike_processes_are_noticed():
    with pytest.raises(AssertionError):
        EmbedderContract().test_another_process_computes_the_same(SaltedEmbedder(), SaltedEmbedder)


@pytest.mark.parametrize(
    ("test", "make"),
    [
        (EmbedderContract().test_a_batch_gives_what_single_texts_give, BatchEmbedder),
        (EmbedderContract().test_id_and_width_stay_the_same, RenamedEmbedder),
        (EmbedderContract().test_unlike_texts_have_unlike_vectors, ConstantEmbedder),
        (SegmenterContract().test_a_proposal_is_of_whole_numbers, UntidySegmenter),
        (SegmenterContract().test_the_same_messages_are_cut_alike, RestlessSegmenter),
        (SegmenterContract().test_due_gives_a_reason_or_none, ImpatientSegmenter),
        (TaggerContract().test_nothing_said_gives_no_entity, WordyTagger),
        (TaggerContract().test_same_is_reflexive_and_symmetric, OneSidedTagger),
        (TaggerContract().test_known_statements_get_an_entity, WordTagger),
        (GeneratorContract().test_a_conversation_is_completed_with_a_text, DeafGenerator),
        (GeneratorContract().test_the_caller_s_messages_are_not_changed, DeafGenerator),
        (GeneratorContract().test_a_failure_is_a_generator_error, lambda: ScriptedGenerator(["fine"])),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_broken_part_is_refused(test, make):
    given = {"count": 0, "make_generator": lambda: None, "make_failing_generator": make, "make_segmenter": make}
    given |= {"make_embedder": make}
    given |= dict.fromkeys(("embedder", "segmenter", "tagger", "generator"), make())
    wanted = test.__code__.co_varnames[1 : test.__code__.co_argcount]
    with pytest.raises(REFUSED):
        test(**{name: given[name] for name in wanted})


def test_a_tagger_that_changes_its_mind_is_noticed():
    contract = TestWordTagger()
    with pytest.raises(AssertionError):
        contract.test_another_process_says_the_same(ChangingTagger(), ChangingTagger, lambda: None)


def test_an_embedder_that_fails_says_so():
    class ZeroEmbedder(HashEmbedder):
        def encode(self, texts):
            return np.zeros((len(texts), self.dim))

    with pytest.raises(EmbedderError, match="zero vector"):
        EmbedderContract().test_a_batch_gives_what_single_texts_give(ZeroEmbedder())
