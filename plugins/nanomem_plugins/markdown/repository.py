"""DeerMem's repository contract over the Markdown store.

A *fact* here is what lies in an agent's ``facts`` folder, in the form of `facts`; values that were replaced, have ended
or were evicted lie in ``history``, where `Memory.history` shows them. Every mapping that is taken or given is the
caller's own.

DeerMem's errors are those of `nanomem_core.errors`: a manifest conflict is a ConflictError without an `id`, a fact
conflict one with it, corruption is CorruptionError, an invalid fact InputError (a ValueError), a lock that is kept
LockTimeoutError (a TimeoutError; nothing was written, so try again).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nanomem_core.changes import plan_commit
from nanomem_core.errors import ConflictError, InputError, NanomemError, NotFoundError
from nanomem_core.fileio.journal import Replace
from nanomem_core.interfaces import Migration
from nanomem_core.records import Record, Scope

from .changesets import (
    ChangeSet,
    FactCommit,
    checked_fact,
    parse_change_set,
    unconditional,
)
from .contract import passes
from .facts import Fact, check_id
from .layout import DEFAULT_AGENT
from .manifest import FILE, VERSION, Manifest, empty_sections
from .migration import migrate, plan_migration
from .searching import Searching
from .shown import fact_in, read_fact, read_facts, shown_fact, shown_facts
from .sidecars import without_sidecars
from .summaries import patched, profile_records, sections_of
from .writes import document_writes

if TYPE_CHECKING:
    from .storage import MarkdownTransaction

__all__ = ["Repository"]

_log = logging.getLogger("nanomem.markdown")


class Repository(Searching):
    """The part of the store that speaks DeerMem's language.

    ``user_id`` is a user's name, None for ``default``; ``agent_name`` that of an agent, in any case; ``default`` and
    ``__default__`` are the agent without a name. Facts belong to an agent, summaries to the user.
    """

    # Reading.

    def get_fact(self, id: str, *, user_id: str | None = None, agent_name: str | None = None) -> Fact | None:
        """The fact with that id, or None."""
        scope = self._scope(user_id, agent_name)
        check_id(id)
        with self._reading(scope) as state:
            held = shown_fact(state, id)
            return None if held is None else read_fact(state, held)

    def list_facts(
        self,
        filters: Mapping[str, Any] | None = None,
        cursor: int = 0,
        limit: int = 100,
        *,
        user_id: str | None = None,
        agent_name: str | None = None,
    ) -> list[Fact]:
        """Facts whose keys equal those of `filters`, by id, `limit` of them from the `cursor`-th on."""
        scope = self._scope(user_id, agent_name)
        for name, number in (("cursor", cursor), ("limit", limit)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise InputError(f"{name}: expected a whole number from 0; found {number!r}")
        with self._reading(scope) as state:
            found = shown_facts(state)
            if filters:
                found = [held for held in found if passes(fact_in(state, held), filters)]
            return read_facts(state, found[cursor : cursor + limit])

    def get_summaries(self, *, user_id: str | None = None) -> dict[str, Any]:
        """``user`` and ``history`` with all their summaries, and ``revision``."""
        manifest = self._user(self._name(user_id)).manifest()
        return {**sections_of(manifest), "revision": manifest.revision}

    def load(self, *, user_id: str | None = None, agent_name: str | None = None) -> dict[str, Any]:
        """The whole document: ``version, revision, lastUpdated, user, history, facts``. Without an agent it has no
        facts."""
        name = self._name(user_id)
        user = self._user(name)
        if agent_name is None:
            return _document(user.manifest(), [])
        with user.reading(self._scope(user_id, agent_name).agent) as state:
            return _document(user.manifest(), read_facts(state, shown_facts(state)))

    def reload(self, *, user_id: str | None = None, agent_name: str | None = None) -> dict[str, Any]:
        """`load`, after a look for edits of the files, whenever the last one was."""
        if agent_name is not None:
            scope = self._scope(user_id, agent_name)
            with self._user(scope.user).reading(scope.agent, force=True):
                pass
        return self.load(user_id=user_id, agent_name=agent_name)

    def capabilities(self) -> set[str]:
        return {"fact_revisions", "history", "incremental_changes", "migration", "search", "summaries"}

    # Point operations.

    def upsert_fact(
        self,
        fact: Mapping[str, Any],
        expected_manifest_revision: int | None = None,
        expected_fact_revision: int | None = None,
        *,
        user_id: str | None = None,
        agent_name: str | None = None,
    ) -> dict[str, Any]:
        """Write one fact: a new one, or, with `expected_fact_revision`, the one that has this revision.

        The fact is replaced wholly: an optional key that is left out goes. A manifest that has moved on is no conflict.
        Returns the delta, as `apply_changes` does.
        """
        given = checked_fact(fact)
        changes = {"upserts": [given], "upsertRevisions": {given["id"]: expected_fact_revision}}
        return self.apply_changes(changes, expected_manifest_revision, True, user_id=user_id, agent_name=agent_name)

    def delete_fact(
        self,
        id: str,
        expected_manifest_revision: int | None = None,
        expected_fact_revision: int | None = None,
        *,
        user_id: str | None = None,
        agent_name: str | None = None,
    ) -> dict[str, Any]:
        """Delete a fact with the history of its value; returns the delta. A missing one is none, unless a revision is
        expected of it."""
        revisions = None if expected_fact_revision is None else {id: expected_fact_revision}
        changes = {"deletes": [id], "deleteRevisions": revisions}
        return self.apply_changes(changes, expected_manifest_revision, True, user_id=user_id, agent_name=agent_name)

    def apply_changes(
        self,
        change_set: Mapping[str, Any],
        expected_manifest_revision: int | None = None,
        allow_manifest_rebase: bool = False,
        *,
        user_id: str | None = None,
        agent_name: str | None = None,
    ) -> dict[str, Any]:
        """Write several facts and summaries as one commit.

        Args:
            change_set: ``upserts``, facts; ``upsertRevisions``, for each id the revision that must be stored, or None
                if the fact must be absent (by default the fact's own `revision`, or absence); ``deletes``, ids;
                ``deleteRevisions``, likewise; ``summaries``, a patch as for `update_summaries`.
            allow_manifest_rebase: don't mind a manifest that has moved on, if each fact is named with its revision and
                there are no summaries.

        Returns:
            What really changed: ``complete`` (False), ``version``, ``revision``, ``lastUpdated``, ``upsertedFacts``,
            ``deletedFactIds``, and ``evictedFactIds`` if there was not room for all.

        Raises:
            ConflictError: a precondition does not hold; nothing was written.
            InputError: something has the wrong form; nothing was written.
        """
        changes = parse_change_set(change_set)
        scope = self._scope(user_id, agent_name)
        rebase = allow_manifest_rebase and changes.can_rebase
        with self.transaction(scope, look=not rebase) as transaction:
            self._check_manifest(transaction, None if rebase else expected_manifest_revision)
            return self._commit_facts(transaction, changes)

    def update_summaries(
        self, patch: Mapping[str, Any], expected_revision: int | None = None, *, user_id: str | None = None
    ) -> dict[str, Any]:
        """Change the summaries that `patch` names (``{"user": {name: {"summary": text}}, "history": …}``) and no
        others; returns the whole document without facts."""
        patched(empty_sections(), patch, 0.0)
        with self.transaction(Scope(self._name(user_id))) as transaction:
            self._check_manifest(transaction, expected_revision)
            self._write_sections(transaction, patched(sections_of(transaction.user.manifest()), patch, time.time()))
            return _document(transaction.user.manifest(), [])

    # Operations on everything.

    def save(
        self,
        document: Mapping[str, Any],
        *,
        user_id: str | None = None,
        agent_name: str | None = None,
        expected_revision: int | None = None,
    ) -> bool:
        """Make an agent's facts those of `document` (others are deleted), or, without an agent, the user's summaries.

        Returns False, and tells the log why, if it can't be done; nothing was changed then.

        Raises:
            ConflictError: the manifest has another revision than `expected_revision`.
        """
        try:
            if agent_name is None:
                self._save_summaries(document, self._name(user_id), expected_revision)
            else:
                self._save_facts(document, self._scope(user_id, agent_name), expected_revision)
        except ConflictError:
            raise
        except (NanomemError, OSError, ValueError) as error:
            _log.warning("the document was not saved: %s", error)
            return False
        return True

    def _save_facts(self, document: Mapping[str, Any], scope: Scope, expected_revision: int | None) -> None:
        facts = document.get("facts") if isinstance(document, Mapping) else None
        if not isinstance(facts, list):
            raise InputError(f"facts: expected a list of facts; found {facts!r:.80}")
        changes = unconditional(facts)
        with self.transaction(scope) as transaction:
            self._check_manifest(transaction, expected_revision)
            there = [held.record.id for held in shown_facts(transaction.state)]
            self._commit_facts(transaction, changes.without([id for id in there if id not in changes.upserts]))

    def _save_summaries(self, document: Mapping[str, Any], user: str, expected_revision: int | None) -> None:
        if not isinstance(document, Mapping) or document.get("facts"):
            raise InputError("document: expected one without facts, which belong to an agent")
        patch = {name: document.get(name) or {} for name in empty_sections()}
        patched(empty_sections(), patch, 0.0)
        with self.transaction(Scope(user)) as transaction:
            self._check_manifest(transaction, expected_revision)
            before = sections_of(transaction.user.manifest())
            blank = {section: {name: {"summary": ""} for name in names} for section, names in before.items()}
            wanted = {section: blank[section] | dict(patch[section]) for section in blank}
            self._write_sections(transaction, patched(before, wanted, time.time()))

    def clear_all(self, *, user_id: str | None = None) -> dict[str, Any]:
        """Delete every record of every agent of a user, and the summaries. Files that are an agent's own stay.

        Facts of an older layout are taken over first, so that they can't come back. Returns the empty document.
        """
        user = self._user(self._name(user_id), migrate=False)
        self._check_writable()
        if not user.path.is_dir():
            return _document(user.manifest(), [])
        user.folder.remember("default")
        with user.locked():
            migrate(user, clearing=True)
            for agent in dict.fromkeys([*user.agents(), "default"]):
                state, now = user.ready(agent), time.time()
                gone = [id for id, held in state.held.items() if held.record.kind != "purged"]
                sections = empty_sections()
                if gone or (agent == "default" and sections_of(user.manifest()) != sections):
                    writes, note = document_writes(state, user.read, [], gone, now)
                    manifest = user.manifest().next(now, sections)
                    user.commit(state, [*writes, *without_sidecars(state), Replace(FILE, manifest.encode())], note)
            return _document(user.manifest(), [])

    # An older layout.

    def migrate(self, *, user_id: str | None = None, agent_name: str | None = None) -> dict[str, Any]:
        """Take over facts of an older layout; those of ``memory.json`` become the agent's, or the default agent's.

        Any other call does the same, for the default agent. Returns ``migrated``, ``fromVersion``, ``toVersion`` and
        ``revision``.
        """
        scope = self._scope(user_id, DEFAULT_AGENT if agent_name is None else agent_name)
        done = self._migrate_user(scope.user, scope.agent)
        return {
            "migrated": done.state == "migrated",
            "fromVersion": done.from_version,
            "toVersion": done.to_version,
            "revision": self._user(scope.user).manifest().revision,
        }

    def users(self) -> list[str]:
        return sorted({folder.name for folder in self._layout.users()})

    def migrate_user(self, user: str, *, dry_run: bool = False) -> Migration:
        if not self._layout.user(user).path.is_dir():
            raise NotFoundError(f"{user!r} has no folder below {self._layout.root}", id=user)
        if dry_run:
            return plan_migration(self._user(user, migrate=False))
        return self._migrate_user(user, "default")

    def _migrate_user(self, name: str, agent: str) -> Migration:
        user = self._user(name, migrate=False)
        self._check_writable()
        user.folder.remember(agent)
        with user.locked():
            return migrate(user, agent)

    def profile(self, scope: Scope) -> list[Record]:
        return profile_records(sections_of(self._user(scope.user).manifest()))

    def _commit_facts(self, transaction: MarkdownTransaction, changes: ChangeSet) -> dict[str, Any]:
        return FactCommit(transaction, self._max_facts, self._eviction).run(changes)

    def _check_manifest(self, transaction: MarkdownTransaction, expected: int | None) -> None:
        if expected is None:
            return
        found = transaction.user.manifest().revision
        if expected != found:
            raise ConflictError(
                f"user {transaction.state.scope.user!r}: expected manifest revision {expected}, found {found}; load "
                "again and recompute",
                expected=expected,
                found=found,
            )

    def _write_sections(self, transaction: MarkdownTransaction, sections: dict[str, Any]) -> None:
        """Commit the summaries, unless they are the same."""
        if sections != sections_of(transaction.user.manifest()):
            plan = plan_commit(transaction, transaction.state.scope, ())
            transaction.apply(plan, sections)


def _document(manifest: Manifest, facts: list[Fact]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "revision": manifest.revision,
        "lastUpdated": manifest.updated_at,
        **sections_of(manifest),
        "facts": facts,
    }
