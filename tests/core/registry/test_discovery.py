"""Finding entry points reads metadata; loading one imports that one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nanomem_core.registry.discovery import PLUGINS, find, load

from ..conftest import Site


def test_what_is_found_names_its_distribution_and_version(site: Site) -> None:
    site.install("nanomem-tea", "tea", "")
    [found] = [each for each in find(PLUGINS) if each.name == "tea"]
    assert (found.distribution, found.version, found.origin) == ("nanomem-tea", "1.0", "nanomem-tea 1.0")


def test_what_is_found_is_sorted_by_name_and_then_by_distribution(site: Site) -> None:
    for distribution, plugin in [("z-dist", "zzz"), ("b-dist", "same"), ("a-dist", "same")]:
        site.install(distribution, plugin, "")
    mine = [(each.name, each.distribution) for each in find(PLUGINS) if each.distribution.endswith("-dist")]
    assert mine == [("same", "a-dist"), ("same", "b-dist"), ("zzz", "z-dist")]


def test_a_distribution_that_was_installed_after_the_first_look_is_found(site: Site) -> None:
    assert "late" not in {each.name for each in find(PLUGINS)}
    site.install("nanomem-late", "late", "")
    assert "late" in {each.name for each in find(PLUGINS)}


def test_finding_imports_nothing(site: Site) -> None:
    module = site.install("nanomem-loud", "loud", "raise RuntimeError('imported')")
    assert "loud" in {each.name for each in find(PLUGINS)}
    assert module not in sys.modules


def test_loading_gives_what_the_entry_point_names(site: Site) -> None:
    site.install("nanomem-tea", "tea:cup", "cup = 'full'")
    [found] = [each for each in find(PLUGINS) if each.name == "tea"]
    assert load(found) == "full"


def test_loading_one_imports_no_other(site: Site) -> None:
    site.install("nanomem-tea", "tea", "")
    other = site.install("nanomem-milk", "milk", "")
    load(next(each for each in find(PLUGINS) if each.name == "tea"))
    assert other not in sys.modules


@pytest.mark.parametrize("error", ["ImportError", "AssertionError", "SystemExit", "KeyboardInterrupt"])
def test_loading_raises_what_the_module_raises(site: Site, error: str) -> None:
    site.install("nanomem-bad", "bad", f"raise {error}('boom')")
    [found] = [each for each in find(PLUGINS) if each.name == "bad"]
    with pytest.raises(BaseException, match="boom") as caught:
        load(found)
    assert type(caught.value).__name__ == error


def test_importing_discovery_needs_only_the_standard_library(tmp_path: Path) -> None:
    code = (
        "import sys, nanomem_core.registry.discovery as d; d.find(d.PLUGINS); "
        "print([m for m in ('click', 'numpy', 'pluggy', 'pydantic', 'stevedore') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
