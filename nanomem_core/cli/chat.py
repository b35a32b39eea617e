"""``nanomem chat``: a conversation in the terminal, with a model or as a shell of the memory alone."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from typing import IO, Any, Literal, get_args

import click

from ..errors import GeneratorError, InputError, NanomemError
from ..hints import one_line
from ..interfaces import ChatMessage
from ..memory import Memory
from .ask import print_pieces, print_sources, top_k_option
from .chat_commands import Commands
from .common import Failure, Session, echo_json, warn
from .opening import opened
from .options import generator_option, kind_option, memory_command, search_options
from .show import count, others_told, plain, print_entries

__all__ = ["chat"]

Gate = Literal["rules", "model", "all", "none"]

_TURNS = 40
"""Turns of the conversation that are kept; of those a prompt holds what has room in it."""


@memory_command(
    "chat",
    keys=("turns",),
    examples=(
        "nanomem chat",
        "nanomem chat --user ann --gate model",
        "nanomem chat < lines.txt",
    ),
)
@top_k_option
@search_options
@kind_option
@generator_option
@click.option("--no-cite", is_flag=True, help="Without citations; /cite turns them on and off.")
@click.option(
    "--gate",
    type=click.Choice(get_args(Gate)),
    default="rules",
    show_default=True,
    help="What is stored: what the rules don't rule out, or the model doesn't either; all, or none of it.",
)
def chat(session: Session, as_json: bool, no_cite: bool, gate: Gate, **options: Any) -> None:
    """Talk: what you say is looked up, remembered if it is worth that, and answered by the configured model.

    Without a model it shows what is known instead. A line that starts with / is a command; /help lists them. Ctrl-C
    stops a reply, and ends the conversation at the prompt; so does the end of the input. Lines may come from a pipe:
    then the exit code is 1 if a line could not be served.
    """
    out = sys.stderr if as_json else sys.stdout
    with opened(session, "create") as memory, Conversation(session, memory, out, gate, options) as conversation:
        conversation.cite = not no_cite
        conversation.run()
    if as_json:
        echo_json({"turns": conversation.turns})
    if conversation.failed and not conversation.interactive:
        raise Failure(f"{count(conversation.failed, 'line')} could not be served; see above")


class Conversation:
    """One run of the command. It is over with `close`, which ends what was built for it.

    Attributes:
        turns: what became of each message: `ChatTurn.to_dict`, and ``error``.
        failed: how many lines could not be served.
    """

    def __init__(self, session: Session, memory: Memory, out: IO[str], gate: Gate, search: Mapping[str, Any]) -> None:
        """`search`: how what is known of a message is looked up, as in `Memory.chat`."""
        self.memory = memory
        self.out = out
        self.gate = gate
        self.search = search
        self.cite = True
        self.interactive = sys.stdin.isatty()
        self.turns: list[dict[str, Any]] = []
        self.failed = 0
        self.said: deque[ChatMessage] = deque(maxlen=_TURNS)
        self.commands = Commands(session, memory)

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.commands.close()

    def run(self) -> None:
        """Serve line after line until the input ends or a command ends it."""
        if self.commands.generator is None:
            self._note(
                "No model is set, so nobody answers: what you say is remembered, and what is known of it shown. "
                "/provider chooses a model."
            )
            if self.gate == "model":
                self._note("Nor is there one for --gate model: the rules alone decide what is remembered.")
        elif self.interactive:
            self._note("/help lists the commands.")
        for line in self._lines():
            if not line.strip():
                continue
            try:
                if line.startswith("/"):
                    with contextlib.redirect_stdout(self.out):
                        go_on = self.commands.run(line, self)
                    if not go_on:
                        return
                else:
                    self._serve(line.strip())
            except KeyboardInterrupt:
                click.echo(file=self.out)
                self._note("Stopped.")
            except (NanomemError, OSError, click.ClickException) as error:
                self.failed += 1
                warn(error.message if isinstance(error, click.ClickException) else str(error))

    def forget_turns(self) -> None:
        """Begin a new conversation, as with another user."""
        self.said.clear()

    def _serve(self, message: str) -> None:
        turn, stream = self.memory.chat_stream(
            message,
            self.commands.generator,
            store={"all": True, "none": False}.get(self.gate),
            gate=self.commands.generator if self.gate == "model" else None,
            reply=self.commands.generator is not None,
            cite=self.cite,
            conversation=list(self.said),
            user=self.commands.user,
            **self.search,
        )
        report = {**turn.to_dict(), "error": None}
        self.turns.append(report)
        self._note(f"{'Remembered' if turn.stored else 'Not remembered'}: {plain(turn.reason)}.")
        if stream is None:
            with contextlib.redirect_stdout(self.out):
                print_entries(turn.context, "Nothing is known of it yet.")
            if turn.context.other_kinds:
                self._note(others_told(turn.context.other_kinds))
            return
        try:
            with stream:
                print_pieces(stream, self.out)
                answer = stream.answer
        except (GeneratorError, KeyboardInterrupt) as error:
            report["error"] = one_line(error)
            raise
        else:
            report["reply"] = answer.to_dict()
            self.said += [{"role": "user", "content": message}, {"role": "assistant", "content": answer.answer}]
            with contextlib.redirect_stdout(self.out):
                print_sources(answer)

    def _lines(self) -> Iterator[str]:
        if not self.interactive:
            try:
                yield from (line.rstrip("\r\n") for line in iter(sys.stdin.readline, ""))
            except UnicodeDecodeError as error:
                raise InputError(f"standard input: expected {error.encoding}; {error.reason}") from None
            return
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  # gives input() its keys
        while True:
            try:
                with contextlib.redirect_stdout(self.out):
                    yield input(f"{plain(self.commands.user)}> ")
            except EOFError:
                click.echo(file=self.out)
                return

    def _note(self, text: str) -> None:
        click.echo(text, err=True)
