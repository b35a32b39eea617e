"""What holds for every command on a memory: its help, its JSON, and its way with a user's mistakes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from nanomem_core import Vault
from nanomem_core.cli import COMMANDS, main
from nanomem_core.cli.options import Command

from .conftest import Nanomem
from .memories import job_history

READS = {
    "as-of": ["2026-01-01"],
    "ask": ["peanuts", "--filter", "topic=nothing", "--generator", '{"use": "ollama", "model": "m"}'],
    "changes": [],
    "context": ["peanuts"],
    "conversation episodes": [],
    "conversation status": [],
    "current": [],
    "doctor": [],
    "entities": [],
    "export": ["out.jsonl"],
    "get": ["{id}"],
    "history": ["peanuts"],
    "inspect": [],
    "search": ["peanuts"],
    "split": ["part.dat", "--where", "topic=health"],
    "stats": [],
    "user list": [],
    "user show": ["default"],
    "volatility": [],
}
CHANGES = {
    "compact": [],
    "conversation flush": [],
    "conversation retry": [],
    "delete": ["{id}"],
    "forget": ["Moved to Birch Labs", "--yes"],
    "merge": ["other.dat"],
    "prune": ["--superseded", "--yes"],
    "purge": ["{id}", "--yes"],
    "reembed": [],
    "restore": ["{id}"],
    "retract": ["{id}"],
    "tag": ["--yes"],
    "unmerge": ["other.dat"],
    "update": ["{id}", "another text"],
    "user delete": ["default", "--yes"],
}
MAKERS = {
    "add": ["a text"],
    "chat": [],
    "conversation add": ["a text"],
    "conversation import": ["chat.jsonl"],
    "demo": [],
    "import": ["other.jsonl"],
    "ingest": ["notes.md"],
    "init": [],
}

MISTAKES = [
    (["add"], 2, "Missing argument 'TEXT'"),
    (["add", "  "], 1, "empty text"),
    (["add", "x", "--timestamp", "soon"], 2, "--timestamp"),
    (["add", "x", "--timestamp", "1735689600000"], 2, "milliseconds"),
    (["add", "x", "--metadata", "novalue"], 2, "key=value"),
    (["add", "x", "--metadata", '{"a":'], 2, "JSON object"),
    (["add", "x", "--metadata", "text=y"], 1, "reserved"),
    (["add", "x", "--entity", "…"], 1, "entity"),
    (["add", "--lines", "a\nb", "--id", "x"], 2, "--id names one record"),
    (["as-of", "soon", "x"], 2, "soon"),
    (["ask", "x"], 1, "generator"),
    (["ask", "x", "--generator", "ollamma"], 1, "ollama"),
    (["ask", "x", "--generator", '{"model": "m"}'], 2, "`use`"),
    (["ask", "x", "--stream", "--json"], 2, "--json"),
    (["ask", " ", "--generator", '{"use": "ollama", "model": "m"}'], 1, "question"),
    (["changes", "--since", "2026-02-01", "--until", "2026-01-01"], 1, "before"),
    (["changes", "--since", "yesterday-ish"], 2, "--since"),
    (["conversation", "add"], 2, "Missing argument 'TEXT'"),
    (["conversation", "add", "x", "--timestamp", "soon"], 2, "--timestamp"),
    (["conversation", "add", "x", "--role", ""], 1, "role"),
    (["conversation", "import", "nothing.json"], 1, "nothing.json"),
    (["conversation", "import", "notes.md"], 1, "notes.md"),
    (["conversation", "import", "notes.jsonl"], 1, "role and content"),
    (["conversation", "retry", "nothing-like-it"], 1, "nothing-like-it"),
    (["delete"], 2, "either ids, or"),
    (["delete", "x", "--where", "a=b"], 2, "either ids, or"),
    (["delete", "nothing-like-it"], 1, "nothing-like-it"),
    (["demo", "--keep", "memory.dat"], 1, "exists already"),
    (["doctor", "notes.md"], 1, "notes.md"),
    (["export", "-"], 2, "TARGET is a file"),
    (["export", "there.jsonl"], 1, "--force"),
    (["forget", "x", "--top-k", "0"], 2, "--top-k"),
    (["get", "nothing-like-it"], 1, "nothing-like-it"),
    (["history"], 2, "one of QUERY"),
    (["history", "x", "--entity", "y"], 2, "one of QUERY"),
    (["history", "--id", "nothing-like-it"], 1, "nothing-like-it"),
    (["import", "nothing.jsonl"], 1, "nothing.jsonl"),
    (["import", "notes.md"], 1, "notes.md"),
    (["import", "a", "b"], 2, "nanomem FILE"),
    (["import", "notes.jsonl"], 1, "nanomem export"),
    (["import", "there.jsonl", "--keep-vectors"], 2, "--keep-vectors"),
    (["ingest", "nothing.md"], 1, "nothing.md"),
    (["init", "--embedder", "lexicla"], 1, "lexical"),
    (["merge", "nothing.dat"], 1, "nothing.dat"),
    (["prune"], 2, "--older-than"),
    (["prune", "--superseded", "--free", "5"], 2, "--superseded goes with"),
    (["purge", "nothing-like-it", "--yes"], 1, "nothing-like-it"),
    (["reembed", "--to", "no-such-model"], 1, "no-such-model"),
    (["reembed", "--to", '{"dim": 64}'], 2, "`use`"),
    (["restore", "nothing-like-it"], 1, "nothing-like-it"),
    (["retract"], 2, "either ID or --entity"),
    (["retract", "--entity", "shoe size"], 1, "shoe size"),
    (["retract", "--entity", "employer", "--at", "1999-01-01"], 1, "after"),
    (["search"], 2, "Missing argument 'QUERY'"),
    (["search", "x", "--filter", "novalue"], 2, "key=value"),
    (["search", "x", "--filter", '{"a": {"$bigger": 1}}'], 2, "$bigger"),
    (["search", "x", "--mode", "psychic"], 2, "psychic"),
    (["search", "x", "--user", ""], 1, "user"),
    (["search", "x", "--vault", "notes.md"], 1, "notes.md"),
    (["split", "t.dat"], 2, "either --key"),
    (["split", "t.dat", "--key", "a", "--where", "b=c"], 2, "either --key"),
    (["tag", "--tagger", "keywords"], 1, "did you mean 'keyword'"),
    (["unmerge", " "], 1, "empty"),
    (["update", "x"], 2, "to change"),
    (["update", "nothing-like-it", "text"], 1, "nothing-like-it"),
    (["update", "{id}", "text", "--expect", "7"], 1, "version"),
    (["update", "{id}", ""], 1, "empty"),
    (["user", "delete", "nobody"], 1, "nobody"),
    (["user", "show", "nobody"], 1, "nobody"),
    (["volatility", "--min-revisions", "0"], 2, "--min-revisions"),
]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A folder with a memory and files to read, and the ids of the memory's records."""
    folder = tmp_path_factory.mktemp("made")
    ids = job_history(str(folder / "memory.dat"))
    job_history(str(folder / "other.dat"))
    with Vault(folder / "other.dat") as other:
        other.export(folder / "other.jsonl")
        other.export(folder / "there.jsonl")
    (folder / "notes.md").write_text("# Notes\n\nA word or two.\n", encoding="utf-8")
    (folder / "chat.jsonl").write_text('{"role": "user", "content": "hi"}\n', encoding="utf-8")
    (folder / "notes.jsonl").write_text('{"a": 1}\n', encoding="utf-8")
    return folder, ids


@pytest.fixture
def memory(made: tuple[Path, list[str]], cwd: Path) -> list[str]:
    """A copy of what was made, in the current directory; the ids of the records."""
    folder, ids = made
    shutil.copytree(folder, cwd, dirs_exist_ok=True)
    return ids


def commands(group: click.Group = main, *names: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        if group is main and name not in COMMANDS:
            continue  # of another distribution that happens to be installed
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)
        else:
            yield " ".join((*names, name)), command


WITH_EXAMPLES = {name: command for name, command in commands() if isinstance(command, Command)}
ABOUT_NO_MEMORY = ("config", "evaluate", "migrate", "plugins")


def test_every_command_on_a_memory_is_in_a_table_of_this_module() -> None:
    names = {name for name, _ in commands() if name.split()[0] not in ABOUT_NO_MEMORY}
    assert sorted({**READS, **CHANGES, **MAKERS}) == sorted(names)
    assert names <= set(WITH_EXAMPLES)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_help_gives_examples_that_the_command_takes(name: str, nanomem: Nanomem) -> None:
    shown = nanomem(*name.split(), "--help").stdout
    assert WITH_EXAMPLES[name].examples
    for example in WITH_EXAMPLES[name].examples:
        assert f"  $ {example}\n" in shown
        words = shlex.split(example.partition(" < ")[0])
        assert words[: 1 + len(name.split())] == ["nanomem", *name.split()]
        WITH_EXAMPLES[name].make_context(name, words[1 + len(name.split()) :], resilient_parsing=False)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_every_option_has_a_help_text(name: str) -> None:
    options = [each for each in WITH_EXAMPLES[name].params if isinstance(each, click.Option)]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("name", {**READS, **CHANGES, **MAKERS})
def test_json_is_one_object_and_nothing_else_is_on_stdout(name: str, memory: list[str], nanomem: Nanomem) -> None:
    arguments = [word.replace("{id}", memory[0]) for word in {**READS, **CHANGES, **MAKERS}[name]]
    result = nanomem(*name.split(), *arguments, "--json")
    assert result.exit_code == 0, result.output
    printed, documented = set(json.loads(result.stdout)), set(WITH_EXAMPLES[name].keys)
    assert documented <= printed if name == "stats" else documented == printed
    assert documented


@pytest.mark.parametrize("name", {**READS, **CHANGES})
def test_without_a_memory_it_fails_with_a_hint_and_makes_no_file(name: str, cwd: Path, nanomem: Nanomem) -> None:
    arguments = [word.replace("{id}", "x") for word in {**READS, **CHANGES}[name]]
    for form in ([], ["--json"]):
        result = nanomem(*name.split(), *arguments, *form)
        assert result.exit_code == 1
        assert result.stdout == ""
        assert "nanomem init" in result.stderr
        assert str(cwd / "memory.dat") in result.stderr
    assert os.listdir(cwd) == []


@pytest.mark.parametrize("name", READS)
def test_a_read_changes_nothing_on_disk(name: str, memory: list[str], cwd: Path, nanomem: Nanomem) -> None:
    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in cwd.iterdir() if path.name.startswith("memory.dat")}

    before = files()
    arguments = [word.replace("{id}", memory[0]) for word in READS[name]]
    assert nanomem(*name.split(), *arguments).exit_code == 0
    assert files() == before


@pytest.mark.parametrize(("arguments", "code", "message"), MISTAKES, ids=lambda value: str(value)[:60])
def test_a_mistake_is_told_on_stderr(
    arguments: list[str], code: int, message: str, memory: list[str], nanomem: Nanomem
) -> None:
    result = nanomem(*(word.replace("{id}", memory[0]) if word == "{id}" else word for word in arguments))
    assert result.exit_code == code, result.output
    assert message in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert "unexpected" not in result.stderr


@pytest.mark.parametrize("name", [*READS, *CHANGES])
def test_the_global_options_may_stand_before_or_after_the_command(name: str, cwd: Path, nanomem: Nanomem) -> None:
    before = nanomem("--vault", "gone.dat", *name.split(), *READS.get(name, CHANGES.get(name, [])))
    after = nanomem(*name.split(), *READS.get(name, CHANGES.get(name, [])), "--vault", "gone.dat")
    assert str(cwd / "gone.dat") in before.stderr
    assert (before.exit_code, before.stderr) == (after.exit_code, after.stderr)
