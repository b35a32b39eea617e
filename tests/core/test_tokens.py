"""The tokenizer."""

from __future__ import annotations

import re
import sys
import unicodedata
from importlib.metadata import version

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nanomem_core import tokens
from nanomem_core.errors import ConfigError
from nanomem_core.stemming import find_stemmer
from nanomem_core.tokens import MAX_TOKEN, Tokenizer, fold_text

PLAIN = Tokenizer("none")
ENGLISH = Tokenizer()

# Characters that the rules speak of, so that generated texts meet them more often than by chance.
TRICKY = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from(
            "aé1,.'’-+#_@ ßİıøΑά\u0301\u0308\u200d\u200c\u200b\ufe0f\u20e3学かな가กั🫖👩💻🏽🇩🇪\U000e0067½①ﷺ"
        ),
    )
)


@given(TRICKY)
@example("a\u0345\u0301")
@example("1,000,000,00")
def test_folding_a_folded_text_changes_nothing(text: str) -> None:
    assert fold_text(fold_text(text)) == fold_text(text)


@pytest.mark.parametrize("first", range(0, sys.maxunicode, 0x8000))
def test_folding_is_stable_for_every_character(first: int) -> None:
    once = [
        fold_text("".join(f"e{char}\u0301 1{char} " for char in map(chr, range(n, n + 64))))
        for n in range(first, first + 0x8000, 64)
    ]
    assert [fold_text(text) for text in once] == once


@given(TRICKY)
@example("\ud800")
def test_any_text_gives_short_tokens_without_blanks(text: str) -> None:
    for token in ENGLISH.index_tokens(text):
        assert 0 < len(token) <= MAX_TOKEN
        assert not any(char.isspace() for char in token)


@given(TRICKY)
def test_a_text_holds_every_token_that_it_gives_as_a_question(text: str) -> None:
    assert set(ENGLISH.query_tokens(text)) <= set(ENGLISH.index_tokens(text))


@given(TRICKY, TRICKY)
def test_a_blank_keeps_tokens_apart(left: str, right: str) -> None:
    assert PLAIN.index_tokens(f"{left} {right}") == PLAIN.index_tokens(left) + PLAIN.index_tokens(right)


@given(TRICKY)
def test_composed_and_decomposed_texts_give_the_same_tokens(text: str) -> None:
    tokens = ENGLISH.index_tokens(text)
    assert ENGLISH.index_tokens(unicodedata.normalize("NFC", text)) == tokens
    assert ENGLISH.index_tokens(unicodedata.normalize("NFD", text)) == tokens


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Café MÜLLER", "cafe muller"),
        ("Straße", "strasse"),
        ("Łódź, Ærø, Þór", "lodz, aero, thor"),
        ("İstanbul", "istanbul"),
        ("ΑΘΉΝΑ Ἀθῆναι", "αθηνα αθηναι"),
        ("Ёжик ёлка", "ежик елка"),
        ("Йод й", "йод й"),  # another letter, not an accent
        ("パピプ ガ", "パピプ ガ"),
        ("ﾊﾟｿｺﾝ ＡＢＣ", "パソコン abc"),
        ("한국어", "한국어"),
        ("१२३ ٤٥٦", "123 456"),
        ("co\u00adoperate zero\u200bwidth", "cooperate zero width"),
        ("می\u200cخواهم", "میخواهم"),
        ("It’s", "it's"),
        ("1,250,000 and 1,25", "1250000 and 1,25"),
        ("👍🏽 ❤️ 1️⃣", "👍 ❤ 1"),
    ],
)
def test_texts_are_folded(text: str, folded: str) -> None:
    assert fold_text(text) == folded


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        (" \t\n", []),
        ("，。！？…—«»()[]{}<>|\\~^*=%$€", []),
        ("...--''..", []),
        ("tea, coffee; milk", ["tea", "coffee", "milk"]),
        ("GPT-4o", ["gpt", "4o", "gpt-4o"]),
        ("用GPT-4o写周报", ["用", "gpt", "4o", "gpt-4o", "写", "周", "报", "写周", "周报"]),
        ("Python 3.11.2.", ["python", "3", "11", "2", "3.11.2"]),
        ("zoe@example.com", ["zoe", "example", "com", "zoe@example.com"]),
        ("C++, C# and C", ["c", "c++", "c", "c#", "and", "c"]),
        ("snake_case", ["snake", "case", "snake_case"]),
        ("Zoe's l'avion O'Brien", ["zoe", "avion", "brien"]),
        ("I'm don't CAN'T", ["i'm", "don't", "can't"]),
        ("rock'n'roll", ["rock", "roll", "rock'n'roll"]),
        ("end.--next", ["end", "next"]),
        ("机器学习", ["机", "器", "学", "习", "机器", "器学", "学习"]),
        ("설계를", ["설", "계", "를", "설계", "계를"]),
        ("スーパー", ["ス", "ー", "パ", "ー", "スー", "ーパ", "パー"]),
        ("สวัส", ["ส", "วั", "ส", "สวั", "วัส"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("🫖🫖", ["🫖", "🫖"]),
        ("👩‍💻 👩🏽‍💻", ["👩‍💻", "👩‍💻"]),
        ("👨‍👩‍👧👍🏿", ["👨‍👩‍👧", "👍"]),
        ("🇩🇪🇫🇷", ["🇩🇪", "🇫🇷"]),
        ("❤️ ❤", ["❤", "❤"]),
        ("\U0001faff\U0001faff", ["\U0001faff"] * 2),  # not assigned yet
        ("┌──┐", []),
    ],
)
def test_texts_are_cut_into_tokens(text: str, tokens: list[str]) -> None:
    assert PLAIN.index_tokens(text) == tokens


@pytest.mark.parametrize(
    ("question", "tokens"),
    [
        ("机器学习", ["机器", "器学", "学习"]),
        ("学", ["学"]),
        ("用GPT", ["用", "gpt"]),
        ("学 学习 学", ["学", "学习"]),
        ("tea tea TEA", ["tea"]),
    ],
)
def test_a_question_gives_distinct_tokens_and_pairs_where_there_are_pairs(question: str, tokens: list[str]) -> None:
    assert PLAIN.query_tokens(question) == tokens


def test_a_question_leaves_out_grammar_unless_there_is_nothing_else() -> None:
    assert ENGLISH.query_tokens("What's the name of the dog that I adopted?") == ["name", "dog", "adopt"]
    assert ENGLISH.query_tokens("What did she do?") == ["what", "did", "she", "do"]
    assert ENGLISH.query_tokens("Did Will come in May?") == ["will", "come", "mai"]
    assert PLAIN.query_tokens("What about it?") == ["what", "about", "it"]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("a" * 200_000, 1),
        ("a" + "\u0301\u20d0" * 100_000, 1),
        ("a-" * 100_000, 100_001),
        ("'a" * 100_000, 1),
        ("学" * 100_000, 199_999),
        ("ก" + "\u0e31" * 200_000, 1),
        (("ก" + "\u0e31" * 100_000) * 2, 3),
        ("👩" + "‍👩" * 100_000, 1),
        ("+" * 200_000, 0),
    ],
)
def test_a_run_without_end_gives_no_more_tokens_than_it_has_parts(text: str, count: int) -> None:
    tokens = ENGLISH.index_tokens(text)
    assert len(tokens) == count
    assert max(map(len, tokens), default=0) <= MAX_TOKEN


def test_long_words_count_by_their_first_64_characters() -> None:
    assert PLAIN.index_tokens("x" * 64 + "yes") == PLAIN.index_tokens("x" * 64 + "no") == ["x" * 64]


def test_english_words_share_a_stem_however_they_are_typed() -> None:
    assert ENGLISH.index_tokens("hiking hikes HIKED híking") == ["hike"] * 4


# From the steps of the paper, carried through to the end.
@pytest.mark.parametrize(
    ("word", "stem"),
    [
        ("caresses", "caress"), ("ponies", "poni"), ("ties", "ti"), ("cats", "cat"), ("feed", "feed"),
        ("agreed", "agre"), ("plastered", "plaster"), ("bled", "bled"), ("motoring", "motor"), ("sing", "sing"),
        ("conflated", "conflat"), ("troubled", "troubl"), ("hopping", "hop"), ("falling", "fall"), ("hissing", "hiss"),
        ("fizzed", "fizz"), ("failing", "fail"), ("filing", "file"), ("happy", "happi"), ("sky", "sky"),
        ("relational", "relat"), ("conditional", "condit"), ("rational", "ration"), ("digitizer", "digit"),
        ("radically", "radic"), ("vietnamization", "vietnam"), ("operator", "oper"), ("decisiveness", "decis"),
        ("hopefulness", "hope"), ("sensibiliti", "sensibl"), ("triplicate", "triplic"), ("electrical", "electr"),
        ("revival", "reviv"), ("adjustable", "adjust"), ("replacement", "replac"), ("adoption", "adopt"),
        ("communism", "commun"), ("effective", "effect"), ("probate", "probat"), ("rate", "rate"), ("cease", "ceas"),
        ("companion", "companion"), ("controlling", "control"), ("rolling", "roll"), ("at", "at"), ("4os", "4os"),
        ("наука", "наука"),
    ],
)  # fmt: skip
def test_english_words_are_stemmed_by_porters_rules(word: str, stem: str) -> None:
    assert find_stemmer("english")(word) == stem


ENDINGS = """
    s es ies ed eed ing y ational tional izer ization iveness fulness ousli biliti icate ative ical ement sion tion e ll
"""


@given(st.text("abcdeiostuvwxyz", min_size=1, max_size=6), st.lists(st.sampled_from(ENDINGS.split()), max_size=2))
def test_the_english_stemmer_agrees_with_snowballs_version_of_it(start: str, endings: list[str]) -> None:
    snowball = pytest.importorskip("snowballstemmer").stemmer("porter")
    word = start + "".join(endings)
    # Snowball spells out the double consonants that step 1b undoes, and leaves out those that English hardly has; it
    # also stems words of two letters.
    if len(word) > 2 and not any(letter * 2 in word for letter in "chjkqvwxy"):
        assert find_stemmer("english")(word) == snowball.stemWord(word)


def test_other_languages_are_stemmed_by_snowball() -> None:
    pytest.importorskip("snowballstemmer")
    german = Tokenizer("german")
    assert german.index_tokens("Häuser") == german.index_tokens("hauser") == german.query_tokens("Haus")
    assert Tokenizer("porter").index_tokens("s") == ["s"]  # of which it leaves nothing
    assert german.query_tokens("Was hat er?") == german.index_tokens("Was hat er?")


def test_a_language_whose_stemmer_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    find_stemmer.cache_clear()
    with pytest.raises(ConfigError, match=r"nanomem-core\[stemming\]") as caught:
        Tokenizer("german")
    assert caught.value.key == "language"
    assert Tokenizer("english").index_tokens("hiking") == ["hike"]


def test_an_unknown_language_is_refused_with_those_there_are() -> None:
    pytest.importorskip("snowballstemmer")
    with pytest.raises(ConfigError, match=r"expected 'none' or one of arabic, .*; found 'klingon'"):
        Tokenizer("klingon")


@given(st.text(st.sampled_from("aBz09'._@:/&-+#,!\n \x00\x1f\x7f"), max_size=90))
@example("x" * 100 + "+y")
@example("don't stop, 1,000 C++ GPT-4o.")
def test_a_text_in_ascii_gives_the_tokens_that_the_rules_for_all_texts_give(text: str) -> None:
    found = [(each.index_tokens(text), each.query_tokens(text)) for each in (PLAIN, ENGLISH)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "_ASCII_JOINED", re.compile(""))  # every text is taken for one with joined words
        assert found == [(each.index_tokens(text), each.query_tokens(text)) for each in (PLAIN, ENGLISH)]


def test_a_tokenizer_with_a_snowball_stemmer_names_its_release() -> None:
    pytest.importorskip("snowballstemmer")
    assert Tokenizer("german").id.endswith(f"-german-{version('snowballstemmer')}")


def test_tokenizers_of_other_rules_have_other_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ENGLISH.id
    assert PLAIN.id != before
    monkeypatch.setattr(tokens, "RULES", tokens.RULES + 1)
    assert ENGLISH.id != before
