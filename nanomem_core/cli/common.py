"""What the sub-commands share: the session, output, and how errors end a command.

Stdout carries results and nothing else; warnings, progress and errors go to stderr.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any

import click

from ..errors import InputError, NanomemError, NotFoundError
from ..hints import one_line

if TYPE_CHECKING:
    from rich.console import Console

    from ..config.model import Settings
    from ..config.sources import LoadedSettings
    from ..records import Scope
    from ..registry.manager import PluginManager

__all__ = [
    "Failure",
    "Session",
    "console",
    "echo_json",
    "echo_result",
    "exit_code",
    "json_option",
    "logging_to_stderr",
    "messages_for_errors",
    "no_record",
    "pass_session",
    "read_stdin",
    "stderr_console",
    "warn",
]


class Failure(click.ClickException):
    """Ends a command with a message on stderr and exit code 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        warn(self.message)


def warn(message: str) -> None:
    """A message on stderr."""
    click.echo(f"nanomem: {message}", err=True)


class Session:
    """The global options of one run, and what is made from them when a command asks for it."""

    def __init__(self, config: str | None, vault: str | None, user: str | None, agent: str | None) -> None:
        self.config = config
        self._settings: dict[str, Any] = {}
        self._scope: dict[str, str] = {}
        for option, value in (("vault", vault), ("user", user), ("agent", agent)):
            if value is not None:
                self.override(option, value)

    def override(self, option: str, value: Any) -> None:
        """Take ``vault``, ``user``, ``agent``, or a setting, from the command line; the last one given counts.

        A vault is the arena at that path, seen from the current directory.
        """
        if option == "vault":
            self._settings["storage"] = {"use": "arena", "path": os.path.abspath(value)}
        elif option in ("user", "agent"):
            self._scope[option] = value
        else:
            self._settings[option] = value

    def copy(self) -> Session:
        """A session with the same options, to override some of them."""
        other = Session(self.config, None, None, None)
        other._settings.update(self._settings)
        other._scope.update(self._scope)
        return other

    @property
    def named_scope(self) -> dict[str, str]:
        """``user`` and ``agent``, where they were given."""
        return dict(self._scope)

    @property
    def scope(self) -> Scope:
        """Whose memory the command is about."""
        from ..records import Scope

        return Scope(**self._scope)

    @cached_property
    def loaded(self) -> LoadedSettings:
        """The settings with their origins."""
        from ..config.sources import load_settings

        return load_settings(self.config, command_line=self._settings)

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @cached_property
    def plugins(self) -> PluginManager:
        """The plugins, loaded; those that can't be used are named on stderr. With strict settings, using any raises."""
        from ..registry.manager import PluginManager

        manager = PluginManager.discover(self.settings.plugins, data_dir=self.settings.data_dir)
        # A plugin that prints when it is imported must not mix with the results.
        with contextlib.redirect_stdout(sys.stderr):
            statuses = manager.statuses
        for status in statuses:
            if status.is_problem and not self.settings.plugins.strict:
                warn(str(status))
        return manager


pass_session = click.make_pass_decorator(Session)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def echo_json(value: object) -> None:
    """Print `value` as one JSON document: also dataclasses, paths, and anything else as its text."""
    ascii_only = "utf" not in (getattr(sys.stdout, "encoding", None) or "").lower()
    click.echo(json.dumps(value, indent=2, ensure_ascii=ascii_only, default=_jsonable))


def echo_result(as_json: bool, value: object, text: str) -> None:
    """Print what a command did: `value` as JSON, or `text` for a person."""
    if as_json:
        echo_json(value)
    else:
        click.echo(text)


def no_record(*ids: str) -> NotFoundError:
    """The error that ends a command which was given `ids` of nothing."""
    return NotFoundError(f"there is no record with the id {', '.join(map(repr, ids))}", id=ids[0])


def read_stdin() -> str:
    """All of standard input.

    Raises:
        InputError: it is no UTF-8.
    """
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"standard input: expected UTF-8; found byte {error.object[error.start]:#04x} at {error.start}"
        ) from None


def _jsonable(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def console() -> Console:
    """For tables on stdout: prints texts as they are, and wraps lines only on a terminal."""
    return _console(stderr=False)


def stderr_console() -> Console:
    """For progress on stderr."""
    return _console(stderr=True)


def _console(stderr: bool) -> Console:
    from rich.console import Console

    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, width=None if terminal else 10_000)


# How a run ends.


@contextlib.contextmanager
def messages_for_errors(debug: bool) -> Iterator[None]:
    """Raise a `Failure` with a message in place of any error; with `debug` the error itself, for its traceback."""
    try:
        yield
    except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
        raise
    except Exception as error:
        if debug:
            raise
        if isinstance(error, (NanomemError, OSError)):
            raise Failure(str(error)) from error
        raise Failure(f"unexpected {one_line(error)}; --debug shows where") from error


def exit_code(run: Callable[[], object]) -> int:
    """Run a command; what it ended with as a number for the shell.

    0 all is well; 1 an error, which was told on stderr; 2 a wrong use of the command line; 130 interrupted (Ctrl-C).
    """
    for stream in (sys.stdout, sys.stderr):
        # What the terminal's encoding lacks is written as an escape rather than ending the command.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = run()
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as error:
        return 130 if isinstance(error.__cause__, KeyboardInterrupt) else 1
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        if not _is_broken_pipe(error):
            raise
        # The reader has gone. What is still buffered must not fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code if isinstance(code, int) else 0


def _is_broken_pipe(error: OSError) -> bool:
    # Windows reports EINVAL for a pipe whose reader has gone.
    return isinstance(error, BrokenPipeError) or (
        os.name == "nt" and error.errno == errno.EINVAL and error.filename is None
    )


@contextlib.contextmanager
def logging_to_stderr(debug: bool) -> Iterator[None]:
    """Show the library's warnings as messages; with `debug`, everything with tracebacks."""
    logger = logging.getLogger("nanomem")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(debug))
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


class _Formatter(logging.Formatter):
    def __init__(self, debug: bool) -> None:
        super().__init__("nanomem: %(message)s")
        self._debug = debug

    def formatException(self, ei: Any) -> str:
        return super().formatException(ei) if self._debug else ""

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).rstrip()
