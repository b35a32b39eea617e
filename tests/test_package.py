"""The package as a whole: what it exports, what importing it does, and what its wheel holds."""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, EntryPoints
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (ROOT / "nanomem_core", ROOT / "plugins" / "nanomem_plugins")
FILES = {path.relative_to(source.parent): path for source in SOURCES for path in sorted(source.rglob("*.py"))}
PACKAGES = {".".join(path.parent.parts): file for path, file in FILES.items() if path.name == "__init__.py"}
MODULES = [*PACKAGES, *(".".join(path.with_suffix("").parts) for path in FILES if not path.name.startswith("__"))]


def _export_order(name: str) -> tuple[int, str]:
    """CONSTANTS, then Classes, then functions, as the linter sorts them."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_exports_is_there_and_sorted(name: str) -> None:
    module = importlib.import_module(name)
    exports = list(getattr(module, "__all__", ()))
    assert exports == sorted(set(exports), key=_export_order)
    assert [export for export in exports if not hasattr(module, export)] == []


def _gathered(package: str) -> set[str]:
    """What a package that defines nothing itself takes from its own modules."""
    body = ast.parse(PACKAGES[package].read_text(encoding="utf-8")).body
    if any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in body):
        return set()
    imports = [node for node in body if isinstance(node, ast.ImportFrom) and node.level]
    return {alias.asname or alias.name for node in imports for alias in node.names}


@pytest.mark.parametrize("name", [name for name in PACKAGES if _gathered(name)])
def test_a_package_that_gathers_names_exports_all_of_them(name: str) -> None:
    assert _gathered(name) == set(importlib.import_module(name).__all__)


def test_every_folder_with_modules_is_a_package() -> None:
    # Type checker, import linter and installer each treat a folder without __init__.py in a way of their own.
    assert {path.parent for path in FILES} == {Path(*name.split(".")) for name in PACKAGES}


WATCH = """
import importlib, json, os, sys, threading

seen = []
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
EFFECTS = ("subprocess.Popen", "os.system", "os.fork", "os.mkdir", "os.remove", "os.rename",
           "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod", "os.putenv", "os.unsetenv", "shutil.rmtree",
           "tempfile.mkstemp", "tempfile.mkdtemp", "signal.signal")

def watch(event, args):
    if event == "open":
        path, mode, flags = args
        if flags & WRITES or any(letter in (mode or "r") for letter in "wax+"):
            seen.append(f"open {path} {mode} {flags}")
    elif event in EFFECTS or event.startswith("socket."):
        seen.append(f"{event} {args}")

# What these do when they are imported is not ours.
import click, httpx, numpy, pluggy, pydantic, rich, stevedore, yaml

environment = dict(os.environ)
cwd, path = os.getcwd(), list(sys.path)
start = threading.Thread.start
threading.Thread.start = lambda thread: (seen.append(f"thread {thread.name}"), start(thread))[1]
sys.addaudithook(watch)
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
seen += [f"variable {key}" for key in set(environment) ^ set(os.environ)]
seen += ["working directory"] * (os.getcwd() != cwd) + ["sys.path"] * (sys.path != path)
print(json.dumps(seen))
"""


def _effects_of_importing(modules: list[str], folder: Path, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-B", "-W", "error", "-c", WATCH, json.dumps(modules)],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def test_importing_everything_has_no_effect(tmp_path: Path) -> None:
    # The test kit imports pytest and hypothesis, whose own effects are not ours.
    modules = [name for name in MODULES if not name.startswith("nanomem_core.testing")]
    assert _effects_of_importing(modules, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "effect"),
    [
        ("open('left.txt', 'w').close()", "open left.txt w"),
        ("import os; os.close(os.open('left.txt', os.O_CREAT | os.O_RDWR))", "open left.txt"),
        ("import threading; threading.Thread(target=print, args=('',), kwargs={'end': ''}).start()", "thread Thread-1"),
        ("import socket; socket.socket().close()", "socket."),
        ("import os; os.environ['LEFT'] = '1'", "os.putenv"),
        ("import sys; sys.path.append('left')", "sys.path"),
        ("import os; os.mkdir('left')", "os.mkdir"),
    ],
)
def test_the_watch_sees_the_effect(code: str, effect: str, tmp_path: Path) -> None:
    (tmp_path / "effect.py").write_text(code, encoding="utf-8")
    found = _effects_of_importing(["effect"], tmp_path, PYTHONPATH=str(tmp_path))
    assert any(effect in line for line in found), found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_every_file_of_both_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    expected = {
        path.relative_to(source.parent).as_posix()
        for source in SOURCES
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert found == expected
    assert {name.partition("/")[0] for name in expected} == {"nanomem_core", "nanomem_plugins"}
    assert {"nanomem_core/py.typed", "nanomem_plugins/py.typed"} <= found


def test_the_wheel_carries_the_licence_and_the_notice(wheel: zipfile.ZipFile) -> None:
    for name in ("LICENSE", "NOTICE"):
        (inside,) = [entry for entry in wheel.namelist() if entry.endswith(f".dist-info/licenses/{name}")]
        assert wheel.read(inside) == (ROOT / name).read_bytes() != b""


@pytest.fixture(scope="module")
def entries(wheel: zipfile.ZipFile) -> EntryPoints:
    (inside,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    folder = Path(str(wheel.filename)).parent
    wheel.extract(inside, folder)
    return Distribution.at(folder / Path(inside).parent).entry_points


def test_every_entry_point_of_the_wheel_can_be_loaded(entries: EntryPoints) -> None:
    assert {"console_scripts", "nanomem.plugins"} <= entries.groups
    for entry in entries:
        assert entry.load() is not None


def test_each_bundled_plugin_is_offered_by_an_entry_point_of_its_name(entries: EntryPoints) -> None:
    folders = {path.parent.name for path in SOURCES[1].glob("*/__init__.py")}
    assert {(entry.name, entry.module) for entry in entries.select(group="nanomem.plugins")} == {
        (name, f"nanomem_plugins.{name}") for name in folders
    }
