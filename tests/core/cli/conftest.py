from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nanomem_core.cli import main

from ..conftest import Site

Nanomem = Callable[..., Result]


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, without settings from elsewhere."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if name.startswith("NANOMEM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NANOMEM_CONFIG", "")
    return folder


@pytest.fixture
def nanomem(cwd: Path) -> Nanomem:
    """Run the command in this process; `input` is what it reads from standard input."""

    def run(*arguments: str, input: str | bytes | None = None, **environ: str) -> Result:
        return CliRunner(env=environ).invoke(main, arguments, input=input)

    return run


@pytest.fixture
def spawn(cwd: Path, site: Site) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Run the command in a process of its own, in which the distributions of `site` are installed."""

    def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "nanomem_core", *arguments],
            env=os.environ | {"PYTHONPATH": str(site.folder)} | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )

    return run
