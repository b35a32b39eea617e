from __future__ import annotations

from pathlib import Path

import pytest
from nanomem_bench import arms
from nanomem_bench.data import Spec, make
from nanomem_bench.process import ArmProcess, Setup

SPEC = Spec(300, 24)


@pytest.fixture(scope="session")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("material")
    make(SPEC, folder, seed=7)
    return folder


@pytest.fixture(scope="session", params=arms.ARMS)
def built(
    request: pytest.FixtureRequest, material: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, Path]:
    """An installed arm, the folder of its store, and that of its data."""
    name: str = request.param
    if arms.installed_version(name) is None:
        pytest.skip(f"{arms.ARMS[name][1]} is not installed")
    folder = tmp_path_factory.mktemp("stores") / name
    with ArmProcess(Setup(name, folder, material)) as process:
        process.call("build")
    return name, folder, material
