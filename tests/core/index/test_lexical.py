"""The keyword index."""

from __future__ import annotations

import math
import random
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.errors import InputError
from nanomem_core.index.lexical import LexicalIndex
from nanomem_core.tokens import Tokenizer

FACTS = [
    "用户最近在学习机器学习算法，周末喜欢喝乌龙茶。",
    "プロジェクト記憶の設計は来週レビューする。",
    "프로젝트 메모리 설계를 다음 주에 검토한다.",
    "Meets Zoë at Café Müller 🫖 on Fridays.",
    "用GPT-4o写周报",
]

WORDS = ["tea", "green", "teas", "coffee", "Zoë", "茶", "乌龙茶", "GPT-4o", "the", "🫖", "", "."]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), max_size=12)


def index_of(texts: Sequence[str]) -> LexicalIndex:
    index = LexicalIndex(Tokenizer())
    index.add(0, texts)
    return index


def everything(index: LexicalIndex) -> npt.NDArray[np.bool_]:
    return np.ones(len(index), np.bool_)


def found(query: str, texts: Sequence[str]) -> list[int]:
    index = index_of(texts)
    scores = index.scores(query, everything(index))
    return [int(row) for row in np.argsort(-scores, kind="stable") if scores[row] > 0]


def plain_bm25(query: str, texts: Sequence[str]) -> list[float]:
    """The formula as it is written in the docstring, text by text."""
    tokenizer = Tokenizer()
    documents = [Counter(tokenizer.index_tokens(text)) for text in texts]
    mean = sum(document.total() for document in documents) / len(documents)
    scores = [0.0] * len(texts)
    for term in tokenizer.query_tokens(query):
        holding = sum(term in document for document in documents)
        idf = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
        for row, document in enumerate(documents):
            if term in document:
                count = document[term]
                scores[row] += idf * count / (count + 0.9 * (0.6 + 0.4 * document.total() / mean))
    return scores


@pytest.mark.parametrize(
    ("query", "row"),
    [
        ("机器学习", 0), ("乌龙茶", 0), ("記憶", 1), ("설계", 2), ("cafe muller", 3), ("CAFÉ MÜLLER", 3),
        ("GPT-4o", 4), ("🫖", 3), ("茶", 0), ("gpt", 4), ("周报", 4), ("meeting", 3),
    ],
)  # fmt: skip
def test_words_of_every_script_find_exactly_the_right_fact(query: str, row: int) -> None:
    assert found(query, FACTS) == [row]


@pytest.mark.parametrize("query", ["，", "", "...", "的", "的的", "学机"])
def test_what_occurs_nowhere_and_punctuation_find_nothing(query: str) -> None:
    assert found(query, FACTS) == []


def test_the_exact_spelling_of_a_joined_word_comes_first() -> None:
    texts = ["Runs Python 3.12.1 and 11.", "Runs Python 3.11.2.", "Runs Python 2.11.3."]
    assert found("3.11.2", texts)[0] == 1
    assert sorted(found("3.11", texts)) == [0, 1, 2]


def test_a_rare_word_weighs_more_than_a_frequent_one() -> None:
    texts = ["green tea", "black tea", "white tea", "coffee with milk"]
    assert found("coffee or tea", texts)[0] == 3


def test_words_of_grammar_do_not_decide_a_question() -> None:
    texts = ["What did you do? When was that, and who did it?", "Anna sold her boat in March."]
    assert found("When did Anna sell the boat?", texts) == [1]


@given(TEXTS.filter(bool), st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join))
def test_scores_follow_the_formula(texts: list[str], query: str) -> None:
    index = index_of(texts)
    assert index.scores(query, everything(index)) == pytest.approx(plain_bm25(query, texts), rel=1e-6)


@given(TEXTS, st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join), st.data())
def test_a_mask_gives_the_scores_of_an_index_of_its_rows_alone(
    texts: list[str], query: str, data: st.DataObject
) -> None:
    mask = data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts)))
    where = np.array(mask, np.bool_)
    alone = index_of([text for text, inside in zip(texts, mask, strict=True) if inside])
    scores = index_of(texts).scores(query, where)
    assert scores.dtype == np.float32
    assert scores[where].tobytes() == alone.scores(query, everything(alone)).tobytes()
    assert not scores[~where].any()


@given(TEXTS, st.data())
def test_it_does_not_matter_in_which_portions_texts_are_added(texts: list[str], data: st.DataObject) -> None:
    index = LexicalIndex(Tokenizer())
    while len(index) < len(texts):
        portion = data.draw(st.integers(0, len(texts) - len(index)))
        index.add(len(index), texts[len(index) : len(index) + portion])
    together = index_of(texts)
    for query in WORDS:
        assert (
            index.scores(query, everything(index)).tobytes() == together.scores(query, everything(together)).tobytes()
        )


def test_an_index_that_was_merged_many_times_scores_like_the_formula() -> None:
    generator = random.Random(5)
    vocabulary = [f"word{number}" for number in range(2000)]
    texts = [" ".join(generator.choices(vocabulary, k=generator.randint(1, 20))) for _ in range(3000)]
    index = LexicalIndex(Tokenizer())
    for first in range(0, len(texts), 7):
        index.add(first, texts[first : first + 7])
    query = " ".join(vocabulary[::40])
    assert index.scores(query, everything(index)) == pytest.approx(plain_bm25(query, texts), rel=1e-5)
    # Terms that came after the last merge are found as well.
    index.add(len(texts), ["unheard"])
    assert np.flatnonzero(index.scores("unheard", everything(index))).tolist() == [len(texts)]


def test_a_word_may_occur_more_often_than_its_counter_can_tell() -> None:
    index = index_of(["tea " * (2**16 + 1), "tea"])
    scores = index.scores("tea", everything(index))
    assert 0 < scores[1] < scores[0]


def test_rows_behind_the_end_of_the_mask_are_outside_it() -> None:
    texts = ["green tea", "black tea", "tea with milk"]
    before = index_of(texts[:2])
    expected = before.scores("black tea", everything(before))
    before.add(2, texts[2:])
    assert before.scores("black tea", np.ones(2, np.bool_)).tobytes() == expected.tobytes()


def test_an_empty_index_and_an_empty_mask_give_no_score() -> None:
    assert LexicalIndex(Tokenizer()).scores("tea", np.empty(0, np.bool_)).shape == (0,)
    assert index_of(["tea"]).scores("tea", np.zeros(1, np.bool_)).tolist() == [0]
    assert index_of(["", "…"]).scores("tea", np.ones(2, np.bool_)).tolist() == [0, 0]


def test_rows_must_follow_on_those_that_were_added() -> None:
    index = index_of(["tea", "coffee"])
    for first_row in (0, 1, 3):
        with pytest.raises(InputError, match=f"expected 2, the row after the last one; found {first_row}"):
            index.add(first_row, ["milk"])
    assert len(index) == 2
    assert not index.scores("milk", everything(index)).any()


def test_a_mask_of_rows_that_were_not_added_is_refused() -> None:
    with pytest.raises(InputError, match="where: expected at most 1 rows, as many as were added; found 2"):
        index_of(["tea"]).scores("tea", np.ones(2, np.bool_))


def test_questions_are_answered_while_another_thread_adds() -> None:
    texts = [f"tea number{number} " + "filler " * (number % 5) for number in range(3000)]
    index = index_of(texts[:10])
    failures: list[BaseException] = []

    def add() -> None:
        try:
            for first in range(10, len(texts), 10):
                index.add(first, texts[first : first + 10])
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=add)
    thread.start()
    counts = []
    while thread.is_alive():
        counts.append(np.count_nonzero(index.scores("tea", np.ones(10, np.bool_))))
    thread.join()
    assert not failures
    assert set(counts) <= {10}
    together = index_of(texts)
    assert index.scores("tea number7", everything(index)).tobytes() == (
        together.scores("tea number7", everything(together)).tobytes()
    )


MANY = [" ".join(f"word{n * step % 700}" for step in (1, 3, 7)) + (" tea" if n % 9 == 0 else "") for n in range(1500)]


def stamp(count: int) -> bytes | None:
    """What `MANY` has so many rows of."""
    return count.to_bytes(16, "little") if count <= len(MANY) else None


def kept(texts: Sequence[str], path: Path) -> LexicalIndex:
    index = index_of(texts)
    index.save(path, stamp)
    return index


def loaded(path: Path) -> LexicalIndex:
    index = LexicalIndex(Tokenizer())
    assert index.load(path, stamp) == len(index)
    return index


def test_an_index_that_was_kept_answers_as_before_and_can_be_added_to(tmp_path: Path) -> None:
    whole = index_of(MANY)
    kept(MANY[:1200], tmp_path / "words.bin")
    again = loaded(tmp_path / "words.bin")
    assert len(again) == 1200
    again.add(1200, MANY[1200:])
    again.add(1500, [])
    for query in ("tea", "word5 word693", "word699 tea", "unheard"):
        assert again.scores(query, everything(again)).tobytes() == whole.scores(query, everything(whole)).tobytes()


def test_an_index_that_was_loaded_is_kept_again_when_it_has_grown(tmp_path: Path) -> None:
    path = tmp_path / "words.bin"
    kept(MANY[:1100], path)
    before = path.read_bytes()
    again = loaded(path)
    again.add(1100, MANY[1100:])
    again.save(path, stamp)
    assert path.read_bytes() == before
    again.add(1500, [f"more{n}" for n in range(1000)])
    again.save(path, lambda count: count.to_bytes(16, "little"))
    third = LexicalIndex(Tokenizer())
    assert third.load(path, lambda count: count.to_bytes(16, "little")) == 2500
    for query in ("tea", "more7 word8"):
        assert third.scores(query, everything(third)).tobytes() == again.scores(query, everything(again)).tobytes()


def test_a_small_index_is_not_worth_a_file(tmp_path: Path) -> None:
    kept(MANY[:1000], tmp_path / "words.bin")
    assert list(tmp_path.iterdir()) == []


def test_an_index_of_nothing_that_can_be_told_is_not_kept(tmp_path: Path) -> None:
    index_of(MANY).save(tmp_path / "words.bin", lambda count: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "longer", "gone", "other magic"])
def test_a_damaged_file_is_passed_over(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "words.bin"
    kept(MANY, path)
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[-1]
    elif damage == "empty":
        data.clear()
    elif damage == "flipped":
        data[len(data) // 2] ^= 1
    elif damage == "longer":
        data += b"\0"
    elif damage == "other magic":
        data[0] ^= 1
    path.write_bytes(data)
    if damage == "gone":
        path.unlink()
    assert len(loaded(path)) == 0


def test_the_file_of_other_texts_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "words.bin"
    kept(MANY, path)
    index = LexicalIndex(Tokenizer())
    assert index.load(path, lambda count: b"other texts!!!!!") == 0
    assert index.load(path, lambda count: None) == 0
    index.add(0, ["tea"])
    assert np.flatnonzero(index.scores("tea", everything(index))).tolist() == [0]


def test_a_folder_that_can_not_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    index = kept(MANY, tmp_path / "taken" / "words.bin")
    assert index.scores("tea", everything(index)).any()
    # It is not tried again for every question.
    (tmp_path / "taken").unlink()
    index.save(tmp_path / "taken" / "words.bin", stamp)
    assert list(tmp_path.iterdir()) == []


def test_no_word_stands_in_the_file(tmp_path: Path) -> None:
    texts = [f"secret{n} passphrase" for n in range(1100)]
    kept(texts, tmp_path / "words.bin")
    data = (tmp_path / "words.bin").read_bytes()
    assert b"secret" not in data
    assert b"passphrase" not in data
