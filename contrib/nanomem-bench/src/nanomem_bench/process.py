"""An arm's process, seen from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nanomem_core.errors import NanomemError

from .measure import THREAD_VARIABLES

__all__ = ["ArmError", "ArmProcess", "Setup", "environment"]


class ArmError(NanomemError):
    """An arm could not do what it was asked; the comparison goes on without it.

    Attributes:
        arm: its name.
    """

    def __init__(self, arm: str, message: str) -> None:
        super().__init__(f"{arm}: {message}")
        self.arm = arm
        self.message = message


@dataclass(frozen=True, slots=True)
class Setup:
    """What a process is told at its start.

    Attributes:
        folder: where the store is, or will be.
        material: folder of the data.
        threads: for computing.
        first: the number that its operations begin with.
        confined: where the system can do that, keep the process to as many processors as there are threads.
    """

    arm: str
    folder: Path
    material: Path
    chains: int = 0
    threads: int = 1
    first: int = 0
    confined: bool = True


def environment(threads: int) -> dict[str, str]:
    """The variables of this process, with `threads` for each library that reads one of them."""
    return os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads))


class ArmProcess:
    """A running arm. Leaving its ``with`` block ends the process."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  # for as long as self
        self._process = subprocess.Popen(
            [sys.executable, "-m", "nanomem_bench.worker"],
            env=environment(setup.threads) | {"PYTHONIOENCODING": "utf-8"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
        )
        self._write(asdict(setup) | {"folder": str(setup.folder), "material": str(setup.material)})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):  # it has ended, and did not read all
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            # The threads of some libraries keep their process alive.
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def call(self, do: str, **arguments: Any) -> Any:
        """The result of a request.

        Raises:
            ArmError: the arm raised an error, or its process ended.
        """
        self.ask(do, **arguments)
        return self.answer()

    def ask(self, do: str, **arguments: Any) -> None:
        """Send a request without waiting; `answer` gives its result."""
        self._write({"do": do, **arguments})

    def answer(self) -> Any:
        """The result of the request that was sent first of those that are open; raises like `call`."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ArmError(self.setup.arm, f"its process ended: {self._last_words()}")
        reply = json.loads(line)
        if "error" in reply:
            raise ArmError(self.setup.arm, reply["error"])
        return reply["result"]

    def _write(self, value: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(value) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise ArmError(self.setup.arm, f"its process ended: {self._last_words()}") from None

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.wait()}"
