"""``nanomem user``: whose memories a store holds."""

from __future__ import annotations

from typing import Any

import click

from ..errors import NotFoundError
from ..interfaces import Storage
from ..memory import Memory
from ..records import Scope
from .common import Session, echo_json, echo_result
from .opening import opened, opened_storage
from .options import confirm, memory_command, yes_option
from .show import count, date, print_table

__all__ = ["user"]


@click.group()
def user() -> None:
    """List, show and delete the memories of users."""


@memory_command(
    "list",
    keys=("results",),
    group=user,
    examples=("nanomem user list", "nanomem user list --vault memory.dat --json"),
)
def list_(session: Session, as_json: bool) -> None:
    """List the users and agents that have a memory in the store, with the number of records."""
    with opened_storage(session, "read") as storage:
        rows = [_counted(storage, scope) for scope in sorted(storage.scopes())]
    if as_json:
        echo_json({"results": rows})
    elif rows:
        print_table(("user", "agent", ">records"), [(row["user"], row["agent"], row["records"]) for row in rows])
    else:
        click.echo("Nobody has a memory here.")


@memory_command(
    "show",
    keys=("user", "agents"),
    group=user,
    examples=("nanomem user show ann",),
)
@click.argument("name")
def show(session: Session, as_json: bool, name: str) -> None:
    """Show what the store holds of one user, agent by agent."""
    with opened(session, "read") as memory:
        scopes = _of_user(memory.storage, name, None)
        rows = [_described(memory, scope) for scope in scopes]
    if as_json:
        echo_json({"user": name, "agents": rows})
        return
    print_table(
        ("agent", ">records", "kinds", ">facts with an attribute", "last (UTC)"),
        [
            (
                row["agent"],
                row["records"],
                ", ".join(f"{number} {kind}" for kind, number in row["kinds"].items()),
                row["chains"],
                date(row["last_ts"]),
            )
            for row in rows
        ],
    )


@memory_command(
    "delete",
    keys=("deleted",),
    group=user,
    examples=("nanomem user delete ann", "nanomem user delete ann --agent tutor --yes"),
)
@click.argument("name")
@yes_option
def delete(session: Session, as_json: bool, name: str, yes: bool) -> None:
    """Erase everything that the store holds of one user, or of one --agent of that user.

    No byte of it stays in any file of the store.
    """
    agent = session.named_scope.get("agent")
    with opened(session, "change") as memory:
        scopes = _of_user(memory.storage, name, agent)
        rows = [_counted(memory.storage, scope) for scope in scopes]
        records = sum(row["records"] for row in rows)
        confirm(f"Erase {count(records, 'record')} of {', '.join(map(str, scopes))} for good?", yes)
        for scope in scopes:
            memory.erase(user=scope.user, agent=scope.agent)
    echo_result(as_json, {"deleted": rows}, f"Erased {count(records, 'record')} of {count(len(scopes), 'memory')}.")


def _of_user(storage: Storage, name: str, agent: str | None) -> list[Scope]:
    found = [scope for scope in sorted(storage.scopes()) if scope.user == name and agent in (None, scope.agent)]
    if not found:
        of_agent = "" if agent is None else f" of the agent {agent!r}"
        raise NotFoundError(f"{name!r} has no memory{of_agent} here; `nanomem user list` shows who has", id=name)
    return found


def _counted(storage: Storage, scope: Scope) -> dict[str, Any]:
    records = int(storage.columns(scope).where(None).sum())
    return {"user": scope.user, "agent": scope.agent, "records": records}


def _described(memory: Memory, scope: Scope) -> dict[str, Any]:
    report = memory.inspect(user=scope.user, agent=scope.agent)
    columns = memory.storage.columns(scope)
    times = columns.valid_from[columns.where(None)]
    return {
        "agent": scope.agent,
        "records": report["total_documents"],
        "kinds": report["kinds"],
        "chains": len(memory.entities(user=scope.user, agent=scope.agent)),
        "last_ts": float(times.max()) if len(times) else None,
    }
