"""The keyword tagger beyond single sentences: languages, plugin, hostile input."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanomem_core import PluginManager
from nanomem_core.errors import ConfigError
from nanomem_core.records import normalize_entity
from nanomem_plugins.keyword.grammar import languages, load
from nanomem_plugins.keyword.sentences import sentences
from nanomem_plugins.keyword.tagger import KeywordTagger

from .test_english import NO_ATTRIBUTE, QUESTIONS, STATEMENTS

GERMAN = KeywordTagger(languages=("german",))
BOTH = KeywordTagger(languages=("english", "german"))


GERMAN_STATEMENTS = [
    ("Ich wohne in Hamburg.", "location"),
    ("Jetzt wohne ich in Köln.", "location"),
    ("Ich bin nach Berlin gezogen.", "location"),
    ("Meine neue Adresse ist Mühlweg 4.", "location"),
    ("Meine Büroadresse ist Hafenstraße 5.", "work_location"),
    ("Ich arbeite jetzt bei Siemens.", "career"),
    ("Ich bin Lehrerin.", "career"),
    ("Mein Arbeitgeber ist Bosch.", "career"),
    ("Meine Handynummer ist 0170 1234567.", "phone_number"),
    ("Meine dienstliche E-Mail-Adresse lautet a@b.example.", "work_email_address"),
    ("Meine Lieblingsfarbe ist Grün.", "favorite_color"),
    ("Meine Schuhgröße ist 43.", "shoe_size"),
    ("Mein Name ist Anna.", "name"),
    ("Ich heiße Anna.", "name"),
    ("Mein Hund heißt Rex.", "hund_name"),
    ("Ich bin am 4. Mai 1990 geboren.", "birthday"),
    ("Ich wurde in Bonn geboren.", "birthplace"),
    ("Ich bin allergisch gegen Nüsse.", "allergy"),
    ("Mein Auto ist ein Golf.", "auto"),
    ("Meine Schwester wohnt in Graz.", "schwester_location"),
    ("Seine Nummer ist 0170 1234567.", "other_phone_number"),
    ("Mein Geburtstag ist am 4. Mai.", "birthday"),
    ("Mein Auto ist kaputt.", None),
    ("Ich würde gern in Rom wohnen.", None),
    ("Ich wohne nicht in Rom.", None),
    ("Ich will nach Rom ziehen.", None),
    ("Mein alter Arbeitgeber war Bosch.", None),
    ("Wo wohne ich?", None),
    ("Guten Morgen!", None),
]


@pytest.mark.parametrize(("text", "entity"), GERMAN_STATEMENTS)
def test_a_german_statement_is_tagged_with_its_attribute(text: str, entity: str | None) -> None:
    assert GERMAN.tag(text) == entity
    assert BOTH.tag(text) == entity


def test_german_questions_are_understood() -> None:
    assert GERMAN.intents("Wo wohnt meine Schwester?") == ("schwester_location",)
    assert GERMAN.intents("Wie lautet meine Handynummer?") == ("phone_number",)
    assert GERMAN.intents("Wo arbeite ich?") == ("career",)
    assert GERMAN.intents("Wie spät ist es?") == ()


def test_a_german_text_may_refer_to_the_statement_before() -> None:
    assert GERMAN.tag("Sie lautet jetzt 0170 7654321.", previous="phone_number") == "phone_number"
    assert GERMAN.tag("Sie wohnt in Wien.", previous="schwester_career") == "schwester_location"


def test_chains_join_across_languages() -> None:
    assert BOTH.tag("My employer is Bosch.") == BOTH.tag("Mein Arbeitgeber ist Bosch.") == "career"
    assert BOTH.same("wohnort", "home_address")
    assert BOTH.same("favorite_color", "lieblingsfarbe")


def test_the_first_telling_sentence_counts() -> None:
    tagger = KeywordTagger()
    assert tagger.tag("Can you help me? My name is Priya. I live in Leeds.") == "name"
    assert tagger.tag("My name is Priya, can you help me?") == "name"


def test_an_unknown_language_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="english, german; found 'klingon'"):
        KeywordTagger(languages=("klingon",)).tag("x")
    with pytest.raises(ConfigError, match="at least one"):
        KeywordTagger(languages=())


def test_every_language_that_is_shipped_compiles() -> None:
    assert languages() == ("english", "german")
    for language in languages():
        assert load(language) is load(language)


def test_the_plugin_offers_the_tagger() -> None:
    assert PluginManager.discover().find("tagger", "keyword").cls is KeywordTagger


def test_importing_the_plugin_reads_no_vocabulary() -> None:
    code = (
        "import sys, nanomem_plugins.keyword as k; print('yaml' in sys.modules, k.__name__ + '.tagger' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    "text",
    [
        "my " * 70_000,
        "a" * 200_000,
        "a's " * 50_000,
        "my sister " * 20_000,
        "my sister's brother's " * 9_000,
        "i moved to x y z " * 12_000,
        "i now now now " * 15_000,
        "a." * 100_000,
        "a.-" * 70_000,
        "@" * 200_000,
        ", " * 100_000,
        "\n" * 200_000,
        "? " * 100_000,
        "\ufdfa" * 200_000,
        "what is my " * 18_000,
        "(" * 200_000,
        "\u0301" * 200_000,
        "\ud800" * 1000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_a_huge_text_is_read_like_a_short_one(text: str) -> None:
    # Each takes milliseconds; were a pattern to backtrack, the suite would not end.
    for tagger in (KeywordTagger(), BOTH):
        tagger.tag(text)
        tagger.tag(text, previous="sister_location")
        tagger.intents(text)


def test_a_statement_at_the_start_of_a_long_text_counts_and_one_far_behind_does_not() -> None:
    filler = "The meeting went on for a while. " * 6000
    assert KeywordTagger().tag("I live in Leeds. " + filler) == "location"
    assert KeywordTagger().tag(filler + "I live in Leeds.") is None


ENGLISH = """
my our her dana's sister sister's work email phone number name is are was not now i you she live in at moved to
other new old favorite color , . ? ! : ann@x.example 555-0199 020 = it that my's 's _ é 字 meine
"""
WORDS = st.sampled_from(ENGLISH.split())
OWN_WORDS = st.sampled_from(
    ["other", "my", "new", "phone", "number", "email", "is", "555-0199 020", "a@b.example", "x"]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(WORDS, max_size=25).map(" ".join) | st.text(max_size=80), st.sampled_from([None, "sister_location"]))
def test_every_name_that_is_given_is_in_normal_form(text: str, previous: str | None) -> None:
    tag = BOTH.tag(text, previous=previous)
    for entity in (*BOTH.intents(text), *([] if tag is None else [tag])):
        assert normalize_entity(entity) == entity
        assert BOTH.same(entity, entity)


@settings(max_examples=200, deadline=None)
@given(st.lists(OWN_WORDS, max_size=8))
def test_what_is_the_users_own_never_begins_with_other(words: list[str]) -> None:
    tag = KeywordTagger().tag("my " + " ".join(words))
    assert tag is None or not tag.startswith("other_")


@pytest.mark.parametrize("language", languages())
def test_a_pattern_that_is_not_tried_for_want_of_its_words_would_not_match(language: str) -> None:
    grammar = load(language)
    english = [*NO_ATTRIBUTE, *QUESTIONS, *(text for texts in STATEMENTS.values() for text in texts)]
    examples = english if language == "english" else [text for text, _ in GERMAN_STATEMENTS]
    found = [sentence.text for example in examples for sentence in sentences(example, grammar)]
    matches = 0
    for frame in (*grammar.frames, *grammar.questions):
        for pattern in frame.patterns:
            for text in found:
                match, whole = pattern.search(text), pattern.compiled.search(text)
                assert (match and match.span()) == (whole and whole.span())
                matches += match is not None
    assert matches > 10
