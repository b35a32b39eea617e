"""``nanomem tag``: guess the entities of stored statements once more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ..memory import TagPlan
from .common import Session, echo_json
from .opening import opened
from .options import confirm, entity_option, filter_option, memory_command, yes_option
from .show import count, print_table, shown_text

__all__ = ["tag"]


@memory_command(
    "tag",
    keys=("scope", "changes", "looked_at", "untold", "changed"),
    examples=(
        "nanomem tag --dry-run",
        "nanomem tag --tagger llm --filter source=cli --yes",
    ),
)
@click.option("--tagger", "taggers", metavar="NAME", multiple=True, help="In place of the set ones; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@filter_option()
@entity_option
@yes_option
def tag(
    session: Session,
    as_json: bool,
    taggers: Sequence[str],
    dry_run: bool,
    filter: Mapping[str, Any] | None,
    entity: str | None,
    yes: bool,
) -> None:
    """Ask the taggers once more of which attribute each stored statement gives the value, and show what changes.

    What you named with --entity when you added it never changes, nor does what no tagger is sure of. Exactly what was
    shown is written, as one commit, after you agree; the former entity is kept in the metadata as retagged_from.
    """
    given = {str(spec["use"]): spec for spec in session.settings.taggers}
    specs = [given.get(name, name) for name in taggers] or None
    with opened(session, "read" if dry_run else "change") as memory:
        plan = memory.tag(taggers=specs, filter=filter, entity=entity)
        changed = 0
        if plan.changes and not dry_run:
            _show(plan)
            confirm(f"Change {count(len(plan.changes), 'record')}?", yes)
            changed = memory.apply_tags(plan)
    if as_json:
        echo_json({**plan.to_dict(), "changed": changed})
        return
    if plan.changes and dry_run:
        _show(plan)
    asked = f"Asked about {count(plan.looked_at, 'statement')}"
    if dry_run:
        click.echo(f"{asked}; {count(len(plan.changes), 'record')} would change.")
    else:
        click.echo(f"{asked}; changed {count(changed, 'record')}.")


def _show(plan: TagPlan) -> None:
    print_table(
        ["before", "after", "text", "id"],
        [[change.before, change.after, shown_text({"text": change.text}), change.id] for change in plan.changes],
    )
