"""Options of plugins themselves, and the plugins as objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from nanomem_core.config.model import PluginSettings, masked
from nanomem_core.config.sources import load_settings
from nanomem_core.errors import ConfigError, PluginError, PluginLoadError
from nanomem_core.masking import MASK
from nanomem_core.registry.manager import PluginManager
from nanomem_core.registry.report import PluginStatus

from ..conftest import Site

METER = """
from pathlib import Path
from nanomem_core.hookspecs import Plugin

class Meter(Plugin):
    def __init__(self, step: int = 1, path: Path = Path("meter.log"), api_key: str = ""):
        self.step, self.path, self.api_key = step, path, api_key
"""


@pytest.fixture
def site_with_meter(site: Site) -> Site:
    site.install("nanomem-meter", "meter:Meter", METER)
    return site


def discover(tmp_path: Path, **options: Any) -> PluginManager:
    return PluginManager.discover(PluginSettings(load=("meter",), options=options), data_dir=tmp_path)


def status(manager: PluginManager, name: str = "meter") -> PluginStatus:
    [found] = [each for each in manager.statuses if each.name == name]
    return found


def test_options_are_converted_and_paths_start_from_the_data_folder(site_with_meter: Site, tmp_path: Path) -> None:
    meter: Any = discover(tmp_path, meter={"step": "5", "path": "x/y.log"}).plugin("meter")
    assert (meter.step, meter.path) == (5, tmp_path / "x" / "y.log")


def test_without_options_the_defaults_count(site_with_meter: Site, tmp_path: Path) -> None:
    meter: Any = discover(tmp_path).plugin("meter")
    assert (meter.step, meter.path) == (1, tmp_path / "meter.log")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"stepp": 5}, r"no option 'stepp'; did you mean 'step'\?"), ({"step": "many"}, "option 'step'")],
)
def test_a_wrong_option_fails_the_plugin_and_nothing_else(
    site_with_meter: Site, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    manager = discover(tmp_path, meter=options)
    assert status(manager).state == "failed"
    assert manager.classes("embedder") == []
    with pytest.raises(PluginLoadError, match=message) as caught:
        manager.plugin("meter")
    assert isinstance(caught.value.__cause__, ConfigError)


def test_a_module_takes_no_options(site: Site, tmp_path: Path) -> None:
    site.install("nanomem-meter", "meter", "")
    with pytest.raises(PluginLoadError, match=r"takes no options, but plugins\.options gives it step"):
        discover(tmp_path, meter={"step": 5}).plugin("meter")


def test_options_of_a_plugin_that_is_not_installed_are_a_problem(site_with_meter: Site, tmp_path: Path) -> None:
    missing = status(discover(tmp_path, metre={"step": 5}), "metre")
    assert missing.state == "missing"
    assert missing.detail == "plugins.options names it, but nothing installed brings it; did you mean 'meter'?"


def test_a_plugin_is_found_by_its_name_alone(site_with_meter: Site, tmp_path: Path) -> None:
    manager = discover(tmp_path)
    with pytest.raises(PluginError, match=r"there is no plugin 'metre'; did you mean 'meter'\?"):
        manager.plugin("metre")
    disabled = PluginManager.discover(PluginSettings(load=()))
    with pytest.raises(PluginLoadError, match="disabled"):
        disabled.plugin("meter")


def test_options_come_from_file_and_environment_and_secrets_are_masked(tmp_path: Path) -> None:
    (tmp_path / "nanomem.yaml").write_text("plugins: {options: {meter: {step: 2, api_key: s3cret}}}", encoding="utf-8")
    environ = {"NANOMEM_CONFIG": "", "NANOMEM_PLUGINS__OPTIONS__METER__STEP": "7"}
    plugins = load_settings(environ=environ, cwd=tmp_path).settings.plugins
    assert plugins.options == {"meter": {"step": "7", "api_key": SecretStr("s3cret")}}
    assert "s3cret" not in repr(plugins)
    assert masked(plugins)["options"]["meter"]["api_key"] == MASK


def test_a_plugin_gets_its_secrets_in_clear(site_with_meter: Site, tmp_path: Path) -> None:
    meter: Any = discover(tmp_path, meter={"api_key": "s3cret"}).plugin("meter")
    assert meter.api_key == "s3cret"
