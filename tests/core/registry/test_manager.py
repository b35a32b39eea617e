"""Plugins that are broken, doubled, disabled, missing or fine, and what is made of their components."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nanomem_core.changes import Change, Commit
from nanomem_core.config.model import PluginSettings
from nanomem_core.errors import (
    ConfigError,
    DuplicateComponentError,
    HookError,
    InputError,
    PluginError,
    PluginLoadError,
    UnknownComponentError,
    VetoError,
)
from nanomem_core.hookspecs import API_LEVEL, Plugin
from nanomem_core.interfaces import Component, Embedder, Tagger
from nanomem_core.records import Scope
from nanomem_core.registry.components import KINDS
from nanomem_core.registry.manager import PluginManager
from nanomem_core.registry.report import PluginStatus

from ..conftest import Site
from .parts import FileTagger, LengthEmbedder, OtherLengthEmbedder

OFFERS = """
from tests.core.registry.parts import {cls}

def nanomem_register_embedder():
    return [{cls}]
"""
GOOD = OFFERS.format(cls="LengthEmbedder")
OTHER = OFFERS.format(cls="OtherLengthEmbedder")
COMMIT = Commit(Scope(), 1)


class Lengths(Plugin):
    def nanomem_register_embedder(self) -> Iterable[type[Embedder]]:
        return [LengthEmbedder]


class OtherLengths(Plugin):
    def nanomem_register_embedder(self) -> Iterable[type[Embedder]]:
        return [OtherLengthEmbedder]


def discover(*names: str, **settings: Any) -> PluginManager:
    return PluginManager.discover(PluginSettings(load=names, **settings))


def only(manager: PluginManager, name: str) -> PluginStatus:
    [status] = [status for status in manager.statuses if status.name == name]
    return status


# Loading.


def test_a_plugin_is_imported_when_a_hook_is_first_needed(site: Site) -> None:
    module = site.install("nanomem-good", "good", GOOD)
    manager = discover("good")
    assert module not in sys.modules
    assert manager.find("embedder", "length").cls is LengthEmbedder
    assert module in sys.modules


def test_a_loaded_plugin_has_a_status_with_its_distribution(site: Site) -> None:
    site.install("nanomem-good", "good", GOOD)
    assert only(discover("good"), "good") == PluginStatus("good", "nanomem-good", "1.0", "loaded")


def test_an_entry_point_may_name_a_subclass_or_an_instance(site: Site) -> None:
    source = """
        from nanomem_core import Plugin
        class House(Plugin):
            def nanomem_committed(self, commit): ...
        house = House()
    """
    site.install("nanomem-a", "a:House", source)
    site.install("nanomem-b", "b:house", source)
    manager = discover("a", "b")
    assert manager.hooks("a") == manager.hooks("b") == ["nanomem_committed"]


BROKEN = {
    "import": ("raise ImportError('no such library')", "ImportError: no such library"),
    "syntax": ("def", "SyntaxError: "),
    "assertion": ("assert False, 'never'", "AssertionError: never"),
    "exit": ("import sys; sys.exit(3)", "SystemExit: 3"),
    "lines": ("raise ValueError('one\\ntwo')", "ValueError: one two"),
    "hook": ("def nanomem_comitted(commit): ...", "did you mean 'nanomem_committed'?"),
    "level": (f"NANOMEM_API_LEVELS = ({API_LEVEL + 1},)", f"API levels ({API_LEVEL + 1},)"),
    "levels": ("NANOMEM_API_LEVELS = 1", "API levels 1"),
}


@pytest.mark.parametrize(("source", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_broken_plugin_is_a_status_and_the_others_work(site: Site, source: str, reason: str) -> None:
    site.install("nanomem-bad", "bad", source)
    site.install("nanomem-good", "good", GOOD)
    manager = discover("bad", "good")
    status = only(manager, "bad")
    assert (status.state, status.is_problem) == ("failed", True)
    assert reason in status.detail
    assert "\n" not in str(status)
    assert "'bad' (nanomem-bad 1.0) failed: " in str(status)
    assert manager.build("embedder", "length").dim == 2


def test_an_entry_point_without_its_attribute_has_failed(site: Site) -> None:
    site.install("nanomem-bad", "bad:missing", "")
    assert "AttributeError" in only(discover("bad"), "bad").detail


def test_an_entry_point_that_is_no_plugin_has_failed(site: Site) -> None:
    site.install("nanomem-bad", "bad:thing", "thing = 3")
    assert "a plugin is a module, or a subclass of Plugin" in only(discover("bad"), "bad").detail


def test_a_plugin_that_states_the_present_level_is_loaded(site: Site) -> None:
    site.install("nanomem-good", "good", f"NANOMEM_API_LEVELS = ({API_LEVEL}, {API_LEVEL + 1})")
    assert only(discover("good"), "good").state == "loaded"


def test_ctrl_c_during_an_import_is_no_failed_plugin(site: Site) -> None:
    site.install("nanomem-slow", "slow", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        discover("slow").load()


def test_a_failed_plugin_is_not_imported_again(site: Site) -> None:
    site.install(
        "nanomem-bad", "bad", "import sys; sys.bad_count = getattr(sys, 'bad_count', 0) + 1; raise ImportError"
    )
    manager = discover("bad")
    manager.load()
    manager.committed(COMMIT)
    assert vars(sys).pop("bad_count") == 1


# Choosing.


def test_plugins_that_are_not_chosen_are_not_imported(site: Site) -> None:
    module = site.install("nanomem-good", "good", GOOD)
    for settings in (PluginSettings(load=()), PluginSettings(load=("arena",)), PluginSettings(disable=("good",))):
        manager = PluginManager.discover(settings)
        status = only(manager, "good")
        assert (status.state, status.is_problem) == ("disabled", False)
        assert module not in sys.modules


def test_by_default_every_installed_plugin_is_loaded(site: Site) -> None:
    site.install("nanomem-good", "good", GOOD)
    assert only(PluginManager.discover(), "good").state == "loaded"


def test_an_empty_list_loads_none_at_all_and_says_nothing(site: Site) -> None:
    site.install("nanomem-bad", "bad", "raise ImportError")
    manager = PluginManager.discover(PluginSettings(load=()))
    assert {status.state for status in manager.statuses} == {"disabled"}
    assert manager.problems() == []


def test_asking_for_a_disabled_plugins_component_says_so(site: Site) -> None:
    site.install("nanomem-length", "length", GOOD)
    manager = PluginManager.discover(PluginSettings(load=(), disable=("length",)))
    with pytest.raises(UnknownComponentError, match=r"plugin 'length' .* disabled: plugins.disable names it"):
        manager.find("embedder", "length")


def test_a_plugin_that_is_asked_for_and_not_installed_is_missing(site: Site) -> None:
    site.install("nanomem-good", "good", GOOD)
    status = only(discover("god"), "god")
    assert (status.state, status.distribution) == ("missing", None)
    assert "did you mean 'good'?" in status.detail


def test_two_distributions_with_one_plugin_name_are_both_named_and_neither_is_loaded(site: Site) -> None:
    site.install("nanomem-a", "same", GOOD)
    site.install("nanomem-b", "same", OTHER)
    statuses = [status for status in discover("same").statuses if status.name == "same"]
    assert [status.state for status in statuses] == ["duplicate", "duplicate"]
    assert "nanomem-b 1.0" in statuses[0].detail
    assert "nanomem-a 1.0" in statuses[1].detail


# Strict.


@pytest.mark.parametrize("use", ["load", "classes", "committed", "before_commit", "build"])
def test_strict_makes_a_failure_fatal_and_names_every_plugin_that_failed(site: Site, use: str) -> None:
    site.install("nanomem-bad", "bad", "raise ImportError('no such library')")
    manager = discover("bad", "gone", strict=True)
    with pytest.raises(PluginLoadError) as caught:
        {
            "load": manager.load,
            "classes": lambda: manager.classes("storage"),
            "committed": lambda: manager.committed(COMMIT),
            "before_commit": lambda: manager.before_commit(Scope(), []),
            "build": lambda: manager.build("embedder", LengthEmbedder),
        }[use]()
    assert "plugin 'bad' (nanomem-bad 1.0) failed: ImportError: no such library" in str(caught.value)
    assert "plugin 'gone' missing" in str(caught.value)
    assert isinstance(caught.value.__cause__, ImportError)


def test_strict_settings_with_nothing_wrong_raise_nothing(site: Site) -> None:
    site.install("nanomem-good", "good", GOOD)
    assert discover("good", strict=True).build("embedder", "length").dim == 2


def test_statuses_and_problems_are_data_even_if_strict(site: Site) -> None:
    site.install("nanomem-bad", "bad", "raise ImportError")
    manager = discover("bad", strict=True)
    assert only(manager, "bad").state == "failed"
    assert len(manager.problems()) == 1


# Components.


def test_an_unknown_component_names_the_known_ones_and_the_plugins_that_failed(site: Site) -> None:
    site.install("nanomem-good", "good", GOOD)
    site.install("nanomem-bad", "bad", "raise ImportError('no such library')")
    with pytest.raises(UnknownComponentError) as caught:
        discover("good", "bad").find("embedder", "lenght")
    text = str(caught.value)
    assert "no embedder named 'lenght' is offered; did you mean 'length'?" in text
    assert "not loaded: bad" in text
    assert isinstance(caught.value, LookupError)
    assert isinstance(caught.value.__cause__, ImportError)


@pytest.mark.parametrize("name", ["bad-store", "bad_store"])
def test_asking_for_a_failed_plugins_component_raises_its_error_chained(site: Site, name: str) -> None:
    site.install("nanomem-bad", "bad-store", "raise ImportError('no such library')")
    manager = discover("bad-store")
    for _ in range(2):
        with pytest.raises(PluginLoadError, match=r"nanomem-bad 1.0\) failed: ImportError: no such library") as caught:
            manager.build("storage", name)
        assert isinstance(caught.value.__cause__, ImportError)
        assert caught.value.plugin == "bad-store"


def test_a_plugin_that_fails_to_offer_its_components_has_failed(site: Site) -> None:
    site.install("nanomem-late", "late", "def nanomem_register_storage():\n    import no_such_library")
    site.install("nanomem-good", "good", GOOD)
    manager = discover("late", "good")
    assert only(manager, "late").state == "loaded"
    assert manager.classes("storage") == []
    assert "nanomem_register_storage: ModuleNotFoundError" in only(manager, "late").detail
    with pytest.raises(PluginLoadError):
        manager.find("storage", "late")
    assert manager.find("embedder", "length").plugin == "good"


# Classes that are imported when they are chosen.

DEFERS = """
from nanomem_core.hookspecs import Deferred
def nanomem_register_embedder():
    return [Deferred("length", "{location}")]
"""
LENGTH = "tests.core.registry.parts:LengthEmbedder"


def test_a_deferred_class_is_imported_when_its_name_is_asked_for(site: Site) -> None:
    module = site.install("nanomem-heavy", "unused", GOOD)
    site.install("nanomem-far", "far", DEFERS.format(location=f"{module}:LengthEmbedder"))
    site.install("nanomem-good", "good", OFFERS.format(cls="FileTagger").replace("embedder", "tagger"))
    manager = discover("far", "good")
    assert manager.find("tagger", "file").cls is FileTagger
    with pytest.raises(UnknownComponentError, match="offered: length"):
        manager.find("embedder", "width")
    assert module not in sys.modules
    assert manager.find("embedder", "length").cls is LengthEmbedder
    assert isinstance(manager.build("embedder", {"use": "length", "dim": 3}), LengthEmbedder)
    assert module in sys.modules


def test_a_deferred_class_that_can_not_be_imported_fails_its_plugin_and_the_error_is_chained(site: Site) -> None:
    module = site.install("nanomem-heavy", "unused", "raise ImportError('no such library')")
    site.install("nanomem-far", "far", DEFERS.format(location=f"{module}:LengthEmbedder"))
    manager = discover("far")
    assert only(manager, "far").state == "loaded"
    for _ in range(2):
        with pytest.raises(
            PluginLoadError, match=r"embedder 'length' can't be used: plugin 'far' .*no such lib"
        ) as caught:
            manager.build("embedder", "length")
        assert isinstance(caught.value.__cause__, ImportError)
    assert only(manager, "far").state == "failed"
    assert manager.classes("embedder") == []


def test_a_deferred_class_that_fails_is_a_problem_before_anybody_asks_for_it(site: Site) -> None:
    site.install("nanomem-far", "far", DEFERS.format(location="tests.core.registry.parts:Absent"))
    [problem] = discover("far").problems()
    assert "embedder 'length': AttributeError" in problem
    strict = discover("far", strict=True)
    with pytest.raises(PluginLoadError, match="Absent"):
        strict.find("embedder", "length")


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("tests.core.registry.parts:FileTagger", "expected subclasses of Embedder; found"),
        (
            "tests.core.registry.parts:WideEmbedder",
            "expected the name 'length', as it was offered; found 'wide'",
        ),
        ("tests.core.registry.parts", "expected Deferred(name, 'module:Class'); found Deferred(name='length'"),
        (":LengthEmbedder", "expected Deferred(name, 'module:Class'); found Deferred(name='length'"),
    ],
)
def test_what_is_deferred_must_be_a_component_of_that_kind_and_name(site: Site, location: str, reason: str) -> None:
    site.install("nanomem-far", "far", DEFERS.format(location=location))
    manager = discover("far")
    assert manager.classes("embedder") == []
    assert reason in only(manager, "far").detail


def test_two_plugins_that_defer_one_name_clash_unless_it_is_one_class(site: Site) -> None:
    site.install("nanomem-a", "a", DEFERS.format(location=LENGTH))
    site.install("nanomem-b", "b", DEFERS.format(location="tests.core.registry.parts:OtherLengthEmbedder"))
    site.install("nanomem-c", "c", DEFERS.format(location=LENGTH))
    assert discover("a", "c").find("embedder", "length").cls is LengthEmbedder
    with pytest.raises(DuplicateComponentError, match=r"'a' of nanomem-a 1.0 and plugin 'b' of nanomem-b 1.0"):
        discover("a", "b").find("embedder", "length")


@pytest.mark.parametrize(
    ("offered", "reason"),
    [
        ("[3]", "expected subclasses of Embedder; found 3"),
        ("[FileTagger]", "expected subclasses of Embedder; found"),
        ("[type('Nameless', (LengthEmbedder,), {'name': ''})]", "Nameless.name: expected the text"),
        ("[LengthEmbedder, Abstract]", "Abstract does not implement encode"),
        ("LengthEmbedder", "TypeError"),
        ("None", "TypeError"),
    ],
)
def test_what_is_no_component_class_is_refused(site: Site, offered: str, reason: str) -> None:
    source = f"""
        from nanomem_core.interfaces import Embedder
        from tests.core.registry.parts import FileTagger, LengthEmbedder
        class Abstract(Embedder):
            name, id, dim = "abstract", "abstract-1", 2
        def nanomem_register_embedder():
            return {offered}
    """
    site.install("nanomem-odd", "odd", source)
    manager = discover("odd")
    assert manager.classes("embedder") == []
    assert reason in only(manager, "odd").detail


def test_two_plugins_with_one_component_name_are_an_error_that_names_both_distributions(site: Site) -> None:
    site.install("nanomem-a", "a", GOOD)
    site.install("nanomem-b", "b", OTHER)
    manager = discover("a", "b")
    with pytest.raises(DuplicateComponentError, match=r"'a' of nanomem-a 1.0 and plugin 'b' of nanomem-b 1.0"):
        manager.build("embedder", "length")
    [problem] = manager.problems()
    assert "nanomem-a" in problem
    assert "nanomem-b" in problem
    assert [offer.cls for offer in manager.classes("embedder")] == [LengthEmbedder, OtherLengthEmbedder]


def test_one_class_that_two_plugins_offer_is_no_clash(site: Site) -> None:
    site.install("nanomem-a", "a", GOOD)
    site.install("nanomem-b", "b", GOOD)
    manager = discover("a", "b")
    assert manager.find("embedder", "length").cls is LengthEmbedder
    assert manager.problems() == []


def test_a_plugin_of_the_application_overrides_an_installed_one(site: Site) -> None:
    site.install("nanomem-good", "good", GOOD)
    for early in (True, False):
        manager = discover("good")
        if not early:
            assert manager.find("embedder", "length").cls is LengthEmbedder
        manager.register(OtherLengths())
        assert manager.find("embedder", "length").cls is OtherLengthEmbedder
        assert manager.find("embedder", "length").distribution is None
        assert manager.problems() == []


def test_of_two_plugins_of_the_application_the_later_counts() -> None:
    manager = PluginManager()
    manager.register(OtherLengths())
    manager.register(Lengths())
    assert manager.find("embedder", "length").cls is LengthEmbedder


def test_threads_load_a_plugin_once(site: Site) -> None:
    site.install("nanomem-good", "good", GOOD)
    manager = discover("good")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: manager.find("embedder", "length").cls, range(32)))
    assert found == [LengthEmbedder] * 32
    assert only(manager, "good").state == "loaded"


def test_two_managers_share_nothing() -> None:
    one, other = PluginManager(), PluginManager()
    one.register(Lengths())
    assert other.classes("embedder") == []
    assert other.statuses == []


def test_an_unknown_kind_is_an_input_error_that_lists_the_kinds() -> None:
    with pytest.raises(InputError, match="did you mean 'embedder'") as caught:
        PluginManager().classes("embeder")
    assert all(kind in str(caught.value) for kind in KINDS)


# Registering.


def test_registering_returns_a_name_of_its_own_for_each() -> None:
    manager = PluginManager()
    assert [manager.register(Lengths()), manager.register(Lengths), manager.register(Lengths(), "third")] == [
        "Lengths",
        "Lengths-2",
        "third",
    ]
    assert [status.name for status in manager.statuses] == ["Lengths", "Lengths-2", "third"]
    assert {status.state for status in manager.statuses} == {"loaded"}


def test_a_name_that_is_taken_is_refused(site: Site) -> None:
    site.install("nanomem-good", "good", GOOD)
    manager = discover("good")
    with pytest.raises(PluginError, match="'good' is known already"):
        manager.register(Lengths(), "good")


def test_one_object_can_not_be_registered_twice() -> None:
    manager, plugin = PluginManager(), Lengths()
    manager.register(plugin)
    with pytest.raises(PluginError, match="registered already"):
        manager.register(plugin, "again")


@pytest.mark.parametrize("thing", [3, print, LengthEmbedder, None])
def test_what_can_not_be_a_plugin_is_refused(thing: object) -> None:
    with pytest.raises(PluginError, match="a plugin is a module"):
        PluginManager().register(thing)


# Building.


@pytest.mark.parametrize(
    "spec",
    [
        "length",
        {"use": "length"},
        {"use": "length", "dim": 5},
        LengthEmbedder,
        {"use": LengthEmbedder, "dim": "5"},
    ],
)
def test_a_component_is_built_from_a_name_a_mapping_or_a_class(spec: Any) -> None:
    manager = PluginManager()
    manager.register(Lengths())
    built = manager.build("embedder", spec)
    assert type(built) is LengthEmbedder
    assert built.dim == (5 if isinstance(spec, dict) and "dim" in spec else 2)


def test_an_instance_is_returned_as_it_is() -> None:
    instance = LengthEmbedder()
    assert PluginManager().build("embedder", instance) is instance


@pytest.mark.parametrize("spec", [3, None, {"dim": 3}, {"use": 3}, FileTagger, FileTagger(), {"use": FileTagger}])
def test_what_describes_no_component_of_the_kind_is_an_input_error(spec: Any) -> None:
    with pytest.raises(InputError, match="embedder: expected a name"):
        PluginManager().build("embedder", spec)


def test_what_a_wrong_description_holds_is_not_shown() -> None:
    with pytest.raises(InputError) as caught:
        PluginManager().build("embedder", {"uses": "length", "api_key": "s3cret"})
    assert "found a mapping of uses, api_key" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_wrong_option_is_a_config_error_with_its_dotted_key() -> None:
    with pytest.raises(ConfigError, match=r"embedder 'length' has no option 'dimm'; did you mean 'dim'\?") as caught:
        PluginManager().build("embedder", {"use": LengthEmbedder, "dimm": 3})
    assert caught.value.key == "embedder.dimm"


def test_what_a_constructor_refuses_has_the_dotted_key_of_its_option() -> None:
    class Narrow(LengthEmbedder):
        def __init__(self, dim: int = 2) -> None:
            raise ConfigError("dim: expected a smaller one", key="dim")

    class Made(LengthEmbedder):
        def __init__(self) -> None:
            PluginManager().build("embedder", Narrow)

    for cls in (Narrow, Made):
        with pytest.raises(ConfigError, match="dim: expected a smaller one") as caught:
            PluginManager().build("embedder", cls)
        assert caught.value.key == "embedder.dim"


def test_an_option_that_the_constructor_refuses_is_a_config_error() -> None:
    class Picky(LengthEmbedder):
        def __init__(self, dim: int = 2) -> None:
            if dim < 2:
                raise ValueError("dim must be 2 or more")
            super().__init__(dim)

    with pytest.raises(ConfigError, match="embedder 'length' could not be built: ValueError: dim must be 2 or more"):
        PluginManager().build("embedder", {"use": Picky, "dim": 1})


def test_a_hook_that_builds_something_else_is_an_error() -> None:
    class Builder(Plugin):
        def nanomem_build(self, kind: str, cls: type[Component], options: Mapping[str, Any]) -> Component:
            return FileTagger()

    manager = PluginManager()
    manager.register(Builder())
    with pytest.raises(PluginError, match="nanomem_build for embedder 'length': expected an instance of Embedder"):
        manager.build("embedder", LengthEmbedder)


def test_relative_paths_among_the_options_start_from_the_data_dir(tmp_path: Path) -> None:
    manager = PluginManager()
    for spec, path in [
        (FileTagger, tmp_path / "words.txt"),
        ({"use": FileTagger, "path": "a/b"}, tmp_path / "a" / "b"),
        ({"use": FileTagger, "path": str(tmp_path / "c")}, tmp_path / "c"),
    ]:
        tagger = manager.build("tagger", spec, data_dir=tmp_path)
        assert isinstance(tagger, Tagger)
        assert tagger.path == path
    assert manager.build("tagger", FileTagger).path == Path("words.txt")


# Telling.


class Refuses(Plugin):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def nanomem_before_commit(self, changes: Sequence[Change]) -> None:
        raise self.error


def test_a_veto_passes_through() -> None:
    manager = PluginManager()
    manager.register(Refuses(VetoError("not this")))
    with pytest.raises(VetoError, match="not this"):
        manager.before_commit(Scope(), [])


def test_a_plugin_that_fails_before_a_commit_stops_it_and_is_named() -> None:
    manager = PluginManager()
    manager.register(Refuses(KeyError("x")), "redaction")
    with pytest.raises(PluginError, match="plugin 'redaction' failed in nanomem_before_commit: KeyError") as caught:
        manager.before_commit(Scope(), [])
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("result", [["a record"], 3])
def test_what_is_no_list_of_changes_stops_the_commit(result: Any) -> None:
    class Odd(Plugin):
        def nanomem_before_commit(self, changes: Sequence[Change]) -> Any:
            return result

    manager = PluginManager()
    manager.register(Odd())
    with pytest.raises(PluginError, match="'Odd'"):
        manager.before_commit(Scope(), [])


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_listener_that_raises_is_logged_by_name_and_disturbs_nobody(
    position: int, caplog: pytest.LogCaptureFixture
) -> None:
    seen = []

    class Listens(Plugin):
        def nanomem_committed(self, commit: Commit) -> None:
            seen.append("committed")

        def nanomem_searched(self, query: str) -> None:
            seen.append("searched")

    class Fails(Plugin):
        def nanomem_committed(self, commit: Commit) -> None:
            raise RuntimeError("no network")

        def nanomem_searched(self, query: str) -> None:
            sys.exit("no network")

    plugins: list[Plugin] = [Listens(), Listens()]
    plugins.insert(position, Fails())
    manager = PluginManager()
    for plugin in plugins:
        manager.register(plugin)
    with caplog.at_level(logging.ERROR, logger="nanomem"):
        manager.committed(COMMIT)
        manager.searched(Scope(), "tea", [])
    assert seen == ["committed", "committed", "searched", "searched"]
    assert [record.message for record in caplog.records] == [
        "plugin 'Fails' failed in nanomem_committed: RuntimeError: no network",
        "plugin 'Fails' failed in nanomem_searched: SystemExit: no network",
    ]
    assert all(record.exc_info for record in caplog.records)


def test_installed_plugins_come_before_the_applications_whenever_they_are_loaded(site: Site) -> None:
    source = """
        from nanomem_core import Delete
        def nanomem_before_commit(changes):
            return [*changes, Delete("installed")]
    """
    site.install("nanomem-chain", "chain", source)

    class Counts(Plugin):
        def nanomem_before_commit(self, changes: Sequence[Change]) -> None:
            assert [getattr(change, "id", None) for change in changes] == ["installed"]

    for load_first in (True, False):
        manager = discover("chain")
        if load_first:
            manager.load()
        manager.register(Counts())
        assert len(manager.before_commit(Scope(), [])) == 1


def test_a_hook_error_is_raised_at_once_for_the_application(site: Site) -> None:
    class Misspelt(Plugin):
        def nanomem_serched(self, query: str) -> None: ...

    module = site.install("nanomem-good", "good", GOOD)
    with pytest.raises(HookError, match="did you mean 'nanomem_searched'"):
        discover("good").register(Misspelt())
    assert module not in sys.modules
