"""``nanomem init`` explains the embedders, and writes down which was chosen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import Nanomem
from .memories import answer


def written(folder: Path = Path(".")) -> Any:
    return yaml.safe_load((folder / "nanomem.yaml").read_text(encoding="utf-8"))


def test_the_file_explains_words_models_and_servers(nanomem: Nanomem) -> None:
    assert nanomem("init").exit_code == 0
    text = Path("nanomem.yaml").read_text(encoding="utf-8")
    for word in ("lexical needs no model", "nanomem-fastembed", "ollama and openai", "nanomem reembed"):
        assert word in text
    assert written()["embedder"] == {"use": "lexical"}


def test_an_embedder_is_written_with_its_options(nanomem: Nanomem) -> None:
    made = answer(nanomem("init", "--embedder", '{"use": "lexical", "dim": 64}', "--json"))
    assert (made["embedder"], made["embedder_id"], made["created"]) == ("lexical", "lexical-1-64", True)
    assert written()["embedder"] == {"use": "lexical", "dim": 64}
    assert answer(nanomem("stats", "--json"))["embedder"] == "lexical-1-64"


def test_a_model_may_be_named_by_itself(nanomem: Nanomem) -> None:
    spec = '{"use": "ollama", "dim": 8, "query_prefix": "search_query: "}'
    assert nanomem("init", "--embedder", spec, "--model", "nomic-embed-text").exit_code == 0
    expected = {"use": "ollama", "dim": 8, "query_prefix": "search_query: ", "model": "nomic-embed-text"}
    assert written()["embedder"] == expected
    assert "nomic-embed-text" in answer(nanomem("stats", "--json"))["embedder"]


def test_a_model_goes_to_the_embedder_of_the_settings(nanomem: Nanomem) -> None:
    result = nanomem("init", "--model", "x", NANOMEM_EMBEDDER__USE="ollama", NANOMEM_EMBEDDER__DIM="8")
    assert result.exit_code == 0, result.stderr
    assert written()["embedder"] == {"use": "ollama", "model": "x"}
    Path("nanomem.yaml").unlink()
    refused = nanomem("init", "--model", "x")
    assert refused.exit_code == 1
    assert "'lexical' has no option 'model'" in refused.stderr


def test_a_secret_is_not_written(nanomem: Nanomem) -> None:
    spec = {
        "use": "openai",
        "dim": 8,
        "api_key": "sk-very-secret",
        "base_url": "http://ann:sk-very-secret@127.0.0.1:9/v1",
        "headers": {"X-Gateway": "sk-very-secret"},
    }
    result = nanomem("init", "--embedder", json.dumps(spec))
    assert result.exit_code == 0, result.stderr
    for name in ("API_KEY", "BASE_URL", "HEADERS"):
        assert f"NANOMEM_EMBEDDER__{name}" in result.stderr
    assert "sk-very-secret" not in Path("nanomem.yaml").read_text(encoding="utf-8") + result.output
    assert written()["embedder"] == {"use": "openai", "dim": 8}


def test_what_is_not_installed_is_said_with_how_to_get_it(nanomem: Nanomem, cwd: Path) -> None:
    result = nanomem("init", "--embedder", "fastembed", NANOMEM_PLUGINS__DISABLE="fastembed")
    assert result.exit_code == 1
    assert "pip install nanomem-fastembed" in result.stderr
    assert list(cwd.iterdir()) == []


def test_a_server_that_is_down_is_an_error_and_nothing_is_written(nanomem: Nanomem, cwd: Path) -> None:
    spec = '{"use": "ollama", "base_url": "http://127.0.0.1:9", "model": "m", "retries": 0}'
    result = nanomem("init", "--embedder", spec)
    assert result.exit_code == 1
    assert "can't be reached" in result.stderr
    assert not Path("nanomem.yaml").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals of this kind")
@pytest.mark.parametrize(
    ("typed", "expected"),
    [("\n", {"use": "lexical"}), ("1\n", {"use": "lexical"}), ("3\nbge-m3\n", {"use": "ollama", "model": "bge-m3"})],
)
def test_somebody_at_a_terminal_is_asked(cwd: Path, typed: str, expected: dict[str, str]) -> None:
    done = _at_a_terminal(cwd, typed)
    assert done.returncode == 0, done.stderr
    assert "knows no meanings" in done.stderr
    assert "Which?" not in done.stdout
    assert written(cwd)["embedder"] == expected


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals of this kind")
def test_an_answer_that_is_none_of_the_choices_writes_nothing(cwd: Path) -> None:
    done = _at_a_terminal(cwd, "7\n")
    assert done.returncode == 1
    assert "found '7'" in done.stderr
    assert list(cwd.iterdir()) == []


def _at_a_terminal(cwd: Path, typed: str) -> subprocess.CompletedProcess[str]:
    """Run ``nanomem init`` with a terminal as standard input; the width is set, so that no server is asked for it."""
    import pty

    ours, theirs = pty.openpty()
    try:
        os.write(ours, typed.encode())
        environ = os.environ | {"NANOMEM_EMBEDDER__USE": "ollama", "NANOMEM_EMBEDDER__DIM": "8"}
        return subprocess.run(
            [sys.executable, "-m", "nanomem_core", "init"],
            cwd=cwd,
            env=environ,
            stdin=theirs,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
