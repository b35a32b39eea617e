from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import pytest

from tests.memories import clock, embedder, memory, shelf, store

__all__ = ["clock", "embedder", "environment", "memory", "shelf", "store", "wheel"]

ROOT = Path(__file__).resolve().parents[2]


class Environment:
    """A virtual environment with the project's wheel in it.

    Third-party libraries come from the environment of the tests by a ``.pth`` file, which saves downloading them; the
    project itself and the plugins are built and installed by pip.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder / "venv", with_pip=False, symlinks=os.name != "nt")
        scripts = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        suffix = ".exe" if os.name == "nt" else ""
        self.python, self.nanomem = scripts / f"python{suffix}", scripts / f"nanomem{suffix}"
        self.site = Path(self.run_python("import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        # As a folder of packages, so that what is installed there in editable form is found too.
        line = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})"
        (self.site / "libraries.pth").write_text(line, encoding="utf-8")

    def pip_install(self, *paths: Path) -> None:
        isolation = [] if find_spec("hatchling") is None else ["--no-build-isolation"]
        command = [sys.executable, "-m", "pip", "--python", str(self.python), "--disable-pip-version-check"]
        done = subprocess.run(
            [*command, "install", "--quiet", "--no-deps", "--no-warn-script-location", *isolation, *map(str, paths)],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr

    def distribution(self, name: str, plugin: str, source: str, *, entry: str = "") -> Path:
        """The source tree of a small distribution; `entry` is what its entry point names, by default its module."""
        module = name.replace("-", "_")
        tree = self.folder / name
        tree.mkdir()
        (tree / f"{module}.py").write_text(dedent(source), encoding="utf-8")
        (tree / "pyproject.toml").write_text(
            dedent(f"""
                [build-system]
                requires = ["hatchling"]
                build-backend = "hatchling.build"
                [project]
                name = "{name}"
                version = "0.3"
                [project.entry-points."nanomem.plugins"]
                {plugin} = "{entry or module}"
                [tool.hatch.build.targets.wheel]
                include = ["{module}.py"]
            """),
            encoding="utf-8",
        )
        return tree

    def run(self, *command: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a program in an empty folder, with no settings but those given."""
        cwd = self.folder / "cwd"
        cwd.mkdir(exist_ok=True)
        keep = {key: value for key, value in os.environ.items() if not key.startswith(("NANOMEM_", "PYTHON"))}
        return subprocess.run(
            list(map(str, command)),
            cwd=cwd,
            env=keep | {"NANOMEM_CONFIG": "", "NANOMEM_DATA_DIR": str(self.folder / "data")} | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
        )

    def run_python(self, code: str, **environ: str) -> str:
        """What a Python program prints; it must succeed."""
        done = self.run(self.python, "-W", "error", "-c", dedent(code), **environ)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built from the source tree."""
    folder = tmp_path_factory.mktemp("wheel")
    isolation = [] if find_spec("hatchling") is None else ["--no-build-isolation"]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps", *isolation]
    done = subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [path] = folder.glob("nanomem_core-*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made = Environment(tmp_path_factory.mktemp("environment"))
    made.pip_install(wheel)
    return made
