"""Runs the examples of a Markdown page, from top to bottom, in a folder of their own.

A fenced block is treated by its language:

* ``python`` is executed; the blocks of a page share their names.
* ``pycon`` is executed as a doctest in the same names; the values shown must be the values obtained.
* ``console``: each line that starts with ``$ `` is run by the shell. Where lines follow it, they must be what the
  command prints, standard error included; ``...`` stands for anything. A command must exit with 0, unless its line
  ends with ``# exit N``.
* ``json``, ``toml`` and ``yaml`` must parse.
* ``text`` and ``mermaid`` are only shown.

Any other language, and no language, is an error, so no block goes unread. An HTML comment on the line before a block
changes what is done with it: ``<!-- file: NAME -->`` also writes it to that file of the folder, and
``<!-- not run: REASON -->`` leaves it out.
"""

from __future__ import annotations

import doctest
import json
import os
import re
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from markdown_it import MarkdownIt

__all__ = ["Block", "ExampleError", "blocks_of", "run_page"]

SHOWN_ONLY = ("mermaid", "text")
COMMAND_TIMEOUT = 120
_MARKER = re.compile(r"<!--\s*(file|not run)\s*:\s*(.*?)\s*-->\s*$", re.DOTALL)
_EXIT = re.compile(r"#\s*exit (\d+)\s*$")


class ExampleError(AssertionError):
    """An example does not do what its page says."""


@dataclass(frozen=True)
class Block:
    """A fenced block: `line` is the number of its first line of code, from 1; `file` and `skipped` are its markers."""

    language: str
    code: str
    line: int
    file: str | None = None
    skipped: bool = False


def blocks_of(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, wherever they stand: in lists, quotes and tables too."""
    marker: tuple[str, str] | None = None
    for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
        if token.type == "fence":
            kind, value = marker or ("", "")
            line = (token.map or [0])[0] + 2
            if marker and not value:
                raise ExampleError(f"{page}:{line - 1}: the marker `{kind}` says nothing after its colon")
            language = token.info.split()[0] if token.info.strip() else ""
            yield Block(language, token.content, line, value if kind == "file" else None, kind == "not run")
        if token.nesting == 0:
            found = _MARKER.match(token.content) if token.type == "html_block" else None
            marker = (found[1], found[2]) if found else None


def run_page(page: Path, folder: Path) -> int:
    """Run every block of `page` with `folder` as the current one; returns how many were run or read.

    The caller has made `folder` the working directory and put it on `sys.path`.

    Raises:
        ExampleError: a block has an unknown language, does not parse, or its output differs.
    """
    module = types.ModuleType("page")
    sys.modules[module.__name__] = module  # dataclasses and typing look a class's module up here
    done = 0
    for block in blocks_of(page):
        if block.skipped:
            continue
        where = f"{page}:{block.line}"
        if block.file is not None:
            target = folder / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.code, encoding="utf-8")
        if block.language == "python":
            # Blank lines in front make the line numbers of a traceback those of the page.
            exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), vars(module))
        elif block.language == "pycon":
            _run_doctest(block, where, vars(module))
        elif block.language == "console":
            for command, expected in _commands(block, where):
                _run_command(command, expected, where, folder)
        elif block.language in _PARSERS:
            _parse(block, where)
        elif block.language not in SHOWN_ONLY:
            known = ", ".join(("python", "pycon", "console", *_PARSERS, *SHOWN_ONLY))
            raise ExampleError(
                f"{where}: expected a block in one of {known}; found {block.language or 'no language'!r}"
            )
        done += 1
    return done


def _run_doctest(block: Block, where: str, names: dict[str, object]) -> None:
    test = doctest.DocTestParser().get_doctest(block.code, names, where, where, block.line - 1)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    if runner.run(test, out=report.append, clear_globs=False).failed:
        raise ExampleError("".join(report))
    names.update(test.globs)


def _commands(block: Block, where: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block, and the output shown under it ("" for none)."""
    command: str | None = None
    output: list[str] = []
    for line in block.code.splitlines():
        if line.startswith("$ "):
            if command is not None:
                yield command, "\n".join(output).strip()
            command, output = line[2:], []
        elif command is None:
            raise ExampleError(f"{where}: a console block starts with `$ ` and a command; found {line!r}")
        elif command.endswith("\\") and not output:
            command = command[:-1] + line.removeprefix("> ")
        else:
            output.append(line)
    if command is not None:
        yield command, "\n".join(output).strip()


def _run_command(command: str, expected: str, where: str, folder: Path) -> None:
    found = _EXIT.search(command)
    status = int(found[1]) if found else 0
    done = subprocess.run(
        _EXIT.sub("", command),
        shell=True,
        cwd=folder,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=COMMAND_TIMEOUT,
    )
    shown = "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())
    if done.returncode != status:
        raise ExampleError(f"{where}: `{command}` exited with {done.returncode}, not {status}:\n{shown}")
    if expected and not _matches(expected, shown):
        raise ExampleError(f"{where}: `{command}` printed\n\n{shown}\n\nbut the page shows\n\n{expected}")


def _matches(expected: str, shown: str) -> bool:
    lines = "\n".join(line.rstrip() for line in expected.splitlines())
    pattern = ".*".join(re.escape(part) for part in lines.split("..."))
    return re.fullmatch(pattern, shown, re.DOTALL) is not None


_PARSERS = {
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
}


def _parse(block: Block, where: str) -> None:
    try:
        _PARSERS[block.language](block.code)
    except (ValueError, yaml.YAMLError) as error:
        raise ExampleError(f"{where}: this is no {block.language}: {error}") from error
