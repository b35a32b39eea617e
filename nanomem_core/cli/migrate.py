"""``nanomem migrate``: a store's older layout into that of today."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import click

from ..errors import NanomemError
from ..hints import one_line
from ..interfaces import Storage
from ..registry.options import Options
from .common import Failure, Session, echo_json, json_option, pass_session
from .opening import progress_bar, stdout_kept_clean
from .options import Command
from .show import count, print_table

__all__ = ["migrate"]


@click.command(
    "migrate",
    cls=Command,
    keys=("results", "failed", "dry_run"),
    examples=(
        "nanomem migrate markdown ~/.deermem --all-users --dry-run",
        "nanomem migrate markdown ~/.deermem --user ann --user bob",
    ),
)
@click.argument("storage")
@click.argument("path", metavar="ROOT", type=click.Path(path_type=Path))
@click.option("--user", "users", multiple=True, metavar="NAME", help="Whose memory; may be repeated.")
@click.option("--all-users", is_flag=True, help="The memories of all users.")
@click.option("--dry-run", is_flag=True, help="Change nothing, and tell what would be done.")
@json_option
@pass_session
def migrate(
    session: Session,
    storage: str,
    path: Path,
    users: Sequence[str],
    all_users: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Bring what lies at ROOT in an older layout of STORAGE into that of today.

    One user after another, each wholly or not at all; exit code 1 if one could not be migrated. What is no record is
    kept where it was, and told of. A second run finds nothing to do.
    """
    if bool(users) == all_users:
        raise click.UsageError("give either --all-users or at least one --user")
    if not path.exists():
        raise Failure(f"{path}: expected a file or folder of the storage {storage!r}; there is none")
    results: list[dict[str, Any]] = []
    with _opened(session, storage, path) as store, progress_bar("migrating") as progress:
        names = store.users() if all_users else list(dict.fromkeys(users))
        for done, name in enumerate(names):
            progress(done, len(names))
            results.append(_migrated(store, name, dry_run))
    failed = sum(result["state"] == "failed" for result in results)
    if as_json:
        echo_json({"results": results, "failed": failed, "dry_run": dry_run})
    else:
        _print(results)
    if failed:
        raise Failure(f"{count(failed, 'user')} of {len(results)} could not be migrated")


def _opened(session: Session, storage: str, path: Path) -> Storage:
    with stdout_kept_clean():
        options = Options(session.plugins.find("storage", storage).cls)
        place = next((option.name for option in options.declared if option.is_path), None)
        if place is None:
            raise Failure(f"the storage {storage!r} has no option that names a file or folder")
        return cast(Storage, session.plugins.build("storage", {"use": storage, place: str(path)}))


def _migrated(store: Storage, user: str, dry_run: bool) -> dict[str, Any]:
    try:
        return {**asdict(store.migrate_user(user, dry_run=dry_run)), "error": None}
    except NotImplementedError as error:
        raise Failure(str(error)) from None
    except (NanomemError, OSError) as error:
        return {"user": user, "state": "failed", "moved": 0, "skipped": 0, "refused": (), "error": one_line(error)}


def _print(results: Sequence[dict[str, Any]]) -> None:
    if not results:
        click.echo("There is nobody whose memory could be migrated.")
        return
    rows = []
    for result in results:
        details = [result["error"]] if result["error"] else list(result["refused"])
        versions = f"{result['from_version']} → {result['to_version']}" if "from_version" in result else ""
        numbers = (result["moved"], result["skipped"], len(result["refused"]))
        rows.append((result["user"], result["state"], versions, *numbers, "\n".join(details)))
    print_table(("user", "state", "version", ">moved", ">there already", ">kept back", "why"), rows)
    states = [result["state"] for result in results]
    told = [
        f"{states.count(state)} {state}" for state in ("migrated", "planned", "current", "failed") if state in states
    ]
    click.echo(f"{count(len(results), 'user')}: {', '.join(told)}.")
