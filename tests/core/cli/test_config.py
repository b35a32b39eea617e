"""``nanomem config``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import yaml

from nanomem_core.config.sources import load_settings

from ..conftest import Site
from .conftest import Nanomem


def test_the_settings_are_shown_as_a_file_that_means_the_same(cwd: Path, nanomem: Nanomem) -> None:
    Path("nanomem.yaml").write_text("storage: {use: jsonl, root: m}\nsearch: {top_k: 9}", encoding="utf-8")
    result = nanomem("config", "show")
    assert result.exit_code == 0
    before = load_settings().settings
    Path("nanomem.yaml").write_text(result.stdout, encoding="utf-8")
    assert load_settings().settings == before
    assert json.loads(nanomem("config", "show", "--json").stdout) == yaml.safe_load(result.stdout)


def test_every_value_is_shown_with_its_origin(cwd: Path, nanomem: Nanomem) -> None:
    Path("nanomem.yaml").write_text("search:\n  top_k: 9", encoding="utf-8")
    rows = json.loads(nanomem("--vault", "v.dat", "config", "show", "--origin", "--json").stdout)
    assert rows["search.top_k"] == {"value": 9, "origin": f"{cwd / 'nanomem.yaml'}, line 2"}
    assert rows["search.mode"] == {"value": "hybrid", "origin": "default"}
    assert rows["storage.path"] == {"value": os.path.abspath("v.dat"), "origin": "command line"}
    [line] = [line for line in nanomem("config", "show", "--origin").stdout.splitlines() if "search.top_k" in line]
    assert "9" in line
    assert "nanomem.yaml, line 2" in line


def test_the_vault_option_goes_before_a_storage_in_a_file(cwd: Path, nanomem: Nanomem) -> None:
    Path("nanomem.yaml").write_text("storage: {use: jsonl, root: m}", encoding="utf-8")
    shown = json.loads(nanomem("--vault", "v.dat", "config", "show", "--json").stdout)
    assert shown["storage"] == {"use": "arena", "path": os.path.abspath("v.dat")}


def test_no_secret_is_shown_in_any_form(site: Site, cwd: Path, nanomem: Nanomem) -> None:
    source = """
        from nanomem_core.interfaces import Generator, Tagger
        from pydantic import SecretStr

        class Model(Generator):
            name = "model"
            def __init__(self, unlock: SecretStr, api_key: str, url: str, headers: dict[str, str]) -> None: ...
            def complete(self, messages, **options): ...

        class Tags(Tagger):
            name = "tags"
            def __init__(self, unlock: SecretStr) -> None: ...
            def tag(self, text, *, previous=None, generator=None): ...

        def nanomem_register_generator(): return [Model]
        def nanomem_register_tagger(): return [Tags]
    """
    site.install("nanomem-model", "model", source)
    text = """
plugins: {load: [model]}
generator:
  use: model
  unlock: s3cret-1
  api_key: s3cret-2
  url: https://ann:s3cret-3@host/x
  headers: {Authorization: s3cret-4, X-Trace: s3cret-6}
taggers: [{use: tags, unlock: s3cret-5}]
"""
    Path("nanomem.yaml").write_text(text, encoding="utf-8")
    for form in ([], ["--json"], ["--origin"], ["--origin", "--json"]):
        result = nanomem("config", "show", *form)
        assert result.exit_code == 0, result.stderr
        assert "s3cret" not in result.stdout + result.stderr
        assert "host/x" in result.stdout


def test_settings_of_a_component_that_is_not_installed_are_shown_too(cwd: Path, nanomem: Nanomem) -> None:
    Path("nanomem.yaml").write_text("storage: {use: nowhere, token: s3cret, root: m}", encoding="utf-8")
    result = nanomem("config", "show", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout)["storage"] == {"use": "nowhere", "token": "**********", "root": "m"}


def test_a_mistake_in_the_settings_is_a_message_with_its_place(cwd: Path, nanomem: Nanomem) -> None:
    Path("nanomem.yaml").write_text("search:\n  topk: 3", encoding="utf-8")
    result = nanomem("config", "show")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("nanomem: there is no setting 'search.topk'; did you mean 'top_k'?")
    assert f"{cwd / 'nanomem.yaml'}, line 2" in result.stderr


def test_the_settings_file_can_be_named(cwd: Path, nanomem: Nanomem) -> None:
    Path("other.yaml").write_text("search: {top_k: 9}", encoding="utf-8")
    assert json.loads(nanomem("--config", "other.yaml", "config", "show", "--json").stdout)["search"]["top_k"] == 9
    assert nanomem("--config", "absent.yaml", "config", "show").exit_code == 1


def test_the_paths_of_the_settings_files_are_shown(cwd: Path, nanomem: Nanomem) -> None:
    Path("nanomem.yaml").write_text("", encoding="utf-8")
    user = cwd / "user.yaml"
    assert nanomem("config", "path", NANOMEM_CONFIG=str(user)).stdout.splitlines() == [
        f"project: {cwd / 'nanomem.yaml'}",
        f"user: {user} (absent)",
    ]
    assert json.loads(nanomem("config", "path", "--json").stdout) == {
        "project": {"path": str(cwd / "nanomem.yaml"), "exists": True},
        "user": None,
    }
    assert nanomem("config", "path").stdout.splitlines()[1] == "user: none"
