"""The rules of the write gate, on what people say (``said.yaml``) and on what was said in LoCoMo's conversations."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nanomem_core.evaluation.locomo import read_locomo
from nanomem_core.hookspecs import StoreVerdict
from nanomem_core.records import Scope
from nanomem_core.registry.manager import PluginManager
from nanomem_plugins import gate
from nanomem_plugins.gate.rules import judge, languages, load

LOCOMO = Path(__file__).parents[4] / "shared" / "data" / "locomo10.json"
SAID: dict[str, list[str]] = yaml.load(Path(__file__).with_name("said.yaml").read_text("utf-8"), yaml.BaseLoader)


def dropped(text: str) -> bool:
    verdict = judge(text)
    return verdict is not None and not verdict.store


@pytest.mark.parametrize("text", SAID["tells"])
def test_what_tells_something_is_not_dropped(text: str) -> None:
    assert not dropped(text), judge(text)


def test_nearly_all_that_tells_nothing_is_dropped() -> None:
    kept = [text for text in SAID["tells_nothing"] if not dropped(text)]
    assert len(kept) <= 0.1 * len(SAID["tells_nothing"]), kept


@pytest.mark.skipif(not LOCOMO.exists(), reason="the LoCoMo data set is not beside the project")
def test_of_what_answers_a_question_in_locomo_nothing_is_dropped() -> None:
    turns = evidence = lost = 0
    for conversation in read_locomo(LOCOMO):
        wanted = frozenset().union(*(question.evidence for question in conversation.questions))
        turns += sum(dropped(turn.text) for turn in conversation.turns)
        evidence += len(wanted)
        lost += sum(dropped(turn.text) for turn in conversation.turns if turn.id in wanted)
    assert evidence > 1000
    assert turns > 50
    assert lost == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Remember that the code is 4711", "it says to be remembered"),
        ("Don’t forget Eva on Sunday", "it says to be remembered"),
        ("Hey, please note that I moved", "it says to be remembered"),
        ("Vergiss nicht, dass Oma kommt", "it says to be remembered"),
        ("Forget that I like tea", "it says to forget something"),
        ("Off the record: it is Eva. She did it.", "it says not to be remembered"),
        ("THANK YOU!!", "it is small talk"),
        ("Where do I work?", "it only asks"),
        ("Wo wohne ich? Und wie heiße ich?", "it only asks"),
        ("¿?", "there is no word in it"),
        ("hi", "it is small talk"),
        ("zx", "too short to tell anything"),
    ],
)
def test_each_verdict_says_why(text: str, reason: str) -> None:
    verdict = judge(text)
    assert verdict is not None
    assert verdict.reason == reason
    assert verdict.store is (reason == "it says to be remembered")


def test_who_asks_whether_something_is_remembered_commands_nothing() -> None:
    assert judge("Remember my name?") is None
    assert dropped("Do you remember my name?")


def test_what_is_long_is_not_judged() -> None:
    assert dropped("thanks " * 20)
    assert judge("thanks " * 200) is None


@pytest.mark.parametrize("name", languages())
def test_every_language_knows_every_kind_of_phrase(name: str) -> None:
    language = load(name)
    for part in ("question_words", "verbs", "subjects", "own", "possessives", "clauses"):
        assert getattr(language, part), part
    assert language.possessives < language.own


@given(st.text(max_size=50))
def test_any_text_gets_a_verdict_or_none(text: str) -> None:
    verdict = judge(text)
    assert verdict is None or (isinstance(verdict, StoreVerdict) and verdict.reason)


def test_the_plugin_answers_the_hook() -> None:
    manager = PluginManager()
    manager.register(gate)
    assert manager.should_store(Scope(), "thanks", []) == (
        StoreVerdict(False, "it is small talk"),
        "nanomem_plugins.gate",
    )
