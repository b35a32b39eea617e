"""Where settings come from, which source counts, and how mistakes are told."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nanomem_core.config.files import user_file
from nanomem_core.config.sources import PRECEDENCE, LoadedSettings, load_settings, settings_files
from nanomem_core.errors import ConfigError


class Place:
    """A folder to run in, with a user file and an environment of its own."""

    def __init__(self, folder: Path) -> None:
        self.cwd = folder / "cwd"
        self.cwd.mkdir()
        self.project = self.cwd / "nanomem.yaml"
        self.user = folder / "user.yaml"

    def load(self, path: Path | str | None = None, **sources: Any) -> LoadedSettings:
        environ = {"NANOMEM_CONFIG": str(self.user) if self.user.exists() else ""} | sources.pop("environ", {})
        return load_settings(path, environ=environ, cwd=self.cwd, **sources)

    def refused(self, text: str, **environ: str) -> ConfigError:
        self.project.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            self.load(environ=environ)
        return caught.value


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def at(settings: Any, key: str) -> Any:
    for part in key.split("."):
        settings = settings[part] if isinstance(settings, Mapping) else getattr(settings, part)
    return settings


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"storage": "jsonl"},
        {"storage": {"use": "arena", "path": "x.dat"}, "embedder": {"use": "ollama", "api_key": "s"}},
        {"generator": "ollama", "segmenter": {"use": "batch"}, "data_dir": "m"},
        {"generator": None},
    ],
)
def test_components_are_checked_alike_whether_other_settings_are_validated_or_not(
    place: Place, given: dict[str, Any]
) -> None:
    quick = place.load(arguments=given)
    full = place.load(arguments=given | {"search": {"top_k": 3}})
    assert quick.settings == full.settings
    assert repr(quick.settings) == repr(full.settings)
    assert quick.origins == full.origins | {"search.top_k": "default"}


@pytest.mark.parametrize("given", [{"storage": None}, {"embedder": None}, {"segmenter": {"use": 3}}, {"data_dir": 3}])
def test_a_wrong_component_is_refused_though_nothing_else_is_set(place: Place, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        place.load(arguments=given)
    assert str(caught.value.key).partition(".")[0] in given


# Which source counts.

SOURCES = ("arguments", "command_line", "environment", "project", "user", "default")


def set_in(place: Place, source: str, key: str, value: Any) -> dict[str, Any]:
    """Set one value in one source; the keyword arguments of `Place.load` that this takes."""
    if source in ("arguments", "command_line"):
        return {source: nested(key, value)}
    if source == "environment":
        return {"environ": {"NANOMEM_" + key.upper().replace(".", "__"): str(value)}}
    if source in ("project", "user"):
        outer, inner = key.split(".")
        file = place.project if source == "project" else place.user
        file.write_text(f"{outer}:\n  {inner}: {value}\n", encoding="utf-8")
    return {}


def test_there_is_one_order_of_all_sources() -> None:
    assert len(PRECEDENCE) == len(SOURCES)


@pytest.mark.parametrize(("key", "values"), [("search.top_k", range(11, 16)), ("storage.path", "abcde")])
@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(range(6), 2)))
def test_an_earlier_source_counts_before_a_later_one(
    place: Place, first: int, second: int, key: str, values: Any
) -> None:
    given: dict[str, Any] = {}
    for index in (second, first):
        if SOURCES[index] != "default":
            given |= set_in(place, SOURCES[index], key, values[index])
    loaded = place.load(**given)
    assert at(loaded.settings, key) == values[first]
    origin = loaded.origins[key]
    expected = {
        "arguments": "call argument",
        "command_line": "command line",
        "environment": "environment variable NANOMEM_" + key.upper().replace(".", "__"),
        "project": f"{place.project}, line 2",
        "user": f"{place.user}, line 2",
    }
    assert origin == expected[SOURCES[first]]


def test_without_any_source_the_defaults_stand(place: Place) -> None:
    loaded = place.load()
    settings = loaded.settings
    assert settings.data_dir == place.cwd
    assert settings.storage == {"use": "arena", "path": "memory.dat"}
    assert settings.embedder == {"use": "lexical"}
    assert (settings.segmenter, settings.generator) == (None, None)
    assert settings.taggers == ({"use": "keyword"},)
    assert (settings.search.mode, settings.search.top_k, settings.search.language) == ("hybrid", 3, "english")
    assert (settings.plugins.load, settings.plugins.disable, settings.plugins.strict) == (None, (), False)
    assert set(loaded.origins.values()) == {"default"}


def test_every_value_has_an_origin(place: Place) -> None:
    place.project.write_text("generator: {use: openai, headers: {a: b}, none: {}}", encoding="utf-8")
    loaded = place.load()
    assert {key for key in loaded.origins if key.startswith("generator")} == {
        "generator.use",
        "generator.headers.a",
        "generator.none",
    }
    for key in loaded.origins:
        at(loaded.settings, key)


# Components.


def test_options_of_one_component_come_together_from_all_sources(place: Place) -> None:
    place.user.write_text("storage: {use: jsonl, root: a, sync: true}", encoding="utf-8")
    place.project.write_text("storage: {root: b}", encoding="utf-8")
    loaded = place.load(environ={"NANOMEM_STORAGE__MODE": "c"}, arguments={"storage": {"use": "jsonl", "size": 1}})
    assert loaded.settings.storage == {"use": "jsonl", "root": "b", "sync": True, "mode": "c", "size": 1}


@pytest.mark.parametrize("form", ["jsonl", {"use": "jsonl"}])
def test_a_source_that_changes_the_component_starts_its_options_afresh(place: Place, form: Any) -> None:
    place.project.write_text("storage: {path: own.dat, durability: os}", encoding="utf-8")
    loaded = place.load(arguments={"storage": form})
    assert loaded.settings.storage == {"use": "jsonl"}
    assert [key for key in loaded.origins if key.startswith("storage")] == ["storage.use"]


def test_naming_the_same_component_again_keeps_its_options(place: Place) -> None:
    place.project.write_text("storage: {path: own.dat}", encoding="utf-8")
    assert place.load(arguments={"storage": "arena"}).settings.storage == {"use": "arena", "path": "own.dat"}


def test_none_takes_a_component_away_and_a_name_brings_one(place: Place) -> None:
    place.user.write_text("generator: {use: openai, model: x}", encoding="utf-8")
    assert place.load().settings.generator == {"use": "openai", "model": "x"}
    place.project.write_text("generator: null", encoding="utf-8")
    assert place.load().settings.generator is None
    assert place.load(environ={"NANOMEM_GENERATOR": "ollama"}).settings.generator == {"use": "ollama"}
    place.project.unlink()
    assert place.load(environ={"NANOMEM_GENERATOR": ""}).settings.generator is None


def test_an_empty_group_sets_nothing(place: Place) -> None:
    place.user.write_text("search: {top_k: 9}\nstorage: {path: x}", encoding="utf-8")
    place.project.write_text("search: {}\nstorage: {}", encoding="utf-8")
    settings = place.load().settings
    assert settings.search.top_k == 9
    assert settings.storage["path"] == "x"


def test_options_without_a_component_are_refused(place: Place) -> None:
    error = place.refused("generator: {model: x}")
    assert "expected the name of a component, or a mapping with `use`" in str(error)
    assert error.source == f"{place.project}, line 1"
    assert error.key == "generator.model"


# The environment.


def test_lists_in_the_environment_are_separated_by_commas(place: Place) -> None:
    environ = {"NANOMEM_PLUGINS__LOAD": "arena, lexical", "NANOMEM_TAGGERS": "keyword,colour"}
    settings = place.load(environ=environ).settings
    assert settings.plugins.load == ("arena", "lexical")
    assert settings.taggers == ({"use": "keyword"}, {"use": "colour"})


def test_an_empty_list_in_the_environment_is_an_empty_list(place: Place) -> None:
    environ = {"NANOMEM_PLUGINS__LOAD": "", "NANOMEM_TAGGERS": "", "NANOMEM_PLUGINS__STRICT": "1"}
    settings = place.load(environ=environ).settings
    assert settings.plugins.load == ()
    assert settings.taggers == ()
    assert settings.plugins.strict is True


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("NANOMEM_STORGE__PATH", "no setting 'storge'; did you mean 'storage'?"),
        ("NANOMEM_SEARCH__TOPK", "no setting 'search.topk'; did you mean 'top_k'?"),
        ("NANOMEM_STORGE", "no setting 'storge'; did you mean 'storage'?"),
        ("NANOMEM_STRICT_PLUGINS", "no setting 'strict_plugins'; did you mean 'plugins'?"),
        ("NANOMEM_XYZ__ABC", "no setting 'xyz'"),
    ],
)
def test_a_variable_that_is_nearly_a_setting_is_refused(place: Place, variable: str, hint: str) -> None:
    error = place.refused("", **{variable: "x"})
    assert hint in str(error)
    assert error.source == f"environment variable {variable}"


@pytest.mark.parametrize("variable", ["NANOMEM_FULL", "NANOMEM_", "OTHER_STORAGE__PATH", "nanomem_storage"])
def test_other_variables_are_left_to_whom_they_belong(place: Place, variable: str) -> None:
    if os.name == "nt" and variable.islower():
        pytest.skip("variables have no case on Windows")
    assert set(place.load(environ={variable: "x"}).origins.values()) == {"default"}


def test_the_environment_of_the_process_is_read_by_default(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NANOMEM_CONFIG", "")
    monkeypatch.setenv("NANOMEM_SEARCH__TOP_K", "8")
    monkeypatch.chdir(place.cwd)
    loaded = load_settings()
    assert loaded.settings.search.top_k == 8
    assert loaded.settings.data_dir == Path.cwd()


# Files.


def test_a_file_that_is_named_takes_the_place_of_the_project_file(place: Place) -> None:
    place.project.write_text("search: {top_k: 4}", encoding="utf-8")
    other = place.cwd / "other.yaml"
    other.write_text("search: {mode: text}", encoding="utf-8")
    settings = place.load("other.yaml").settings
    assert (settings.search.top_k, settings.search.mode) == (3, "text")


def test_a_file_that_is_named_must_exist(place: Place) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml can't be read"):
        place.load("absent.yaml")
    with pytest.raises(ConfigError, match=r"absent\.yaml can't be read"):
        place.load(environ={"NANOMEM_CONFIG": str(place.cwd / "absent.yaml")})


def test_a_relative_data_dir_in_a_file_starts_from_the_file(place: Place, tmp_path: Path) -> None:
    place.user.write_text("data_dir: memories", encoding="utf-8")
    assert place.load().settings.data_dir == tmp_path / "memories"
    assert place.load(arguments={"data_dir": "here"}).settings.data_dir == place.cwd / "here"
    assert place.load(environ={"NANOMEM_DATA_DIR": "~/m"}).settings.data_dir == Path.home() / "m"


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_a_file_without_settings_sets_nothing(place: Place, text: str) -> None:
    place.project.write_text(text, encoding="utf-8")
    assert set(place.load().origins.values()) == {"default"}


def test_anchors_and_merge_keys_are_followed(place: Place) -> None:
    text = "storage: &s {use: jsonl, root: a}\ngenerator: {<<: *s, root: b}\n"
    place.project.write_text(text, encoding="utf-8")
    assert place.load().settings.generator == {"use": "jsonl", "root": "b"}


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a: [", 1, "no valid YAML: "),
        ("search:\n\ttop_k: 3", 2, "no valid YAML: found character '\\t'"),
        ("search: {top_k: 3}\nstorage: !!python/object:os.system {}\n", 2, "no valid YAML: "),
        ("- a\n- b", 1, "expected a mapping of settings"),
        ("just text", 1, "expected a mapping of settings"),
        ("search:\n  1: 2", 2, "expected a text as a key; found 1"),
        ("? [a]\n: 3", 1, "expected a text as a key; found ['a']"),
        ("storage: a\nsearch: {}\nstorage: b", 3, "'storage' is given twice"),
        ("search:\n  mode: text\n  top_k: 3\n  mode: text", 4, "'search.mode' is given twice"),
        ("storage: arena\nembeder: x", 2, "there is no setting 'embeder'; did you mean 'embedder'?"),
        ("search:\n  topk: 3", 2, "there is no setting 'search.topk'; did you mean 'top_k'?"),
        ("search:\n  top_k: many", 2, "valid integer, unable to parse string as an integer; found 'many'"),
        ("search:\n  top_k: 0", 2, "greater than or equal to 1; found 0"),
        ("search:\n  mode: fast", 2, "'vector', 'text' or 'hybrid'; found 'fast'"),
        ("\nsearch: text", 2, "setting search: "),
        ("storage: 3", 1, "setting storage: expected the name of a component"),
        ("taggers: [{us: x}]", 1, "setting taggers: expected the name of a component"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_line(place: Place, text: str, line: int, reason: str) -> None:
    error = place.refused(text)
    assert reason in str(error)
    assert f"{place.project}, line {line}" in str(error)
    assert isinstance(error, ValueError)


def test_a_file_that_is_no_text_is_refused(place: Place) -> None:
    for content in (b"\xff\xfe\x00", b"a: \x00"):
        place.project.write_bytes(content)
        with pytest.raises(ConfigError, match=r"nanomem\.yaml"):
            place.load()


def test_the_files_that_are_read_can_be_asked_for(place: Place, tmp_path: Path) -> None:
    files = settings_files(environ={"NANOMEM_CONFIG": str(place.user)}, cwd=place.cwd)
    assert files == {"project": place.project, "user": place.user}
    assert settings_files("x.yaml", environ={"NANOMEM_CONFIG": ""}, cwd=tmp_path) == {
        "project": tmp_path / "x.yaml",
        "user": None,
    }


@pytest.mark.skipif(os.name == "nt" or sys.platform == "darwin", reason="the layout of Linux and the BSDs")
def test_the_user_file_is_where_the_platform_keeps_settings() -> None:
    assert user_file({"HOME": "/home/ann"}) == Path("/home/ann/.config/nanomem/config.yaml")
    assert user_file({"HOME": "/home/ann", "XDG_CONFIG_HOME": "/c"}) == Path("/c/nanomem/config.yaml")
    assert user_file({}) is None


@pytest.mark.skipif(os.name != "nt", reason="the layout of Windows")
def test_the_user_file_of_windows_is_in_appdata() -> None:
    assert user_file({"APPDATA": r"C:\a"}) == Path(r"C:\a\nanomem\config.yaml")
    assert user_file({"USERPROFILE": r"C:\u"}) == Path(r"C:\u\AppData\Roaming\nanomem\config.yaml")
