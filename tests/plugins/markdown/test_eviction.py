"""Which facts go."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.errors import InputError
from nanomem_plugins.markdown.eviction import POLICIES, Candidate, Policy, Usage, evicted

DAY = 86_400.0
NOW = 1000 * DAY


def fact(id: str, confidence: float = 0.5, **fields: Any) -> Candidate:
    return Candidate(id, confidence, **{"category": "context", "personal": False, "created_at": 0.0, **fields})


def gone(candidates: list[Candidate], limit: int, policy: Policy = "confidence") -> list[str]:
    return [candidate.id for candidate, _ in evicted(candidates, limit, policy, NOW)]


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_goes_up_to_the_limit(policy: Policy) -> None:
    assert gone([fact("a"), fact("b")], 2, policy) == []


def test_the_lowest_confidence_goes_first() -> None:
    assert gone([fact("a", 0.9), fact("b", 0.0), fact("c", 0.4)], 1) == ["b", "c"]


@pytest.mark.parametrize("policy", POLICIES)
def test_of_equal_scores_the_newest_stays(policy: Policy) -> None:
    same = {"confirmed_at": NOW}
    facts = [fact("b", created_at=2.0, **same), fact("c", created_at=3.0, **same), fact("a", created_at=1.0, **same)]
    assert gone(facts, 1, policy) == ["a", "b"]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_person_stated_stays_before_what_was_inferred(policy: Policy) -> None:
    assert gone([fact("told", 0.1, personal=True), fact("inferred", 1.0)], 1, policy) == ["inferred"]


def test_hybrid_prefers_what_was_confirmed_or_found_lately() -> None:
    assert gone([fact("a", confirmed_at=NOW), fact("b")], 1, "hybrid-v1") == ["b"]
    assert gone([fact("a", usage=Usage(8, NOW)), fact("b", usage=Usage(8, 0))], 1, "hybrid-v1") == ["b"]


def test_hybrid_adds_the_documented_parts() -> None:
    least = fact("a", 0.8, confirmed_at=NOW - 90 * DAY, usage=Usage(16, NOW - 30 * DAY))
    [(found, parts)] = evicted([least, fact("b", 1.0, personal=True)], 1, "hybrid-v1", NOW)
    assert found is least
    assert parts == pytest.approx({"confidence": 0.52, "confirmation": 0.125, "access": 0.1})
    [(_, unconfirmed)] = evicted([fact("a", 0, created_at=NOW), fact("b", personal=True)], 1, "hybrid-v1", NOW)
    assert unconfirmed == pytest.approx({"confidence": 0, "confirmation": 0.125, "access": 0})


def test_hybrid_keeps_a_tenth_of_the_places_for_corrections() -> None:
    corrections = [fact(f"c{n}", 0.01 * n, category="correction") for n in range(4)]
    others = [fact(f"o{n}", 0.9) for n in range(20)]
    left = {c.id for c in corrections + others} - set(gone(corrections + others, 20, "hybrid-v1"))
    assert {"c3", "c2"} <= left
    assert {"c1", "c0"}.isdisjoint(left)


def test_accesses_add_up_and_fade() -> None:
    usage = Usage().accessed(NOW).accessed(NOW)
    assert usage.heat == pytest.approx(2)
    assert usage.heat_at(NOW + 30 * DAY) == pytest.approx(1)
    assert usage.heat_at(NOW - DAY) == pytest.approx(2)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(InputError, match="hybrid-v1"):
        evicted([fact("a")], 0, "oldest", NOW)  # type: ignore[arg-type]


@given(
    st.lists(
        st.builds(
            Candidate,
            st.uuids().map(str),
            st.floats(0, 1),
            st.sampled_from(["correction", "goal"]),
            st.booleans(),
            st.floats(0, NOW),
        ),
        max_size=30,
    ),
    st.integers(0, 30),
    st.sampled_from(POLICIES),
)
def test_exactly_the_surplus_goes(candidates: list[Candidate], limit: int, policy: Policy) -> None:
    ids = gone(candidates, limit, policy)
    assert len(set(ids)) == len(ids) == max(0, len(candidates) - limit)
