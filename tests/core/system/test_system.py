"""What an application sees of conversations."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from nanomem_core.changes import Change, Put
from nanomem_core.config.model import ConversationSettings, Settings
from nanomem_core.errors import (
    AuthenticationError,
    ClosedError,
    ConfigError,
    GeneratorError,
    InputError,
    NotFoundError,
    RateLimitedError,
    UnreachableError,
    VetoError,
)
from nanomem_core.hookspecs import Plugin, hookimpl
from nanomem_core.interfaces import Generator
from nanomem_core.pipeline.chats import Chat
from nanomem_core.records import Record, Scope
from nanomem_core.registry.manager import PluginManager
from nanomem_core.system import MemorySystem
from nanomem_core.testing import HashEmbedder, ScriptedGenerator
from nanomem_plugins.lexical.embedder import LexicalEmbedder
from tests.core.pipeline.test_messages import SHAPES
from tests.core.system.conftest import MakeSystem
from tests.core.system.models import FIXED, Listener, Pairs, messages
from tests.memories import CountingEmbedder, Shelf, texts


def where(system: MemorySystem, **scope: Any) -> dict[str, list[str]]:
    """Each message id with the places it is in: ``waiting``, or an episode's id."""
    places: dict[str, list[str]] = {}
    for message in system.buffers.buffer(**scope).get_messages():
        places.setdefault(message.message_id, []).append("waiting")
    for episode in system.episodes(merged=True, **scope):
        for message in episode.messages:
            places.setdefault(message.message_id, []).append(episode.id)
    return places


def fact(text: str) -> dict[str, Any]:
    """A message that `Listener` draws a fact from, said at the time of the first of `messages`."""
    return {**messages(1)[0], "content": f"fact: {text}", "message_id": f"f-{text}"}


# From messages to episodes.


def test_messages_wait_until_there_are_enough_and_then_become_episodes(make_system: MakeSystem) -> None:
    system = make_system(batch_threshold=6)
    assert system.add_messages(messages(5))["waiting"] == 5
    assert system.wait(60)
    assert system.episodes() == []
    report = system.add_messages(messages(1, start=5))
    assert (report["added"], report["skipped"]) == (["m0005"], 0)
    assert system.wait(60)
    assert [len(episode.messages) for episode in system.episodes()] == [2, 2, 2]
    assert system.buffers.buffer().is_empty()
    assert system.episodes()[0].boundary_reason == "6 messages wait (batch_threshold 6); part 1 of 3 by pairs"


def test_what_comes_after_a_pause_goes_on_waiting(make_system: MakeSystem) -> None:
    system = make_system(gap_minutes=30)
    system.add_messages(messages(4))
    system.add_messages(messages(1, start=100))
    assert system.wait(60)
    assert [len(episode.messages) for episode in system.episodes()] == [2, 2]
    assert [m.message_id for m in system.buffers.buffer().get_messages()] == ["m0100"]


def test_a_flush_leaves_nothing_waiting_not_even_one_message(system: MemorySystem) -> None:
    system.add_messages(messages(1))
    (episode,) = system.flush()
    assert (episode.title, len(episode.messages)) == ("Conversation 2026-02-25 (1 message)", 1)
    assert system.episode(episode.id) == episode
    assert system.flush() == []


def test_nothing_is_lost_by_closing(shelf: Shelf, make_system: MakeSystem) -> None:
    system = make_system()
    system.add_messages(messages(3))
    assert system.close()
    assert system.close()
    for call in (lambda: system.add_messages(messages(1)), system.flush, system.status, system.wait, system.episodes):
        with pytest.raises(ClosedError):
            call()
    again = make_system(shelf.open())
    assert again.buffers.buffer().size() == 3
    assert [len(episode.messages) for episode in again.flush()] == [3]


def test_what_says_nothing_asks_no_model_and_stores_nothing(make_system: MakeSystem) -> None:
    generator = Listener()
    system = make_system(generator=generator)
    assert system.add_messages([{"role": "user", "content": ""}, {"role": "assistant", "content": None}]) == {
        "added": [],
        "skipped": 2,
        "waiting": 0,
    }
    assert system.wait(60)
    assert system.flush() == []
    assert generator.asked == []
    assert system.memory.storage.scopes() == []


def test_reading_makes_nothing(system: MemorySystem) -> None:
    options = {"user": "nobody"}
    assert system.search("x", **options) == []
    assert system.search_all("x", **options) == {"episodes": [], "facts": []}
    assert system.episodes(**options) == []
    assert system.episode("x", **options) is None
    assert system.status(**options)["waiting"] == 0
    assert system.stats(**options)["facts"] == 0
    assert system.memory.storage.scopes() == []


def test_a_model_tells_the_episodes(make_system: MakeSystem) -> None:
    system = make_system(generator=Listener(), merge=False)
    system.add_messages(messages(4))
    assert [(e.title, e.content) for e in system.flush()] == [
        ("About sentence 0", "sentence 0; sentence 1"),
        ("About sentence 2", "sentence 2; sentence 3"),
    ]


def test_episodes_are_made_without_a_model_that_fails(make_system: MakeSystem) -> None:
    system = make_system(generator=ScriptedGenerator([GeneratorError("down")] * 100))
    system.add_messages(messages(2))
    (episode,) = system.flush()
    assert episode.content == "user: sentence 0\nassistant: sentence 1"
    assert "down" in episode.metadata["fallback"]


def going_on(kind: str, answer: Any) -> Any:
    """Every episode goes on with the first one that is offered."""
    return {"continues": 1, "title": "The trip to Rome", "content": "All of it."} if kind == "continues" else answer


def test_new_messages_go_on_with_an_episode_that_is_near_in_meaning_and_time(
    shelf: Shelf, make_system: MakeSystem
) -> None:
    generator = Listener(going_on)
    system = make_system(shelf.open(LexicalEmbedder()), generator=generator, merge_similarity=0.5, facts=False)
    system.add_messages([{"role": "user", "content": "Our trip to Rome and its old hotel", "timestamp": 1000}])
    (old,) = system.flush()
    assert generator.asked == ["title"], "there was nothing to go on with"
    system.memory.add("Ann goes to Rome", metadata={"derived_from": [old.id, "other"]}, id="f")
    system.add_messages([{"role": "user", "content": "The old hotel of our trip to Rome", "timestamp": 2000}])
    (merged,) = system.flush()
    assert (merged.title, merged.timestamp, [m.timestamp for m in merged.messages]) == (
        "The trip to Rome",
        1000,
        [1000, 2000],
    )
    assert merged.metadata["merged_from"] == [old.id]
    assert [e.id for e in system.episodes()] == [merged.id]
    assert [e.id for e in system.episodes(merged=True)] == [old.id, merged.id]
    assert [value.id for value in system.memory.history(id=merged.id)] == [old.id, merged.id]
    assert sources(system) == {"f": [merged.id, "other"]}
    assert [hit.id for hit in system.search("hotel Rome", kinds=("episode",))] == [merged.id]
    both = {hit.id: hit.superseded for hit in system.memory.search("hotel Rome", kind="episode")}
    assert both == {merged.id: False, old.id: True}
    # Too late, and then about something else: the model is not even asked.
    generator.asked.clear()
    system.add_messages([{"role": "user", "content": "The old hotel of our trip to Rome", "timestamp": 9000}])
    system.flush()
    system.add_messages([{"role": "user", "content": "Pasta needs salted water", "timestamp": 9100}])
    system.flush()
    assert generator.asked == ["title", "title"]
    assert (system.stats()["episodes"], system.stats()["merged"]) == (3, 1)


def test_two_groups_never_go_on_with_one_episode(shelf: Shelf, make_system: MakeSystem) -> None:
    memory = shelf.open(LexicalEmbedder())
    system = make_system(memory, generator=Listener(going_on), merge_similarity=0.0001, facts=False)
    same = [{"role": "user", "content": "the trip to Rome", "timestamp": 1000 + n} for n in range(2)]
    system.add_messages(same)
    system.flush()
    system.add_messages([{**m, "timestamp": m["timestamp"] + 10} for m in (*same, *same)])
    system.flush()
    assert sorted(len(episode.messages) for episode in system.episodes()) == [2, 4]
    assert all(len(places) == 1 for places in where(system).values())


def test_without_a_model_episodes_are_not_merged(shelf: Shelf, make_system: MakeSystem) -> None:
    system = make_system(shelf.open(LexicalEmbedder()), merge_similarity=0.0001)
    for _ in range(2):
        system.add_messages([{"role": "user", "content": "the trip to Rome", "timestamp": 1000}])
        system.flush()
    assert len(system.episodes(merged=True)) == 2


def test_conversations_of_an_export_become_episodes_of_their_own_and_only_once(system: MemorySystem) -> None:
    system.add_messages([{"role": "user", "content": "I was here first", "message_id": "live"}])
    system.buffers.buffer().add_messages(messages(1))  # left by an import that was interrupted
    chats = [Chat("a", messages(3)), Chat("b", messages(2, start=3)), Chat("", [])]
    done: list[tuple[int, int]] = []
    report = system.import_chats(chats, progress=lambda count, total: done.append((count, total)))
    assert report == {"chats": 3, "added": 4, "skipped": 1, "episodes": 2}
    assert done == [(3, 5), (5, 5)]
    assert [len(episode.messages) for episode in system.episodes()] == [3, 2]
    assert system.episodes()[0].boundary_reason == "imported: a; part 1 of 1 by pairs"
    assert [m.message_id for m in system.buffers.buffer().get_messages()] == ["live"]
    again = system.import_chats([*chats, Chat("c", messages(1, start=9))])
    assert again == {"chats": 4, "added": 1, "skipped": 5, "episodes": 1}


def test_messages_of_every_shape_become_episodes_and_the_caller_s_list_is_as_it_was(make_system: MakeSystem) -> None:
    given = [*copy.deepcopy(SHAPES), {"role": "user", "content": [{"type": "hologram", "data": "x"}]}]
    before = copy.deepcopy(given)
    system = make_system(generator=Listener(), merge=False)
    with pytest.warns(RuntimeWarning, match="'hologram'") as warned:
        report = system.add_messages(given)
    assert len(warned) == 1
    assert given == before
    assert (len(report["added"]), report["skipped"]) == (6, 2)
    said = [message for episode in system.flush() for message in episode.messages]
    assert [(message.role, message.content) for message in said] == [
        ("system", "Be brief."),
        ("user", "I love hiking. Near Lake Orr. [image]"),
        ("assistant", '[call: weather({"place":"Lake Orr"})]'),
        ("tool", "12 C, rain"),
        ("user", "Thanks!"),
        ("developer", "note"),
    ]
    places = where(system)
    call, result = (message.message_id for message in said[2:4])
    assert places[call] == places[result]
    assert system.wait(60)
    everything = json.dumps([record.to_dict() for record in system.memory.storage.scan(Scope())])
    assert "AAAA" not in everything


def test_each_sitting_of_an_export_is_a_commit_of_its_own_so_that_an_import_goes_on_where_it_was(
    make_system: MakeSystem,
) -> None:
    system = make_system(gap_minutes=30)
    chat = Chat("", [*messages(2), *messages(3, start=100)])

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        system.import_chats([chat], progress=stop)
    assert [len(episode.messages) for episode in system.episodes()] == [2]
    assert system.buffers.buffer().size() == 3
    assert system.import_chats([chat]) == {"chats": 1, "added": 0, "skipped": 5, "episodes": 1}
    assert [len(episode.messages) for episode in system.episodes()] == [2, 3]


# Facts.


def test_facts_are_drawn_from_episodes_in_the_background(make_system: MakeSystem) -> None:
    system = make_system(generator=Listener(), merge=False)
    system.add_messages([fact("Ann likes tea"), *messages(1)])
    (episode,) = system.flush()
    assert system.wait_for_semantic(60)
    (found,) = system.memory.records()
    assert (found.text, found.metadata["derived_from"]) == ("Ann likes tea", [episode.id])
    assert system.status() == {"waiting": 0, "running": False, "pending": [], "dead": [], "error": None}
    assert system.episodes()[0].metadata["distilled"]["facts"] == [found.id]
    usage = {row["phase"]: row for row in system.stats()["usage"]["phases"]}
    assert usage["episode"]["input_tokens"] == 100
    assert usage["facts"]["calls"] == 1
    assert usage["facts"]["format_error_rate"] == 0


def test_what_an_earlier_process_left_to_do_is_taken_up(shelf: Shelf, make_system: MakeSystem) -> None:
    first = make_system()
    first.add_messages([fact("Ann likes tea"), *messages(1)], user="ann")
    first.flush(user="ann")
    assert first.wait(60, user="ann"), "without a model there is nothing that could be done"
    first.close()
    system = make_system(shelf.open(), generator=Listener())
    assert len(system.status(user="ann")["pending"]) == 1
    assert system.resume() == 1
    assert system.wait(60, user="ann")
    assert texts(system.memory.records(user="ann")) == ["Ann likes tea"]


def test_a_job_that_fails_too_often_is_set_aside_and_can_be_tried_again(make_system: MakeSystem) -> None:
    broken = True

    def answer(kind: str, value: Any) -> Any:
        return "I could not find any facts." if kind == "facts" and broken else value

    generator = Listener(answer)
    system = make_system(generator=generator, attempts=2, merge=False)
    system.add_messages([fact("Ann likes tea"), *messages(1)])
    (episode,) = system.flush()
    assert system.wait(60)
    assert generator.asked.count("facts") == 4, "two attempts, each with one repair"
    (dead,) = system.status()["dead"]
    assert (dead["id"], dead["title"], dead["attempts"]) == (episode.id, episode.title, 2)
    assert "expected" in dead["error"]
    assert "could not find" not in dead["error"]
    assert system.memory.records() == []
    assert len(system.episodes()[0].messages) == 2
    assert system.wait(60)
    assert generator.asked.count("facts") == 4
    broken = False
    assert system.retry("another") == []
    assert system.retry() == [episode.id]
    assert system.wait(60)
    assert texts(system.memory.records()) == ["Ann likes tea"]
    assert system.status()["dead"] == []
    assert "job_error" not in system.episodes()[0].metadata


def test_an_episode_that_no_model_told_is_told_later_and_its_facts_are_drawn_after_that(
    shelf: Shelf, make_system: MakeSystem
) -> None:
    first = make_system()
    first.add_messages([fact("Ann likes tea"), *messages(1)])
    (plain,) = first.flush()
    first.close()
    generator = Listener()
    system = make_system(shelf.open(), generator=generator, merge=False)
    assert [job["lacks"] for job in system.status()["pending"]] == [["account", "facts"]]
    assert system.wait(60)
    assert generator.asked == ["title", "facts"]
    (told,) = system.episodes()
    assert (told.id, told.title) == (plain.id, "About fact: Ann likes tea")
    assert told.content == "fact: Ann likes tea; sentence 0"
    assert (told.messages, told.boundary_reason) == (plain.messages, plain.boundary_reason)
    assert "fallback" not in told.metadata
    assert [hit.id for hit in system.search("About", kinds=("episode",))] == [plain.id]
    assert texts(system.memory.records()) == ["Ann likes tea"]
    assert system.wait(60)
    assert generator.asked == ["title", "facts"]


def test_without_facts_episodes_are_told_all_the_same(shelf: Shelf, make_system: MakeSystem) -> None:
    make_system(shelf.open()).buffers.buffer().add_messages(messages(2))
    make_system(shelf.open()).flush()
    system = make_system(shelf.open(), generator=Listener(), facts=False)
    assert system.wait(60)
    assert system.episodes()[0].title == "About sentence 0"
    assert system.status()["pending"] == []


def test_a_model_that_can_not_tell_an_episode_may_draw_its_facts(make_system: MakeSystem) -> None:
    broken = True
    generator = Listener(lambda kind, value: "no" if kind == "title" and broken else value)
    system = make_system(generator=generator, attempts=2, merge=False)
    system.add_messages([fact("Ann likes tea"), *messages(1)])
    (episode,) = system.flush()
    assert system.wait(60)
    assert texts(system.memory.records()) == ["Ann likes tea"]
    (dead,) = system.status()["dead"]
    assert (dead["id"], dead["lacks"], dead["attempts"]) == (episode.id, ["account"], 2)
    assert generator.asked.count("facts") == 1
    broken = False
    assert system.retry(episode.id) == [episode.id]
    assert system.wait(60)
    assert system.status()["dead"] == []
    (told,) = system.episodes()
    assert told.title.startswith("About")
    assert not {"fallback", "job_attempts", "job_error"} & told.metadata.keys()
    assert generator.asked.count("facts") == 1


@pytest.mark.parametrize(
    "error", [UnreachableError("nobody answers"), AuthenticationError("wrong key"), RateLimitedError("too often")]
)
def test_while_the_model_is_out_of_reach_no_attempt_is_counted(
    make_system: MakeSystem, error: GeneratorError, caplog: pytest.LogCaptureFixture
) -> None:
    down = True

    def answer(kind: str, value: Any) -> Any:
        if down:
            raise error
        return value

    system = make_system(generator=Listener(answer), attempts=1, merge=False)
    system.add_messages([fact("Ann likes tea"), *messages(1), fact("Ann sings"), *messages(1, start=1)])
    assert len(system.flush()) == 2
    assert not system.wait(60)
    status = system.status()
    assert [job["attempts"] for job in status["pending"]] == [0, 0]
    assert (status["dead"], status["waiting"]) == ([], 0)
    assert str(error) in status["error"]
    assert str(error) in caplog.text
    down = False
    assert system.wait(60)
    assert texts(system.memory.records()) == ["Ann likes tea", "Ann sings"]
    assert not any("fallback" in episode.metadata for episode in system.episodes())


def test_a_used_up_budget_loses_nothing(make_system: MakeSystem, caplog: pytest.LogCaptureFixture) -> None:
    system = make_system(generator=Listener(), token_budget=100, merge=False)
    system.add_messages([*messages(1), fact("Ann likes tea")])
    (episode,) = system.flush()
    assert "fallback" not in episode.metadata
    assert not system.wait(60)
    status = system.status()
    assert "budget" in status["error"]
    assert [job["attempts"] for job in status["pending"]] == [0]
    assert status["dead"] == []
    assert "budget" in caplog.text


def test_a_verdict_of_a_model_can_be_taken_back(make_system: MakeSystem) -> None:
    def answer(kind: str, value: Any) -> Any:
        if kind == "facts":
            return {"facts": [{"text": "Ann works at Birch", "entity": "employer"}]}
        if kind == "verdicts":
            return {"verdicts": [{"statement": 1, "verdict": "supersedes", "fact": 1, "reason": "new job"}]}
        return value

    system = make_system(generator=Listener(answer), merge=False)
    old = system.memory.add("Ann works at Alder", entity="employer", timestamp=1000)
    system.add_messages(messages(2))
    system.flush()
    assert system.wait(60)
    (current,) = system.memory.current(entity="employer")
    assert current.text == "Ann works at Birch"
    assert system.memory.changes(since=1001)[0].previous_text == "Ann works at Alder"
    assert current.metadata["cause"]["verdict"] == "supersedes"
    assert system.undo(old) == [current.id]
    assert texts(system.memory.current(entity="employer")) == ["Ann works at Alder"]
    assert len(system.memory.records()) == 2
    with pytest.raises(NotFoundError):
        system.undo(old)


# Searching.


@pytest.mark.parametrize("mode", ["text", "vector", "hybrid"])
def test_episodes_and_facts_are_searched_in_one_list_with_one_shape_and_scale(
    make_system: MakeSystem, mode: Any
) -> None:
    system = make_system()
    system.memory.embedder = LexicalEmbedder()
    system.add_messages([{"role": "user", "content": "We should visit the harbour of Bergen"}])
    system.flush()
    assert [hit.kind for hit in system.search("harbour Bergen", mode=mode)] == ["episode"], "works with one document"
    system.memory.add("Ann was born in Bergen, by the harbour", entity="birthplace")
    system.memory.add("Notes", kind="summary")
    system.add_messages([{"role": "user", "content": "Bergen harbour waits"}])
    found = system.search("harbour Bergen", mode=mode)
    assert {hit.kind for hit in found} == {"episode", "fact"}
    assert len({tuple(hit) for hit in found}) == 1
    scores = [hit.score for hit in found]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score <= 1 for score in scores)
    json.dumps(found)
    # A message that waits is found by its words.
    waits = [] if mode == "vector" else ["Bergen harbour waits"]
    assert texts(system.search("harbour", mode=mode, kinds=("message",))) == waits
    assert len(system.search("harbour Bergen", 1, mode=mode)) == 1
    assert system.search("harbour Bergen", 0, mode=mode) == []
    both = system.search_all("harbour Bergen", mode=mode, top_k_facts=0)
    assert ([hit.kind for hit in both["episodes"]], both["facts"]) == (["episode"], [])
    assert [hit.kind for hit in system.search("harbour Bergen", mode=mode, filter={"entity": "birthplace"})] == ["fact"]


@pytest.mark.parametrize("options", [{"mode": "norlift"}, {"kinds": ("epsiode",)}, {"kinds": ()}, {"kinds": "fact"}])
def test_an_unknown_way_or_kind_of_search_is_refused(system: MemorySystem, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(options)).rstrip('s')}s?: expected"):
        system.search("x", **options)


# Removing.


def two_episodes_and_their_facts(system: MemorySystem) -> tuple[str, str]:
    for number in range(2):
        system.add_messages(messages(2, start=10 * number))
        system.flush()
    first, second = (episode.id for episode in system.episodes())
    for name, sources in {"one": [first], "both": [first, second], "two": [second]}.items():
        system.memory.add(f"fact of {name}", metadata={"derived_from": sources}, id=name)
    return first, second


def sources(system: MemorySystem) -> dict[str, list[str]]:
    return {fact.id: fact.metadata["derived_from"] for fact in system.memory.records()}


def test_a_fact_goes_only_with_its_last_source(make_system: MakeSystem) -> None:
    system = make_system(merge=False)
    first, second = two_episodes_and_their_facts(system)
    assert system.delete_episode(first) == {"deleted": True, "facts": ["one"]}
    assert sources(system) == {"both": [second], "two": [second]}
    assert system.delete_episode(first) == {"deleted": False, "facts": []}
    assert sorted(system.delete_episode(second)["facts"]) == ["both", "two"]
    assert system.episodes() == []


def test_without_cascade_facts_stay_and_name_no_source_that_is_gone(make_system: MakeSystem) -> None:
    system = make_system(merge=False)
    first, second = two_episodes_and_their_facts(system)
    assert system.delete_episode(first, cascade=False) == {"deleted": True, "facts": []}
    assert sources(system) == {"one": [], "both": [second], "two": [second]}


def test_only_episodes_and_only_facts_are_deleted_as_such(system: MemorySystem) -> None:
    id = system.memory.add("a fact")
    system.add_messages(messages(1))
    assert system.delete_episode(id) == {"deleted": False, "facts": []}
    assert not system.delete_fact("m0000")
    assert system.delete_fact(id)
    assert not system.delete_fact(id)
    assert system.buffers.buffer().size() == 1


def test_an_episode_is_deleted_with_those_that_it_goes_on_with(shelf: Shelf, make_system: MakeSystem) -> None:
    memory = shelf.open(LexicalEmbedder())
    system = make_system(memory, generator=Listener(going_on), merge_similarity=0.0001, facts=False)
    for number in range(3):
        system.add_messages([{"role": "user", "content": "the trip to Rome", "timestamp": 1000 + number}])
        system.flush()
    assert len(system.episodes(merged=True)) == 3
    (episode,) = system.episodes()
    system.delete_episode(episode.id)
    assert system.episodes(merged=True) == []
    assert list(system.memory.storage.scan(Scope())) == []


def test_of_a_deleted_user_nothing_is_left_also_not_what_is_being_worked_out(make_system: MakeSystem) -> None:
    system = make_system(generator=Listener())
    for user in ("ann", "bob"):
        system.add_messages([fact("likes tea"), *messages(3)], user=user)
        system.flush(user=user)
        system.add_messages(messages(1, start=7), user=user, agent="tutor")
    assert system.delete_user("ann") == 2
    assert system.wait(60, user="ann")
    assert {scope.user for scope in system.memory.storage.scopes()} == {"bob"}
    assert system.delete_user("bob", agent="tutor") == 1
    assert system.memory.storage.scopes() == [Scope("bob")]


# Hooks.


class Watch(Plugin):
    """Keeps what it is told of conversations."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    @hookimpl
    def nanomem_episode_created(self, scope: Scope, episode: Record) -> None:
        self.told.append(("created", str(scope), episode.id))

    @hookimpl
    def nanomem_episode_distilled(self, scope: Scope, id: str, report: Mapping[str, Any]) -> None:
        self.told.append(("distilled", str(scope), id, tuple(report["facts"])))

    @hookimpl
    def nanomem_episode_deleted(self, scope: Scope, id: str, facts: Sequence[str]) -> None:
        self.told.append(("episode deleted", str(scope), id, tuple(facts)))

    @hookimpl
    def nanomem_fact_deleted(self, scope: Scope, id: str) -> None:
        self.told.append(("fact deleted", str(scope), id))


class Fail(Plugin):
    """Raises whatever it is told."""

    @hookimpl
    def nanomem_episode_created(self) -> None:
        raise RuntimeError("subscriber")

    @hookimpl
    def nanomem_episode_distilled(self) -> None:
        raise RuntimeError("subscriber")

    @hookimpl
    def nanomem_episode_deleted(self) -> None:
        raise SystemExit(3)

    @hookimpl
    def nanomem_fact_deleted(self) -> None:
        raise RuntimeError("subscriber")


def test_plugins_are_told_and_one_that_raises_disturbs_nobody(
    shelf: Shelf, make_system: MakeSystem, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    plugins, watch = PluginManager(), Watch()
    plugins.register(Fail())
    plugins.register(watch)
    system = make_system(shelf.open(plugins=plugins), generator=Listener(), merge=False)
    system.add_messages([fact("Ann likes tea"), *messages(1), fact("Ann has a cat"), fact("Ann sings")], user="ann")
    first, second = (episode.id for episode in system.flush(user="ann"))
    assert system.wait(60, user="ann")
    tea, cat, sings = (record.id for record in system.memory.records(user="ann"))
    system.delete_fact(sings, user="ann")
    system.delete_episode(second, user="ann")
    assert watch.told == [
        ("created", "ann", first),
        ("created", "ann", second),
        ("distilled", "ann", first, (tea,)),
        ("distilled", "ann", second, (cat, sings)),
        ("fact deleted", "ann", sings),
        ("episode deleted", "ann", second, (cat,)),
        ("fact deleted", "ann", cat),
    ]
    assert len(where(system, user="ann")) == 2, "each message was taken once"
    assert "plugin 'Fail' failed in nanomem_episode_created" in caplog.text
    assert "SystemExit" in caplog.text


def test_a_veto_of_the_facts_is_a_failed_attempt_and_one_of_a_message_an_error(
    shelf: Shelf, make_system: MakeSystem
) -> None:
    class NoTea(Plugin):
        @hookimpl
        def nanomem_before_commit(self, scope: Scope, changes: Sequence[Change]) -> None:
            for change in changes:
                if isinstance(change, Put) and change.record.kind != "episode" and "tea" in change.record.text:
                    raise VetoError("no tea")

    plugins = PluginManager()
    plugins.register(NoTea())

    def answer(kind: str, value: Any) -> Any:
        return {"facts": ["Ann likes tea"]} if kind == "facts" else value

    system = make_system(shelf.open(plugins=plugins), generator=Listener(answer), attempts=1)
    with pytest.raises(VetoError):
        system.add_messages([*messages(1), {"role": "user", "content": "tea, please"}])
    assert system.buffers.buffer().is_empty()
    system.add_messages(messages(2))
    system.flush()
    assert system.wait(60)
    assert "no tea" in system.status()["dead"][0]["error"]


# Settings, statistics, health.


def test_the_statistics_tell_what_segmenters_did(make_system: MakeSystem) -> None:
    class Careless(Pairs):
        name = "careless"

        def split(self, messages: Sequence[Record], generator: Generator | None = None) -> Any:
            if len(messages) == 3:
                raise GeneratorError("three is too much")
            return [[0, 0, 7], ["1"]]

    system = make_system(segmenter=Careless())
    assert system.stats()["segmentation"] == {}
    for start, count in ((0, 3), (10, 4)):
        system.add_messages(messages(count, start=start))
        system.flush()
    assert system.stats()["segmentation"] == {
        "careless": {
            "batches": 1,
            "failures": 1,
            "repairs": {"coerced": 1, "duplicate": 1, "missing": 2, "out_of_range": 1},
        },
        "one group": {"batches": 1, "failures": 0, "repairs": {}},
    }
    json.dumps(system.stats())


def test_the_settings_are_checked() -> None:
    assert ConversationSettings().batch_threshold == 20
    for wrong in ({"batch_threshold": 0}, {"merge_similarity": 1.5}, {"min_messages": 9, "max_messages": 5}, {"x": 1}):
        with pytest.raises(ValueError, match="validation error"):
            ConversationSettings(**wrong)


def test_a_system_is_opened_as_configured(tmp_path: Any) -> None:
    plugins = PluginManager.discover()
    storage = {"use": "arena", "path": str(tmp_path / "m.dat")}
    with MemorySystem.open(plugins=plugins, storage=storage, conversation={"batch_threshold": 2}, user="ann") as system:
        assert system.settings.batch_threshold == 2
        assert [each.name for each in system.segmenters] == ["texttiling"]
        assert system.segmenters[0].embedder is system.memory.embedder
        system.add_messages([{"role": "user", "content": "hello there"}, {"role": "assistant", "content": "hello"}])
        assert system.wait(60)
    with MemorySystem.open(Settings(storage=storage), plugins=plugins) as system:
        assert len(system.episodes(user="ann")) == 1
    with pytest.raises(InputError, match="not both"):
        MemorySystem.open(Settings(), storage="arena")
    with pytest.raises(ConfigError, match=r"expected max_messages from min_messages \(9\) on; found 5"):
        MemorySystem.open(storage=storage, conversation={"min_messages": 9, "max_messages": 5})


def test_parts_that_were_given_stay_open_and_the_memory_too(make_system: MakeSystem) -> None:
    class Counting(Listener):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    generator = Counting()
    system = make_system(generator=generator)
    system.close()
    assert generator.closed == 0
    assert system.memory.add("still open")


def test_messages_are_taken_in_without_the_embedder(shelf: Shelf, make_system: MakeSystem) -> None:
    embedder = CountingEmbedder()
    system = make_system(shelf.open(embedder))
    system.memory.add("Ann sings")
    system.search("Ann")
    system.add_messages(messages(3))
    found = system.search("sentence 1", kinds=("message", "fact"))
    assert [hit.kind for hit in found] == ["message", "message", "message", "fact"]
    assert (found[0].text, found[0].cosine) == ("sentence 1", None)
    assert texts(system.search("sentence 1", kinds=("message",), min_score=0.1)) == []
    assert embedder.encoded == ["Ann sings"]
    system.flush()
    system.search("Ann")
    assert len(embedder.encoded) == 2, "an episode is embedded"


def test_an_unchanged_text_is_not_embedded_again(shelf: Shelf, make_system: MakeSystem) -> None:
    embedder = CountingEmbedder()
    system = make_system(shelf.open(embedder), generator=Listener(), merge=False)
    system.add_messages([fact("Ann likes tea"), *messages(1)])
    system.flush()
    assert system.wait(60)
    system.delete_episode(system.episodes()[0].id, cascade=False)
    system.search("tea")
    assert len(embedder.encoded) == len(set(embedder.encoded))


def test_health_tells_of_each_part(make_system: MakeSystem) -> None:
    assert make_system().health(ask=True) == {
        "storage": {"ok": True, "detail": "0 scopes"},
        "embedder": {"ok": True, "detail": "16 dimensions"},
        "generator": {"ok": None, "detail": "there is none"},
    }

    class Down(HashEmbedder):
        def encode(self, texts: Sequence[str]) -> Any:
            raise RuntimeError("no such model")

    generator: Generator = ScriptedGenerator(["OK", GeneratorError("down")])
    system = make_system(generator=generator)
    system.memory.embedder = Down()
    assert system.health()["generator"] == {"ok": None, "detail": "not asked"}
    assert system.health()["embedder"] == {"ok": False, "detail": "RuntimeError: no such model"}
    assert system.health(ask=True)["generator"] == {"ok": True, "detail": "answered 2 characters"}
    assert system.health(ask=True)["generator"] == {"ok": False, "detail": "GeneratorError: down"}


def test_an_answer_that_fits_nothing_is_survived_at_every_question(make_system: MakeSystem) -> None:
    for bad in ("", "[]", "{}", '{"title": 3, "facts": 4, "verdicts": 5, "continues": "x"}', "null", json.dumps(FIXED)):
        system = make_system(generator=Listener(lambda kind, value, bad=bad: bad), attempts=1)
        user = f"user {bad}"
        system.add_messages(messages(4), user=user)
        system.flush(user=user)
        assert system.wait(60, user=user)
        assert sorted(where(system, user=user)) == [f"m{n:04}" for n in range(4)]
        assert all(len(places) == 1 for places in where(system, user=user).values())
        system.close()
