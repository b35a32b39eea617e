"""The slash commands of ``nanomem chat``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..config.model import component, masked
from ..errors import InputError, NotFoundError
from ..hints import did_you_mean
from ..interfaces import Generator
from ..memory import Memory
from ..pipeline.chats import read_chats
from ..records import Scope, check_name
from ..system import MemorySystem
from .common import Session
from .options import confirm
from .show import count, plain, print_entries, print_table

if TYPE_CHECKING:
    from .chat import Conversation

__all__ = ["Commands"]

_DUMPED = 20
"""Records that /dump shows by default."""


class _Command(NamedTuple):
    usage: str
    help: str
    run: Callable[[Commands, str, Conversation], None]


class Commands:
    """Runs commands on a memory, and holds what they choose: whose memory it is, and which model answers.

    Attributes:
        user: whose memory.
        generator: the model, None for none.
    """

    def __init__(self, session: Session, memory: Memory) -> None:
        self._session = session
        self._memory = memory
        self._agent = memory.scope.agent
        self._spec: Mapping[str, Any] | None = session.settings.generator
        self._built: Generator | None = None
        self.user = memory.scope.user
        self.generator = memory.generator

    def close(self) -> None:
        """Close the model that a command chose."""
        if self._built is not None:
            self._built.close()

    def run(self, line: str, conversation: Conversation) -> bool:
        """Run the command of `line`, which begins with a slash; False if it ends the conversation.

        Raises:
            InputError: there is no such command, or its arguments are wrong.
        """
        name, _, rest = line[1:].strip().partition(" ")
        if name in ("quit", "exit"):
            return False
        found = _COMMANDS.get(name)
        if found is None:
            raise InputError(f"there is no command /{name}{did_you_mean(name, _COMMANDS)}; /help lists them")
        found.run(self, rest.strip(), conversation)
        return True

    def _help(self, rest: str, conversation: Conversation) -> None:
        rows = [(each.usage, each.help) for each in _COMMANDS.values()]
        print_table(("command", "what it does"), [*rows, ("/quit", "End the conversation.")])

    # Whose memory.

    def _users(self) -> list[str]:
        return sorted({scope.user for scope in self._memory.storage.scopes() if scope.agent == self._agent})

    def _list_users(self, rest: str, conversation: Conversation) -> None:
        for name in sorted({*self._users(), self.user}):
            click.echo(f"{'*' if name == self.user else ' '} {plain(name)}")

    def _user(self, rest: str, conversation: Conversation) -> None:
        verb, _, name = rest.partition(" ")
        name = name.strip()
        if verb not in ("create", "switch") or not name:
            raise InputError("expected /user create NAME or /user switch NAME")
        users = self._users()
        if verb == "create" and name in users:
            raise InputError(f"{name!r} has a memory already; /user switch {name} goes on with it")
        if verb == "switch" and name not in users:
            raise NotFoundError(
                f"{name!r} has no memory here{did_you_mean(name, users)}; /user create {name} begins one", id=name
            )
        self.user = check_name(name, "user")
        conversation.forget_turns()
        click.echo(f"This is the memory of {plain(name)} now.")

    # What is remembered.

    def _stats(self, rest: str, conversation: Conversation) -> None:
        print_table(("what", "value"), self._memory.stats().items())

    def _inspect(self, rest: str, conversation: Conversation) -> None:
        if not rest:
            print_table(("what", "value"), self._memory.inspect(user=self.user).items())
            return
        verdict = self._memory.inspect_memory(rest, context=list(conversation.said), user=self.user)
        by = f" (says {verdict.judge})" if verdict.judge else ""
        click.echo(
            plain(f"{'To be remembered' if verdict.should_store else 'Not to be remembered'}: {verdict.reason}{by}.")
        )

    def _dump(self, rest: str, conversation: Conversation) -> None:
        if rest and not (rest.isascii() and rest.isdigit()):
            raise InputError(f"/dump: expected a number of records; found {rest!r}")
        total = int(self._memory.storage.columns(Scope(self.user, self._agent)).where("fact").sum())
        first = max(0, total - int(rest or _DUMPED))
        print_entries(self._memory.records(offset=first, user=self.user), "Nothing is remembered yet.", ids=True)
        if first:
            click.echo(f"The newest {total - first} of {count(total, 'record')}.")

    def _cite(self, rest: str, conversation: Conversation) -> None:
        if rest not in ("", "on", "off"):
            raise InputError(f"/cite: expected on, off or nothing; found {rest!r}")
        conversation.cite = not conversation.cite if not rest else rest == "on"
        click.echo(f"Citations are {'on' if conversation.cite else 'off'}.")

    def _forget(self, rest: str, conversation: Conversation) -> None:
        if not rest:
            raise InputError("expected /forget and what to forget")
        found = self._memory.forget(rest, dry_run=True, user=self.user)
        print_entries(found, "Nothing fits that well enough; say it in other words.")
        if found:
            confirm("Delete it?", False)
            deleted = self._memory.delete(ids=[hit.id for hit in found], user=self.user)
            click.echo(f"Deleted {count(deleted, 'record')}.")

    def _ingest(self, rest: str, conversation: Conversation) -> None:
        path = _path(rest, "/ingest")
        if path.is_dir():
            report = self._memory.ingest_directory(path, user=self.user)
            for name, reason in report["failed"].items():
                click.echo(plain(f"Not read: {name}: {reason}"))
            sections = report["chunks_indexed"]
        else:
            sections = self._memory.ingest_file(path, user=self.user)
        click.echo(f"Read {count(sections, 'section')}.")

    def _import(self, rest: str, conversation: Conversation) -> None:
        chats = read_chats(_path(rest, "/import"))
        settings = self._session.settings
        system = MemorySystem(
            self._memory, segmenter=settings.segmenter, generator=self.generator, settings=settings.conversation
        )
        try:
            report = system.import_chats(chats, user=self.user)
        finally:
            system.close(timeout=None)
        click.echo(
            f"Imported {count(report['added'], 'message')} of {count(report['chats'], 'chat')} as "
            f"{count(report['episodes'], 'episode')}; {report['skipped']} skipped."
        )

    # Which model.

    def _model(self, rest: str, conversation: Conversation) -> None:
        if rest:
            if self._spec is None:
                raise InputError("/model: no provider is set; /provider NAME chooses one")
            self._choose({**self._spec, "model": rest})
        self._tell_model()

    def _provider(self, rest: str, conversation: Conversation) -> None:
        words = rest.split()
        if words == ["none"]:
            self._choose(None)
        elif words:
            pairs = [word.partition("=") for word in words[1:]]
            if not all(key and equals for key, equals, _ in pairs):
                raise InputError("expected /provider NAME [OPTION=VALUE…]")
            self._choose(component({"use": words[0], **{key: value for key, _, value in pairs}}))
        self._tell_model()

    def _choose(self, spec: Mapping[str, Any] | None) -> None:
        built = None if spec is None else self._memory.build("generator", spec)
        self.close()
        self._spec, self._built, self.generator = spec, built, built

    def _tell_model(self) -> None:
        if self._spec is None:
            click.echo("No model is set.")
        else:
            options = ", ".join(f"{key} {value}" for key, value in masked(self._spec).items() if key != "use")
            click.echo(plain(f"{self._spec['use']}{f' ({options})' if options else ''} answers."))


def _path(rest: str, command: str) -> Path:
    path = Path(rest).expanduser()
    if not rest or not path.exists():
        found = repr(str(path)) if rest else "nothing"
        raise NotFoundError(f"{command}: expected a file or folder that exists; found {found}", id=rest or None)
    return path


_COMMANDS: dict[str, _Command] = {
    "help": _Command("/help", "List the commands.", Commands._help),
    "users": _Command("/users", "List who has a memory here.", Commands._list_users),
    "user": _Command("/user create|switch NAME", "Go on as somebody else.", Commands._user),
    "stats": _Command("/stats", "Tell facts about the store.", Commands._stats),
    "inspect": _Command("/inspect [TEXT]", "Count records, or tell whether TEXT would be stored.", Commands._inspect),
    "dump": _Command("/dump [N]", f"Show the newest records, {_DUMPED} by default.", Commands._dump),
    "cite": _Command("/cite [on|off]", "Turn citations on or off.", Commands._cite),
    "forget": _Command("/forget TEXT", "Delete the record that TEXT describes best.", Commands._forget),
    "ingest": _Command("/ingest PATH", "Remember a text file, or those of a folder.", Commands._ingest),
    "import": _Command("/import FILE", "Take in an export of chats.", Commands._import),
    "model": _Command("/model [NAME]", "Tell or change the model of the provider.", Commands._model),
    "provider": _Command("/provider [NAME [OPTION=VALUE…]|none]", "Tell or change who answers.", Commands._provider),
}
