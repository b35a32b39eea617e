from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest


class Site:
    """A folder on the import path in which distributions can be installed, as an installer leaves them there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, distribution: str, plugin: str, source: str, *, group: str = "nanomem.plugins") -> str:
        """One module, and an entry point `plugin` (``name`` or ``name:attribute``) for it; returns its name."""
        name, _, attribute = plugin.partition(":")
        module = f"{distribution}_{name}".replace("-", "_")
        (self.folder / f"{module}.py").write_text(dedent(source), encoding="utf-8")
        info = self.folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n", encoding="utf-8")
        value = f"{module}:{attribute}" if attribute else module
        with (info / "entry_points.txt").open("a", encoding="utf-8") as file:
            file.write(f"[{group}]\n{name} = {value}\n")
        return module


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    yield Site(folder)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]
