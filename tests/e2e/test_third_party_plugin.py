"""A third-party distribution, built and installed like any other, gives a plugin; a broken one takes nothing away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nanomem_core.cli import COMMANDS

from .conftest import Environment

pytestmark = pytest.mark.e2e

SHELF = """
    from __future__ import annotations

    import os

    from nanomem_core.hookspecs import hookimpl
    from nanomem_core.interfaces import Embedder

    class VowelEmbedder(Embedder):
        name = "vowels"

        def __init__(self, weight: float = 1.0, path: str | os.PathLike[str] = "vowels.txt") -> None:
            self.weight = weight
            self.path = path
            self.id = f"vowels-{weight}"
            self.dim = 5

        id = ""
        dim = 0

        def encode(self, texts):
            return [[text.count(vowel) * self.weight + 1.0 for vowel in "aeiou"] for text in texts]

    @hookimpl
    def nanomem_register_embedder():
        return [VowelEmbedder]
"""


@pytest.fixture(scope="module")
def shelf(environment: Environment) -> Environment:
    environment.pip_install(environment.distribution("nanomem-vowels", "vowels", SHELF))
    return environment


def test_the_wheel_is_what_is_used(shelf: Environment) -> None:
    found = shelf.run_python(
        "import nanomem_core, nanomem_plugins; print(nanomem_core.__file__, nanomem_plugins.__file__)"
    )
    assert [Path(path).parent.parent for path in found.split()] == [shelf.site, shelf.site]


def test_the_plugin_is_listed_with_its_distribution(shelf: Environment) -> None:
    done = shelf.run(shelf.nanomem, "plugins", "list", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    [row] = [row for row in json.loads(done.stdout) if row["name"] == "vowels"]
    assert row == {
        "name": "vowels",
        "distribution": "nanomem-vowels",
        "version": "0.3",
        "state": "loaded",
        "detail": "",
        "components": {"embedder": ["vowels"]},
    }


def test_the_plugin_differs_from_a_bundled_one_in_nothing(shelf: Environment) -> None:
    rows = json.loads(shelf.run(shelf.nanomem, "plugins", "list", "--json").stdout)
    assert {row["distribution"] for row in rows} >= {"nanomem-core", "nanomem-vowels"}
    assert {tuple(row) for row in rows} == {("name", "distribution", "version", "state", "detail", "components")}


def test_its_component_is_used_by_name_with_options_from_the_environment(shelf: Environment) -> None:
    code = """
        from nanomem_core import PluginManager
        from nanomem_core.config.sources import load_settings
        settings = load_settings().settings
        plugins = PluginManager.discover(settings.plugins)
        with plugins.build("embedder", settings.embedder, data_dir=settings.data_dir) as embedder:
            print(embedder.id, embedder.path == settings.data_dir / "vowels.txt", embedder.embed("aei").shape)
    """
    environ = {"NANOMEM_EMBEDDER": "vowels", "NANOMEM_EMBEDDER__WEIGHT": "2.5"}
    assert shelf.run_python(code, **environ) == "vowels-2.5 True (5,)\n"


def test_its_component_is_used_as_an_instance(shelf: Environment) -> None:
    code = """
        from nanomem_core import PluginManager
        from nanomem_vowels import VowelEmbedder
        embedder = VowelEmbedder(3.0)
        print(PluginManager.discover().build("embedder", embedder) is embedder)
    """
    assert shelf.run_python(code) == "True\n"


def test_a_subclassed_hook_of_the_application_works_beside_it(shelf: Environment) -> None:
    code = """
        from nanomem_core import Plugin, PluginManager, hookimpl
        from nanomem_vowels import VowelEmbedder

        class House(Plugin):
            @hookimpl(wrapper=True)
            def nanomem_build(self, kind, cls):
                component = yield
                print("built", kind, cls.name)
                return component

            def nanomem_register_embedder(self):
                class Louder(VowelEmbedder):
                    name = "vowels"
                return [Louder]

        plugins = PluginManager.discover()
        plugins.register(House())
        print(type(plugins.build("embedder", "vowels")).__name__)
        print(type(PluginManager.discover().build("embedder", "vowels")).__name__)
    """
    assert shelf.run_python(code) == "built embedder vowels\nLouder\nVowelEmbedder\n"


# Broken distributions.

BROKEN = {
    "bad-import": ("raise ImportError('no such library')", "", "ImportError: no such library"),
    "bad-attr": ("", "nanomem_bad_attr:missing", "AttributeError"),
    "bad-hook": ("def nanomem_comitted(commit): ...", "", "did you mean 'nanomem_committed'?"),
}
SLOW = "import time; print('slow-heavy is imported'); time.sleep(0.5)"


@pytest.fixture(scope="module")
def broken(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made = Environment(tmp_path_factory.mktemp("broken"))
    trees = [
        made.distribution(f"nanomem-{name}", name, source, entry=entry) for name, (source, entry, _) in BROKEN.items()
    ]
    made.pip_install(wheel, *trees, made.distribution("nanomem-slow-heavy", "slow-heavy", SLOW))
    return made


def check_lines(stderr: str) -> None:
    """One line for each plugin that failed, with distribution, entry point and cause, beside what a plugin printed."""
    lines = [line for line in stderr.splitlines() if line != "slow-heavy is imported"]
    assert len(lines) == len(BROKEN), stderr
    for name, (_, _, cause) in BROKEN.items():
        [line] = [line for line in lines if f"nanomem-{name} 0.3" in line]
        assert f"'{name}'" in line
        assert cause in line


QUIET = [["--help"], ["--version"]]
LOUD = [["plugins", "list", "--json"], ["add", "x"], ["search", "x"]]


def command_exists(arguments: list[str]) -> None:
    if arguments[0] not in COMMANDS and not arguments[0].startswith("--"):
        pytest.skip(f"there is no command {arguments[0]!r} yet")


@pytest.mark.parametrize("environ", [{}, {"NANOMEM_PLUGINS__STRICT": "1"}, {"NANOMEM_PLUGINS__LOAD": ""}], ids=str)
@pytest.mark.parametrize("arguments", QUIET, ids=" ".join)
def test_help_and_version_import_no_plugin_whatever_is_installed(
    arguments: list[str], environ: dict[str, str], broken: Environment
) -> None:
    done = broken.run(broken.nanomem, *arguments, **environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert "slow-heavy is imported" not in done.stdout


@pytest.mark.parametrize("arguments", LOUD, ids=" ".join)
def test_a_broken_plugin_costs_one_line_and_everything_else_works(arguments: list[str], broken: Environment) -> None:
    command_exists(arguments)
    if arguments[0] == "search":
        broken.run(broken.nanomem, "add", "x")
    done = broken.run(broken.nanomem, *arguments)
    assert done.returncode == 0, done.stderr
    assert "slow-heavy is imported" not in done.stdout
    check_lines(done.stderr)
    if arguments[0] == "plugins":
        states = {row["name"]: row for row in json.loads(done.stdout)}
        assert {name for name, row in states.items() if row["state"] == "failed"} == set(BROKEN)
        assert states["slow-heavy"]["state"] == "loaded"
        for name, (_, _, cause) in BROKEN.items():
            assert cause in states[name]["detail"]


@pytest.mark.parametrize("arguments", LOUD, ids=" ".join)
def test_strict_settings_make_every_failure_fatal_and_name_the_same(arguments: list[str], broken: Environment) -> None:
    command_exists(arguments)
    done = broken.run(broken.nanomem, *arguments, NANOMEM_PLUGINS__STRICT="1")
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if "0.3" in line]
    check_lines("\n".join(lines))


def test_no_plugin_is_loaded_from_an_empty_list_and_nothing_is_said(broken: Environment) -> None:
    done = broken.run(broken.nanomem, "plugins", "list", "--json", NANOMEM_PLUGINS__LOAD="")
    assert (done.returncode, done.stderr) == (0, "")
    assert {row["state"] for row in json.loads(done.stdout)} == {"disabled"}


@pytest.mark.parametrize("arguments", LOUD[1:], ids=" ".join)
def test_without_any_plugin_a_memory_is_one_clear_error(arguments: list[str], broken: Environment) -> None:
    command_exists(arguments)
    done = broken.run(broken.nanomem, *arguments, NANOMEM_PLUGINS__LOAD="")
    assert (done.returncode, done.stdout) == (1, "")
    assert "plugins.load does not name it" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", BROKEN)
def test_asking_for_the_store_of_a_broken_plugin_raises_its_error(name: str, broken: Environment) -> None:
    code = f"""
        from nanomem_core import PluginManager
        from nanomem_core.errors import PluginLoadError
        try:
            PluginManager.discover().build("storage", {name!r})
        except PluginLoadError as error:
            print(type(error.__cause__).__name__, "|", error)
    """
    cause, _, message = broken.run_python(code).splitlines()[-1].partition(" | ")
    assert cause in ("ImportError", "AttributeError", "HookError")
    assert f"nanomem-{name} 0.3" in message
    assert BROKEN[name][2] in message
