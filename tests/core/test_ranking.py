"""Fusing scores, reading directions, arranging chains."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.chains import chain_rows, read_chains, visible
from nanomem_core.errors import InputError
from nanomem_core.ranking import arrange, fused, read_direction, resolve_direction
from tests.rows import columns_of, members_in, record


@pytest.mark.parametrize(
    ("question", "direction"),
    [
        ("where do I work", "newest"),
        ("where do I work now", "newest"),
        ("What was my previous address?", "previous"),
        ("who is my former boss", "previous"),
        ("where did I use to live", "previous"),
        ("what car did I used to drive", "previous"),
        ("which phone did I have before", "previous"),
        ("what did I say last", "previous"),
        ("what do I do before lunch", "newest"),
        ("what is my last name", "newest"),
        ("what is my first name", "newest"),
        ("where did I live first", "oldest"),
        ("what was the original price", "oldest"),
        ("what is the original price, and the current one", "oldest"),
        ("WHERE DID I INITIALLY LIVE", "oldest"),
        ("what beforehand knowledge is lasting", "newest"),
        ("", "newest"),
        ("где я работаю", "newest"),
    ],
)
def test_the_wording_of_a_question_tells_which_value_it_asks_for(question: str, direction: str) -> None:
    assert read_direction(question) == resolve_direction("current", question) == direction


def test_an_explicit_direction_goes_before_the_wording() -> None:
    for name, direction in {
        "present": "newest",
        "newest": "newest",
        "latest": "newest",
        "now": "newest",
        "previous": "previous",
        "oldest": "oldest",
        "historical": "oldest",
    }.items():
        assert resolve_direction(name, "what was my previous address") == direction
    with pytest.raises(InputError, match=r"expected one of current, present.*found 'then'"):
        resolve_direction("then", "")


NONE = np.empty(0, np.intp)


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def test_fused_scores_do_not_depend_on_rows_that_do_not_qualify() -> None:
    cosine, bm25 = floats(0.9, -np.inf, 0.1, 0.5, 0.99), floats(0.0, 3.0, 2.0, 1.0, 50.0)
    rows = np.array([0, 2, 3])
    scores = fused(bm25, (0.1, 0.9), 2.0, NONE).score(cosine, np.arange(5))
    alone = fused(bm25[rows], (0.1, 0.9), 2.0, NONE).score(cosine[rows], np.arange(3))
    np.testing.assert_allclose(scores[rows], alone)
    assert scores[1] == -np.inf


def test_a_named_row_and_a_better_score_raise_a_fused_score() -> None:
    cosine, bm25 = floats(0.5, 0.5, 0.5, 0.7, 0.0), floats(1.0, 1.0, 2.0, 1.0, 0.0)
    scores = fused(bm25, (0.0, 0.7), 2.0, np.array([0])).score(cosine, np.arange(5))
    assert scores[0] > scores[1]
    assert scores[2] > scores[1]
    assert scores[3] > scores[1] > scores[4]


def test_equal_scores_and_no_scores_fuse_without_a_warning() -> None:
    fusion = fused(np.zeros(3, np.float32), (0.4, 0.4), 0.0, NONE)
    assert fusion.score(np.full(3, 0.4, np.float32), np.arange(3)).tolist() == [0.3] * 3
    assert fusion.weight == 0


@given(st.integers(0, 2**32 - 1))
def test_weight_and_bonus_tell_a_fused_score_but_for_a_constant(seed: int) -> None:
    chance = np.random.default_rng(seed)
    cosine, bm25 = chance.random(50).astype(np.float32), (5 * chance.random(50)).astype(np.float32)
    span = float(cosine.min()), float(cosine.max())
    fusion = fused(bm25, span, float(bm25.max()), np.array([3, 7]))
    rest = fusion.score(cosine, np.arange(50)) - (fusion.weight * cosine + fusion.bonus)
    np.testing.assert_allclose(rest, rest[0], atol=1e-5)


def arranged(
    declared: bool, won: list[int], direction: str, allowed: list[int] | None = None, limit: int | None = None
) -> list[int]:
    """`arrange` over rows 0 to 3 of one chain (the oldest first) and rows 4, 5 outside any."""
    columns = columns_of(*(record(f"c{n}", "x", n, declared=declared) for n in range(4)), record("o4"), record("o5"))
    shown = visible(columns)
    chains = {chain.code: chain for chain in chain_rows(columns, shown)}
    mask = np.isin(np.arange(6), range(6) if allowed is None else allowed)
    order = arrange(columns, np.array(won, np.intp), chains, mask, direction, limit or len(won))  # type: ignore[arg-type]
    return [row for row, _ in order]


def test_a_declared_chain_is_led_by_the_value_asked_for() -> None:
    assert arranged(True, [4, 0, 2, 5, 1], "newest") == [4, 3, 2, 5, 0]
    assert arranged(True, [4, 0, 3, 5, 1], "newest") == [4, 3, 1, 5, 0]
    assert arranged(True, [4, 0, 3, 5, 1], "previous") == [4, 2, 3, 5, 0]
    assert arranged(True, [0, 2, 3], "previous") == [2, 3, 0]
    assert arranged(True, [3, 2, 5, 1], "oldest") == [0, 2, 5, 3]
    assert arranged(True, [4, 5], "newest") == [4, 5]


def test_an_inferred_chain_keeps_its_order() -> None:
    for direction in ("newest", "previous", "oldest"):
        assert arranged(False, [4, 0, 2, 5, 1], direction) == [4, 0, 2, 5, 1]


def test_a_value_that_may_not_be_shown_never_leads() -> None:
    assert arranged(True, [0, 1], "newest", [0, 1, 2]) == [2, 0]
    assert arranged(True, [1], "previous", [1]) == [1]


@given(st.permutations(range(6)), st.integers(0, 6), st.sampled_from(["newest", "previous", "oldest"]))
def test_arranging_keeps_the_places_of_others_and_shows_no_row_twice(
    order: list[int], count: int, direction: str
) -> None:
    won = order[:count]
    result = arranged(True, won, direction)
    assert len(set(result)) == len(won)
    assert [(place, row) for place, row in enumerate(result) if row > 3] == [
        (place, row) for place, row in enumerate(won) if row > 3
    ]
    leaders = {"newest": 3, "previous": 2, "oldest": 0}
    chain = [row for row in result if row <= 3]
    assert not chain or chain[0] == leaders[direction]


def test_a_leader_that_won_no_place_is_put_before_the_others_where_there_is_room() -> None:
    assert arranged(True, [1], "newest", limit=3) == [3, 1]
    assert arranged(True, [4, 1, 5, 0], "newest", limit=5) == [4, 3, 1, 5, 0]
    assert arranged(True, [4, 1, 5, 0], "newest", limit=4) == [4, 3, 5, 1]
    assert arranged(True, [1], "newest") == [3]


def test_a_place_tells_the_row_that_won_it() -> None:
    columns = columns_of(*(record(f"c{n}", "x", n) for n in range(3)), record("o3"))
    chains = read_chains(columns, [0], np.ones(4, np.bool_), members_in(columns))
    order = arrange(columns, np.array([0, 3]), chains, np.ones(4, np.bool_), "newest", 3)
    assert order == [(2, 0), (0, 0), (3, 3)]
