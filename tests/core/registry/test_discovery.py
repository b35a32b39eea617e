"""Finding entry points reads metadata; loading one imports that one."""

from __future__ import annotations

import importlib.metadata
import shutil
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


def found_by_the_library(group: str) -> list[tuple[str, str, str, str]]:
    return sorted(
        (each.name, each.dist.name, each.dist.version, each.value)
        for each in importlib.metadata.entry_points(group=group)
        if each.dist is not None
    )


@pytest.mark.parametrize("group", [PLUGINS, "console_scripts", "pytest11"])
def test_what_is_found_is_what_the_standard_library_finds(site: Site, group: str) -> None:
    site.install("nanomem-tea", "tea:cup.handle", "", group=group)
    (site.folder / "nanomem_tea-1.0.dist-info" / "entry_points.txt").write_text(
        f"# a comment\n\n[other]\ntea = elsewhere\n[{group}]\n  tea=tea:cup.handle  \n# another\nmilk = milk [extra]\n",
        encoding="utf-8",
    )
    assert sorted((each.name, each.distribution, each.version, each.value) for each in find(group)) == (
        found_by_the_library(group)
    )
    assert {"tea", "milk"} <= {each.name for each in find(group)}


def test_of_two_copies_of_a_distribution_the_first_on_the_path_counts(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install("nanomem-tea", "old", "")
    first = Site(tmp_path / "first")
    first.folder.mkdir()
    monkeypatch.syspath_prepend(first.folder)
    first.install("Nanomem.Tea", "new", "")
    names = {each.name for each in find(PLUGINS)}
    assert "new" in names
    assert "old" not in names


def test_a_distribution_that_was_removed_is_found_no_more(site: Site) -> None:
    site.install("nanomem-tea", "tea", "")
    assert "tea" in {each.name for each in find(PLUGINS)}
    shutil.rmtree(site.folder / "nanomem_tea-1.0.dist-info")
    assert "tea" not in {each.name for each in find(PLUGINS)}


def test_a_distribution_in_an_archive_on_the_path_is_found(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install("nanomem-tea", "tea", "")
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", site.folder)
    shutil.rmtree(site.folder / "nanomem_tea-1.0.dist-info")
    monkeypatch.syspath_prepend(archive)
    [found] = [each for each in find(PLUGINS) if each.name == "tea"]
    assert (found.distribution, found.version) == ("nanomem-tea", "1.0")


def test_a_distribution_that_a_finder_of_its_own_knows_is_found(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = Site(tmp_path / "hidden")
    hidden.folder.mkdir()
    hidden.install("nanomem-tea", "tea", "")

    class Finder(importlib.metadata.DistributionFinder):
        def find_spec(self, *arguments: object) -> None:
            return None

        def find_distributions(
            self, context: importlib.metadata.DistributionFinder.Context | None = None
        ) -> list[importlib.metadata.Distribution]:
            return [importlib.metadata.Distribution.at(hidden.folder / "nanomem_tea-1.0.dist-info")]

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    [found] = [each for each in find(PLUGINS) if each.name == "tea"]
    assert (found.distribution, found.version) == ("nanomem-tea", "1.0")
