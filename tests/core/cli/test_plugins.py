"""``nanomem plugins``."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from ..conftest import Site
from .conftest import Nanomem

GOOD = """
print("hello from the import")
from nanomem_core.interfaces import Generator
from pydantic import SecretStr

class Echo(Generator):
    name = "echo"

    def __init__(self, model: str, api_key: SecretStr = SecretStr("s3cret"), temperature: float = 0.5) -> None: ...

    def complete(self, messages, *, temperature=0.0, max_tokens=None, schema=None): ...

def nanomem_register_generator():
    print("hello from the hook")
    return [Echo]
"""
OTHER = GOOD.replace("float = 0.5", "float = 0.6")
ECHO = {"NANOMEM_PLUGINS__LOAD": "echo"}


def test_the_list_shows_every_plugin_with_state_and_components(site: Site, nanomem: Nanomem) -> None:
    site.install("nanomem-echo", "echo", GOOD)
    site.install("nanomem-bad", "bad", "raise ImportError('no such library')")
    result = nanomem("plugins", "list", "--json", NANOMEM_PLUGINS__LOAD="echo,bad,gone")
    assert result.exit_code == 0
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert rows["echo"] == {
        "name": "echo",
        "distribution": "nanomem-echo",
        "version": "1.0",
        "state": "loaded",
        "detail": "",
        "components": {"generator": ["echo"]},
    }
    assert (rows["bad"]["state"], rows["bad"]["detail"]) == ("failed", "ImportError: no such library")
    assert rows["gone"]["state"] == "missing"
    assert rows["arena"]["state"] == "disabled"


def test_the_table_has_a_line_for_each_plugin(site: Site, nanomem: Nanomem) -> None:
    site.install("nanomem-echo", "echo", GOOD)
    result = nanomem("plugins", "list", **ECHO)
    [line] = [line for line in result.stdout.splitlines() if "nanomem-echo" in line]
    assert "generator echo" in line
    assert "loaded" in line


def test_what_plugins_print_does_not_mix_with_the_results(
    site: Site, spawn: Callable[..., CompletedProcess[bytes]]
) -> None:
    site.install("nanomem-echo", "echo", GOOD)
    done = spawn("plugins", "list", "--json", **ECHO)
    json.loads(done.stdout)
    assert done.stderr.split(b"\n")[:2] == [b"hello from the import", b"hello from the hook"]


def test_each_plugin_that_failed_has_one_line_on_stderr(site: Site, nanomem: Nanomem) -> None:
    site.install("nanomem-bad", "bad", "raise ImportError('no\\nsuch\\nlibrary')")
    result = nanomem("plugins", "list", "--json", NANOMEM_PLUGINS__LOAD="bad")
    assert result.stderr == "nanomem: plugin 'bad' (nanomem-bad 1.0) failed: ImportError: no such library\n"


def test_a_strict_list_is_printed_and_ends_with_1(site: Site, nanomem: Nanomem) -> None:
    site.install("nanomem-bad", "bad", "raise ImportError('no such library')")
    result = nanomem("plugins", "list", "--json", NANOMEM_PLUGINS__LOAD="bad", NANOMEM_PLUGINS__STRICT="1")
    assert result.exit_code == 1
    assert "failed" in {row["state"] for row in json.loads(result.stdout)}
    assert result.stderr.count("nanomem-bad") == 1


def test_an_empty_list_of_plugins_loads_none_and_says_nothing(site: Site, nanomem: Nanomem) -> None:
    site.install("nanomem-bad", "bad", "raise ImportError('no such library')")
    result = nanomem("plugins", "list", "--json", NANOMEM_PLUGINS__LOAD="")
    assert (result.exit_code, result.stderr) == (0, "")
    assert {row["state"] for row in json.loads(result.stdout)} == {"disabled"}


def test_one_plugin_is_shown_with_hooks_and_options_but_no_secret(site: Site, nanomem: Nanomem) -> None:
    site.install("nanomem-echo", "echo", GOOD)
    result = nanomem("plugins", "show", "echo", "--json", **ECHO)
    shown = json.loads(result.stdout)
    assert shown["hooks"] == ["nanomem_register_generator"]
    [component] = shown["components"]
    assert (component["kind"], component["name"]) == ("generator", "echo")
    assert component["options"] == [
        {"name": "model", "type": "str", "required": True, "secret": False},
        {
            "name": "api_key",
            "type": "pydantic.types.SecretStr",
            "required": False,
            "secret": True,
            "default": "**********",
        },
        {"name": "temperature", "type": "float", "required": False, "secret": False, "default": 0.5},
    ]
    text = nanomem("plugins", "show", "echo", **ECHO).stdout
    assert "plugin 'echo' (nanomem-echo 1.0) loaded" in text
    assert "  model: str, required" in text
    assert "  temperature: float, default 0.5" in text
    assert "s3cret" not in result.stdout + text


def test_a_plugin_that_there_is_not_can_not_be_shown(nanomem: Nanomem) -> None:
    result = nanomem("plugins", "show", "areno")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no plugin 'areno'; did you mean 'arena'?" in result.stderr


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_the_check_is_silent_about_what_is_well(form: list[str], site: Site, nanomem: Nanomem) -> None:
    site.install("nanomem-echo", "echo", GOOD)
    result = nanomem("plugins", "check", *form, **ECHO)
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"problems": []} if form else "nothing is wrong" in result.stdout


def test_the_check_names_every_problem_and_ends_with_1(site: Site, nanomem: Nanomem) -> None:
    site.install("nanomem-one", "one", GOOD)
    site.install("nanomem-two", "two", OTHER)
    site.install("nanomem-bad", "bad", "raise ImportError('no such library')")
    site.install("nanomem-late", "late", "def nanomem_register_storage(): import no_such_library")
    site.install("nanomem-thief", "config:run", "", group="nanomem.commands")
    result = nanomem("plugins", "check", "--json", NANOMEM_PLUGINS__LOAD="one,two,bad,late,gone")
    assert result.exit_code == 1
    problems = json.loads(result.stdout)["problems"]
    for words in [
        ("'bad'", "nanomem-bad 1.0", "no such library"),
        ("'late'", "nanomem-late 1.0", "no_such_library"),
        ("'gone'", "missing"),
        ("generator 'echo'", "nanomem-one 1.0", "nanomem-two 1.0"),
        ("command 'config'", "nanomem-thief 1.0", "nanomem-core"),
    ]:
        assert len([problem for problem in problems if all(word in problem for word in words)]) == 1, words
    assert len(problems) == 5
    lines = nanomem("plugins", "check", NANOMEM_PLUGINS__LOAD="one,two,bad,late,gone").stdout.splitlines()
    assert lines == problems
