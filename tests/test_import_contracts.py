"""The import contracts in pyproject.toml hold, cover every module, and each of them bites.

Each test works on a copy of the packages, puts forbidden imports into it and reads what the linter says.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
CONTRACTS: dict[str, dict[str, Any]] = {contract["id"]: contract for contract in SETTINGS["contracts"]}

PUBLIC = {
    "aio",
    "changes",
    "columns",
    "errors",
    "fileio",
    "hookspecs",
    "http",
    "interfaces",
    "prompts",
    "records",
    "times",
    "tokens",
}
"""The modules of the core that plugins may import; the public names of all of them are held stable."""


class Copy:
    """A copy of both packages, in which the contracts can be broken."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        leave_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "nanomem_core", folder / "nanomem_core", ignore=leave_out)
        shutil.copytree(ROOT / "plugins" / "nanomem_plugins", folder / "nanomem_plugins", ignore=leave_out)
        shutil.copy(ROOT / "pyproject.toml", folder)

    def file(self, module: str) -> Path:
        path = self.folder.joinpath(*module.split("."))
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")

    def add_import(self, importer: str, imported: str) -> None:
        with self.file(importer).open("a", encoding="utf-8") as file:
            file.write(f"\nimport {imported}\n")

    def lint(self, contract: str | None = None) -> tuple[int, str]:
        """Exit status and report of the linter, with the spaces of line wrapping evened out."""
        code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
        only = [] if contract is None else ["--contract", contract]
        done = subprocess.run(
            [sys.executable, "-c", code, "--no-logo", "--no-cache", *only],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(self.folder), "NO_COLOR": "1", "COLUMNS": "500"},
            capture_output=True,
            encoding="utf-8",
        )
        return done.returncode, re.sub(r"\s+", " ", done.stdout + done.stderr)


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def core_modules() -> set[str]:
    found = (ROOT / "nanomem_core").iterdir()
    names = {path.stem for path in found if path.suffix == ".py" or (path / "__init__.py").is_file()}
    return names - {"__init__", "__main__"}


def layers_from_the_bottom() -> Iterable[list[str]]:
    """The modules of each layer that exist."""
    modules = core_modules()
    for line in reversed(CONTRACTS["layers"]["layers"]):
        layer = [name for name in re.findall(r"\w+", line) if name in modules]
        if layer:
            yield layer


def test_the_code_keeps_every_contract(copy: Copy) -> None:
    status, report = copy.lint()
    assert status == 0, report
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken" in report


def test_an_import_from_a_higher_layer_breaks_the_layers(copy: Copy) -> None:
    layers = list(layers_from_the_bottom())
    upwards = [(low, high[0]) for layer, high in pairwise(layers) for low in layer]
    for low, high in upwards:
        copy.add_import(f"nanomem_core.{low}", f"nanomem_core.{high}")
    status, report = copy.lint("layers")
    assert status == 1, report
    unseen = [
        (low, high)
        for low, high in upwards
        if f"nanomem_core.{low} is not allowed to import nanomem_core.{high}" not in report
    ]
    assert unseen == []


def test_an_import_between_neighbours_of_one_layer_breaks_the_layers(copy: Copy) -> None:
    modules = core_modules()
    layers = [re.findall(r"\w+", layer) for layer in CONTRACTS["layers"]["layers"] if "|" in layer]
    pairs = list(pairwise(name for name in max(layers, key=len) if name in modules))
    for importer, imported in pairs:
        copy.add_import(f"nanomem_core.{importer}", f"nanomem_core.{imported}")
    status, report = copy.lint("layers")
    assert status == 1, report
    assert len(pairs) > 0
    for importer, imported in pairs:
        assert f"nanomem_core.{importer} is not allowed to import nanomem_core.{imported}" in report


def test_a_module_without_a_layer_breaks_the_layers(copy: Copy) -> None:
    (copy.folder / "nanomem_core" / "extra.py").write_text("", encoding="utf-8")
    status, report = copy.lint("layers")
    assert status == 1
    assert "nanomem_core.extra" in report


@pytest.mark.parametrize("importer", ["nanomem_core", "nanomem_core.registry"])
def test_a_core_that_imports_a_plugin_breaks_its_contract(importer: str, copy: Copy) -> None:
    copy.add_import(importer, "nanomem_plugins.arena")
    status, report = copy.lint("core-knows-no-plugin")
    assert status == 1
    assert f"{importer} -> nanomem_plugins.arena" in report


def test_a_plugin_that_imports_another_breaks_its_contract(copy: Copy) -> None:
    copy.add_import("nanomem_plugins.keyword", "nanomem_plugins.lexical")
    status, report = copy.lint("plugins-stand-alone")
    assert status == 1
    assert "nanomem_plugins.keyword is not allowed to import nanomem_plugins.lexical" in report


def test_a_plugin_that_imports_what_is_not_public_breaks_its_contract(copy: Copy) -> None:
    private = sorted(core_modules() - PUBLIC)
    for module in private:
        copy.add_import("nanomem_plugins.arena", f"nanomem_core.{module}")
    status, report = copy.lint("plugins-use-what-is-public")
    assert status == 1
    assert [module for module in private if f"nanomem_plugins.arena -> nanomem_core.{module}" not in report] == []


def test_every_module_of_the_core_is_either_public_or_closed_to_plugins() -> None:
    closed = {
        name.removeprefix("nanomem_core.") for name in CONTRACTS["plugins-use-what-is-public"]["forbidden_modules"]
    }
    assert sorted([*closed, *PUBLIC]) == sorted(core_modules())


def test_the_guide_for_plugin_authors_names_the_public_modules() -> None:
    page = (ROOT / "docs/how-to/write-a-plugin.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"^A plugin imports only what is public:.*?;", page, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`(\w+)`", sentence)) == PUBLIC | {"nanomem_core"}
