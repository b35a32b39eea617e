"""The script that runs the servers stops them, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.services import models

pytestmark = pytest.mark.real

SCRIPT = Path(models.__file__)
VARIABLES = (models.CHAT_URL, models.EMBEDDINGS_URL)
TELL = f"import os\nfor name in {VARIABLES}: print('export', f'{{name}}={{os.environ[name]}}', flush=True)\n"


@pytest.fixture(autouse=True)
def servers_run(chat_url: str) -> None:
    """Without the others, these would install and start servers in a run that is to do without."""


@contextlib.contextmanager
def script(*command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, SCRIPT, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def listens(url: str) -> bool:
    parts = urlsplit(url)
    assert parts.hostname == "127.0.0.1"
    with socket.socket() as probe:
        return probe.connect_ex((parts.hostname, parts.port or 0)) == 0


def wait_until_gone(urls: list[str]) -> bool:
    deadline = time.monotonic() + 60
    while any(map(listens, urls)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def urls_of(process: subprocess.Popen[str]) -> list[str]:
    """What the script prints where it has no command to run, as `TELL` does."""
    assert process.stdout is not None
    lines = [process.stdout.readline().strip() for _ in range(2)]
    assert [line.partition("=")[0] for line in lines] == [f"export {name}" for name in VARIABLES]
    urls = [line.partition("=")[2] for line in lines]
    assert all(map(listens, urls))
    return urls


def test_the_command_finds_the_servers_and_its_exit_code_is_kept() -> None:
    with script(sys.executable, "-c", f"{TELL}raise SystemExit(input() or 7)") as process:
        urls = urls_of(process)
        process.communicate("\n")
    assert process.returncode == 7
    assert wait_until_gone(urls)


@pytest.mark.skipif(os.name == "nt", reason="Windows sends Ctrl-C to consoles, not to processes")
@pytest.mark.parametrize(
    "command", [(), (sys.executable, "-c", f"{TELL}import time\ntime.sleep(60)")], ids=["alone", "with a command"]
)
def test_ctrl_c_stops_the_servers(command: tuple[str, ...]) -> None:
    with script(*command) as process:
        urls = urls_of(process)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
    assert wait_until_gone(urls)


def test_the_servers_end_with_a_script_that_is_killed() -> None:
    with script() as process:
        urls = urls_of(process)
        process.kill()
        process.wait(60)
    assert wait_until_gone(urls)
