"""Whole processes, from start to end: importing, help, and one search by the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from ..arms import OURS
from ..bench import Bench
from ..data import Material
from ..process import ArmError

__all__ = ["run"]

_REFERENCE = "python"
"""What is named as the arm where nothing but Python and other libraries run."""

_FILL_OURS = """
import sys
from nanomem_core import Vault
with Vault(sys.argv[1]) as vault:
    with open(sys.argv[2], encoding="utf-8") as lines:
        vault.add_many({"text": line, "source": "bench"} for line in lines)
"""

_FILL_08 = """
import sys, warnings
from nanomem import Vault
warnings.simplefilter("ignore")
with Vault(sys.argv[1]) as vault:
    with open(sys.argv[2], encoding="utf-8") as lines:
        vault.add_batch([{"text": line} for line in lines])
with Vault(sys.argv[1]) as vault:
    vault.search("the second open writes the sidecar")
"""


def run(bench: Bench) -> None:
    folder = bench.folder / "startup"
    folder.mkdir()
    python = [sys.executable]
    commands = {
        (_REFERENCE, "python -c pass"): [*python, "-c", "pass"],
        (_REFERENCE, "import numpy, pydantic"): [*python, "-c", "import numpy, pydantic"],
        (OURS, "import nanomem_core"): [*python, "-c", "import nanomem_core"],
        (OURS, "import Vault"): [*python, "-c", "from nanomem_core import Vault"],
        (_REFERENCE, "import click"): [*python, "-c", "import click"],
        (OURS, "--help"): [*python, "-m", "nanomem_core", "--help"],
    }
    spec = bench.spec(10_000, 384)
    material = Material(bench.material(spec))
    texts = str(bench.material(spec) / "texts.txt")
    search = f"search, {spec.n:,} records"
    for arm, module, fill in ((OURS, "nanomem_core", _FILL_OURS), ("nanomem-0.8", "nanomem.cli", _FILL_08)):
        if arm in bench.arms:
            vault = str(folder / f"{arm}.dat")
            bench.say(f"building {arm} by its own embedder: {spec.n:,} records")
            try:
                _seconds(arm, [*python, "-c", fill, vault, texts], folder)
                commands[arm, search] = [*python, "-m", module, "search", material.question(0), "--vault", vault]
                _seconds(arm, commands[arm, search], folder)
            except ArmError as error:
                commands.pop((arm, search), None)
                bench.note(error)
    samples: dict[tuple[str, str], list[float]] = defaultdict(list)
    bench.say("starting processes")
    for _ in range(bench.effort.opens):
        for (arm, measure), command in commands.items():
            samples[arm, measure].append(_seconds(arm, command, folder))
    for (arm, measure), seconds in samples.items():
        bench.add_times(measure, arm, "a new process", seconds)


def _seconds(arm: str, command: list[str], folder: Path) -> float:
    """How long a command takes, which must succeed. It finds no settings but the defaults, and no model server."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("NANOMEM_")}
    environ |= {"NANOMEM_CONFIG": ""} if arm == OURS else {"NANOMEM_EMBED_URL": "http://127.0.0.1:9/"}
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise ArmError(arm, f"{' '.join(command[1:4])} … failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return seconds
