"""``nanomem config``: the settings, and where each of them comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ..config.model import COMPONENTS, masked
from ..config.sources import flatten, settings_files
from ..errors import NanomemError
from ..registry.options import Options
from .common import Session, echo_json, json_option, pass_session
from .show import print_table

__all__ = ["config"]


@click.group()
def config() -> None:
    """Show the settings and where each comes from."""


@config.command()
@click.option("--origin", is_flag=True, help="Also say where each value comes from.")
@json_option
@pass_session
def show(session: Session, origin: bool, as_json: bool) -> None:
    """Show the settings that apply here, with secrets masked."""
    settings = {name: _masked(session, name, value) for name, value in session.settings}
    values = {".".join(keys): value for keys, value in flatten(settings)}
    rows = {key: {"value": values[key], "origin": source} for key, source in session.loaded.origins.items()}
    if as_json:
        echo_json(rows if origin else settings)
    elif origin:
        print_table(
            ("setting", "value", "from"), [(key, str(row["value"]), row["origin"]) for key, row in rows.items()]
        )
    else:
        import yaml

        click.echo(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True), nl=False)


@config.command()
@json_option
@pass_session
def path(session: Session, as_json: bool) -> None:
    """Show which settings files are read here, the one that counts more first."""
    files = settings_files(session.config)
    if as_json:
        echo_json({name: {"path": file, "exists": file.is_file()} if file else None for name, file in files.items()})
        return
    for name, file in files.items():
        absent = " (absent)" if file is not None and not file.is_file() else ""
        click.echo(f"{name}: {file or 'none'}{absent}")


def _masked(session: Session, name: str, value: Any) -> Any:
    if name == "taggers":
        return [masked(tagger, _secrets(session, "tagger", tagger)) for tagger in value]
    return masked(value, _secrets(session, name, value) if name in COMPONENTS and value is not None else ())


def _secrets(session: Session, kind: str, component: Mapping[str, Any]) -> set[str]:
    """Names of the component's options that are secret by their type."""
    try:
        cls = session.plugins.find(kind, component["use"]).cls
    except NanomemError:
        # That it can't be used is for the command that uses it to tell; names still give secrets away.
        return set()
    return {option.name for option in Options(cls).declared if option.secret}
