"""Every hook: its documented signature, that plugins are called through it, and that what does not fit is refused."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import pluggy
import pytest

import nanomem_core
from nanomem_core.changes import Change, Commit, Delete, Put
from nanomem_core.errors import HookError
from nanomem_core.hookspecs import Plugin, StoreVerdict, hookimpl
from nanomem_core.interfaces import Component, Embedder, Segmenter, Storage, Tagger
from nanomem_core.interfaces import Generator as Model
from nanomem_core.records import Record, Scope
from nanomem_core.registry.hooks import HOOKS
from nanomem_core.registry.manager import PluginManager

from .parts import FileTagger, LengthEmbedder

DOCUMENTED = {
    "nanomem_register_storage": (),
    "nanomem_register_embedder": (),
    "nanomem_register_segmenter": (),
    "nanomem_register_tagger": (),
    "nanomem_register_generator": (),
    "nanomem_build": ("kind", "cls", "options"),
    "nanomem_should_store": ("scope", "text", "context"),
    "nanomem_before_commit": ("scope", "changes"),
    "nanomem_committed": ("commit",),
    "nanomem_searched": ("scope", "query", "results"),
    "nanomem_episode_created": ("scope", "episode"),
    "nanomem_episode_distilled": ("scope", "id", "report"),
    "nanomem_episode_deleted": ("scope", "id", "facts"),
    "nanomem_fact_deleted": ("scope", "id"),
}
"""The signatures that plugins are written against; changing one means raising API_LEVEL."""

SCOPE = Scope("ann")
PUT = Put(Record("1", "likes tea"))


def manager(*plugins: object) -> PluginManager:
    made = PluginManager()
    for plugin in plugins:
        made.register(plugin)
    return made


def test_the_hooks_are_the_documented_ones() -> None:
    assert HOOKS == DOCUMENTED


@pytest.mark.parametrize("hook", DOCUMENTED)
def test_every_hook_has_a_test_of_its_own(hook: str) -> None:
    tests = [name for name in vars(sys.modules[__name__]) if name.startswith(f"test_{hook}")]
    assert tests


@pytest.mark.parametrize("hook", DOCUMENTED)
def test_every_hook_says_what_it_is_for_and_types_its_parameters(hook: str) -> None:
    spec = getattr(Plugin, hook)
    assert spec.__doc__
    signature = inspect.signature(spec)
    assert all(each.annotation is not each.empty for name, each in signature.parameters.items() if name != "self")
    assert signature.return_annotation is not signature.empty


@pytest.mark.parametrize("hook", DOCUMENTED)
def test_the_documented_parameters_are_accepted_in_full_and_in_part(hook: str) -> None:
    for names in (DOCUMENTED[hook], DOCUMENTED[hook][:1]):
        namespace: dict[str, Any] = {}
        exec(f"def {hook}(self{''.join(', ' + name for name in names)}): return None", namespace)
        plugin = type("Partial", (Plugin,), {hook: namespace[hook]})()
        made = manager(plugin)
        assert made.hooks("Partial") == [hook]


# What each hook does.


def test_nanomem_register_storage_offers_storages() -> None:
    class Shelf(Plugin):
        def nanomem_register_storage(self) -> Iterable[type[Storage]]:
            return [EmptyStorage]

    assert manager(Shelf()).find("storage", "empty").cls is EmptyStorage


def test_nanomem_register_embedder_offers_embedders() -> None:
    class Lengths(Plugin):
        def nanomem_register_embedder(self) -> Iterable[type[Embedder]]:
            return [LengthEmbedder]

    assert manager(Lengths()).find("embedder", "length").cls is LengthEmbedder


def test_nanomem_register_segmenter_offers_segmenters() -> None:
    class Whole(Segmenter):
        name = "whole"

        def split(self, messages: Sequence[Record], generator: Model | None = None) -> Sequence[Sequence[int]]:
            return [list(range(len(messages)))]

    class Cutter(Plugin):
        def nanomem_register_segmenter(self) -> Iterable[type[Segmenter]]:
            yield Whole

    assert manager(Cutter()).find("segmenter", "whole").cls is Whole


def test_nanomem_register_tagger_offers_taggers() -> None:
    class Tags(Plugin):
        def nanomem_register_tagger(self) -> Iterable[type[Tagger]]:
            return (FileTagger,)

    assert manager(Tags()).find("tagger", "file").cls is FileTagger


def test_nanomem_register_generator_offers_generators() -> None:
    class Echo(Model):
        name = "echo"

        def complete(self, messages: Any, **options: Any) -> Any:
            return messages[-1]

    class Echoes(Plugin):
        def nanomem_register_generator(self) -> Iterable[type[Model]]:
            return [Echo]

    assert manager(Echoes()).find("generator", "echo").cls is Echo


def test_nanomem_build_of_a_plugin_goes_before_the_constructor() -> None:
    seen = []

    class Builder(Plugin):
        def nanomem_build(self, kind: str, cls: type[Component], options: Mapping[str, Any]) -> Component:
            seen.append((kind, cls, dict(options)))
            return LengthEmbedder(dim=9)

    built = manager(Builder()).build("embedder", {"use": LengthEmbedder, "dim": "3"})
    assert built.dim == 9
    assert seen == [("embedder", LengthEmbedder, {"dim": 3})]


def test_nanomem_build_that_returns_none_leaves_it_to_the_constructor() -> None:
    class Passes(Plugin):
        def nanomem_build(self, kind: str, cls: type[Component], options: Mapping[str, Any]) -> Component | None:
            return None

    assert manager(Passes()).build("embedder", {"use": LengthEmbedder, "dim": 3}).dim == 3


def test_nanomem_build_as_a_wrapper_decorates_what_was_built() -> None:
    class Scale(Plugin):
        @hookimpl(wrapper=True)
        def nanomem_build(self, kind: str) -> Generator[None, Any, Any]:
            component = yield
            component.scale = 5.0
            return component

    built = manager(Scale()).build("embedder", LengthEmbedder)
    assert isinstance(built, LengthEmbedder)
    assert built.scale == 5.0


class Judges(Plugin):
    """Gives one verdict on everything, and keeps what it was asked."""

    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict
        self.asked: list[Any] = []

    def nanomem_should_store(self, scope: Scope, text: str, context: Sequence[Any]) -> Any:
        self.asked.append((scope, text, context))
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict


def test_nanomem_should_store_of_the_plugin_that_was_registered_last_counts() -> None:
    first, last = Judges(StoreVerdict(True, "first")), Judges(StoreVerdict(False, "last"))
    said = [{"role": "user", "content": "hi"}]
    assert manager(first, last).should_store(SCOPE, "tea", said) == (StoreVerdict(False, "last"), "Judges-2")
    assert (first.asked, last.asked) == ([], [(SCOPE, "tea", said)])


def test_nanomem_should_store_that_returns_none_leaves_it_to_the_next() -> None:
    first, last = Judges(StoreVerdict(True, "first")), Judges(None)
    assert manager(first, last).should_store(SCOPE, "tea", []) == (StoreVerdict(True, "first"), "Judges")
    assert manager(Judges(None)).should_store(SCOPE, "tea", []) is None
    assert manager().should_store(SCOPE, "tea", []) is None


@pytest.mark.parametrize("failure", [RuntimeError("no network"), False, "no"])
def test_nanomem_should_store_that_fails_has_no_say(failure: Any, caplog: pytest.LogCaptureFixture) -> None:
    first, last = Judges(StoreVerdict(True, "first")), Judges(failure)
    assert manager(first, last).should_store(SCOPE, "tea", []) == (StoreVerdict(True, "first"), "Judges")
    assert "plugin 'Judges-2' failed in nanomem_should_store" in caplog.text


def test_nanomem_before_commit_is_a_chain_in_the_order_of_registration() -> None:
    class Adds(Plugin):
        def __init__(self, id: str) -> None:
            self.id = id

        def nanomem_before_commit(self, scope: Scope, changes: Sequence[Change]) -> Sequence[Change]:
            assert scope == SCOPE
            return [*changes, Delete(self.id)]

    assert manager(Adds("a"), Adds("b")).before_commit(SCOPE, [PUT]) == (PUT, Delete("a"), Delete("b"))


def test_nanomem_before_commit_that_returns_none_keeps_the_changes() -> None:
    class Looks(Plugin):
        def nanomem_before_commit(self, changes: Sequence[Change]) -> None:
            assert changes == (PUT,)

    assert manager(Looks()).before_commit(SCOPE, [PUT]) == (PUT,)


def test_nanomem_committed_is_told_of_the_commit() -> None:
    seen = []

    class Listens(Plugin):
        def nanomem_committed(self, commit: Commit) -> None:
            seen.append(commit)

    commit = Commit(SCOPE, 1, (PUT.record,))
    manager(Listens(), Listens()).committed(commit)
    assert seen == [commit, commit]


def test_nanomem_searched_is_told_of_the_search() -> None:
    seen = []

    class Listens(Plugin):
        def nanomem_searched(self, scope: Scope, query: str, results: Sequence[Mapping[str, Any]]) -> None:
            seen.append((scope, query, results))

    manager(Listens()).searched(SCOPE, "tea?", [{"text": "likes tea"}])
    assert seen == [(SCOPE, "tea?", [{"text": "likes tea"}])]


def test_nanomem_episode_created_is_told_of_the_record() -> None:
    seen = []

    class Listens(Plugin):
        def nanomem_episode_created(self, scope: Scope, episode: Record) -> None:
            seen.append((scope, episode))

    episode = Record("e", "Rome", kind="episode")
    manager(Listens()).episode_created(SCOPE, episode)
    assert seen == [(SCOPE, episode)]


def test_nanomem_episode_distilled_is_told_what_came_of_it() -> None:
    seen = []

    class Listens(Plugin):
        def nanomem_episode_distilled(self, id: str, report: Mapping[str, Any]) -> None:
            seen.append((id, report))

    manager(Listens()).episode_distilled(SCOPE, "e", {"facts": ["f"]})
    assert seen == [("e", {"facts": ["f"]})]


def test_nanomem_episode_deleted_and_nanomem_fact_deleted_are_told_of_every_id() -> None:
    seen = []

    class Listens(Plugin):
        def nanomem_episode_deleted(self, scope: Scope, id: str, facts: Sequence[str]) -> None:
            seen.append((id, *facts))

        def nanomem_fact_deleted(self, scope: Scope, id: str) -> None:
            seen.append((id,))

    manager(Listens()).episode_deleted(SCOPE, "e", ["f", "g"])
    assert seen == [("e", "f", "g"), ("f",), ("g",)]


def test_nanomem_fact_deleted_that_raises_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    seen = []

    class Fails(Plugin):
        def nanomem_fact_deleted(self) -> None:
            raise RuntimeError("no network")

    class Listens(Plugin):
        def nanomem_fact_deleted(self, id: str) -> None:
            seen.append(id)

    manager(Fails(), Listens()).fact_deleted(SCOPE, "f")
    assert seen == ["f"]
    assert "plugin 'Fails' failed in nanomem_fact_deleted" in caplog.text


# What counts as an implementation.


def test_what_is_merely_inherited_is_no_implementation() -> None:
    class Listens(Plugin):
        def nanomem_committed(self, commit: Commit) -> None: ...

    class Quiet(Listens):
        pass

    made = manager(Plugin(), Quiet())
    assert made.hooks("Plugin") == []
    assert made.hooks("Quiet") == ["nanomem_committed"]


def test_a_marked_and_an_unmarked_method_count_alike() -> None:
    seen = []

    class Both(Plugin):
        @hookimpl
        def nanomem_committed(self, commit: Commit) -> None:
            seen.append("marked")

        @staticmethod
        def nanomem_searched(query: str) -> None:
            seen.append("unmarked")

    made = manager(Both())
    made.committed(Commit(SCOPE, 1))
    made.searched(SCOPE, "x", [])
    assert seen == ["marked", "unmarked"]


def test_the_functions_of_a_module_are_hooks() -> None:
    module = ModuleType("nanomem_notes")
    seen: list[int] = []
    vars(module).update(nanomem_core=nanomem_core, nanomem_committed=lambda commit: seen.append(commit.head))
    manager(module).committed(Commit(SCOPE, 7))
    assert seen == [7]


def test_tryfirst_and_trylast_move_an_implementation() -> None:
    seen = []

    class Last(Plugin):
        @hookimpl(trylast=True)
        def nanomem_committed(self) -> None:
            seen.append("last")

    class Middle(Plugin):
        def nanomem_committed(self) -> None:
            seen.append("middle")

    class First(Plugin):
        @hookimpl(tryfirst=True)
        def nanomem_committed(self) -> None:
            seen.append("first")

    manager(Last(), Middle(), First()).committed(Commit(SCOPE, 1))
    assert seen == ["first", "middle", "last"]


def test_a_property_is_not_run_when_a_plugin_is_registered() -> None:
    class Lazy(Plugin):
        @property
        def connection(self) -> None:
            raise AssertionError("was run")

    manager(Lazy()).committed(Commit(SCOPE, 1))


# What is refused.


def refused(**methods: Any) -> str:
    with pytest.raises(HookError) as caught:
        manager(type("House", (Plugin,), methods)())
    assert isinstance(caught.value, TypeError)
    assert caught.value.plugin == "House"
    return str(caught.value)


def test_a_misspelt_hook_is_refused_with_the_nearest_name() -> None:
    def nanomem_comitted(self: Any, commit: Commit) -> None: ...

    text = refused(nanomem_comitted=nanomem_comitted)
    assert "there is no hook 'nanomem_comitted'; did you mean 'nanomem_committed'?" in text


def test_a_marked_function_that_no_hook_is_called_like_is_refused() -> None:
    text = refused(on_commit=hookimpl(lambda self, commit: None))
    assert "there is no hook 'on_commit'" in text
    assert "nanomem_committed" in text


def test_a_hook_of_another_api_level_is_accepted_if_it_is_marked_as_optional() -> None:
    class Future(Plugin):
        @hookimpl(optionalhook=True)
        def nanomem_forgotten(self, ids: Sequence[str]) -> None: ...

    assert manager(Future()).hooks("Future") == []


def test_a_wrong_parameter_is_refused_with_both_definitions() -> None:
    def nanomem_committed(self: Any, comit: Commit) -> None: ...

    text = refused(nanomem_committed=nanomem_committed)
    assert "no parameter 'comit'; did you mean 'commit'?" in text
    assert "expected: nanomem_committed(commit)" in text
    assert "found:    nanomem_committed(comit: 'Commit')" in text


def test_a_wrong_parameter_with_a_default_is_refused_too() -> None:
    def nanomem_committed(self: Any, comit: Any = None) -> None: ...

    assert "no parameter 'comit'" in refused(nanomem_committed=nanomem_committed)


def test_keyword_only_parameters_are_refused() -> None:
    def nanomem_committed(self: Any, *, commit: Commit) -> None: ...

    assert "keyword-only" in refused(nanomem_committed=nanomem_committed)


@pytest.mark.parametrize("hook", [hook for hook in DOCUMENTED if hook != "nanomem_build"])
def test_only_building_can_be_wrapped(hook: str) -> None:
    def wraps(self: Any) -> Generator[None, Any, Any]:
        return (yield)

    text = refused(**{hook: hookimpl(wrapper=True)(wraps)})
    assert "only nanomem_build can be wrapped" in text


def test_a_wrapper_that_does_not_yield_is_refused() -> None:
    def nanomem_build(self: Any, kind: str) -> None: ...

    assert "must be a generator function" in refused(nanomem_build=hookimpl(wrapper=True)(nanomem_build))


def test_a_hook_that_is_no_function_is_refused() -> None:
    assert "must be a function or method" in refused(nanomem_committed=property(lambda self: print))


def test_a_refused_plugin_leaves_nothing_behind() -> None:
    class House(Plugin):
        def nanomem_committed(self, commit: Commit) -> None:
            raise AssertionError("was called")

        def nanomem_searched(self, question: str) -> None: ...

    made = PluginManager()
    with pytest.raises(HookError):
        made.register(House())
    made.committed(Commit(SCOPE, 1))
    assert made.statuses == []


def test_the_specifications_are_what_pluggy_reads() -> None:
    specs = pluggy.PluginManager("nanomem")
    specs.add_hookspecs(Plugin)
    for hook, names in DOCUMENTED.items():
        spec = getattr(specs.hook, hook).spec
        assert spec.argnames == names
        assert bool(spec.opts["firstresult"]) == (hook == "nanomem_build")


class EmptyStorage(Storage):
    name = "empty"

    def scopes(self) -> list[Scope]:
        return []

    def head(self, scope: Scope) -> int:
        return 0

    def get(self, scope: Scope, id: str) -> Record | None:
        return None

    def scan(self, scope: Scope, kind: str | None = None) -> Any:
        return iter(())

    def transaction(self, scope: Scope) -> Any:
        raise NotImplementedError

    def erase(self, scope: Scope) -> None: ...
