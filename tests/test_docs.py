"""Every page's examples run, every link leads somewhere, and the reference pages say what the code says."""

from __future__ import annotations

import inspect
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from nanomem_core.hookspecs import Plugin
from tests.docs_examples import ExampleError, blocks_of, run_page

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("contrib/*/*.md")])


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory, a home of its own, no setting of the caller's, and no module left behind."""
    modules = dict(sys.modules)
    for name in [name for name in os.environ if name.startswith("NANOMEM_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    folder = tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    for name in ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None) or ""
        if name not in modules and (name == "page" or origin.startswith(str(folder))):
            del sys.modules[name]


@pytest.mark.parametrize("page", [page for page in PAGES if any(blocks_of(page))], ids=_name)
def test_the_examples_of_the_page_run(page: Path, own_folder: Path) -> None:
    run_page(page, own_folder)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_links_of_the_page_lead_somewhere(page: Path) -> None:
    broken = []
    for target in _link_targets(page):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in _anchors(file)):
            broken.append(target)
    assert broken == []


def _link_targets(page: Path) -> Iterator[str]:
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
        for child in token.children or ():
            if child.type in ("link_open", "image"):
                yield str(child.attrs.get("href") or child.attrs.get("src"))


def _anchors(page: Path) -> set[str]:
    """The anchors GitHub gives to the headings of a page."""
    headings = re.findall(r"^#{1,6} (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_page_of_the_docs_is_reached_from_the_index() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "docs/README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        for target in _link_targets(page):
            file = (page.parent / target.partition("#")[0]).resolve()
            if file.suffix == ".md" and file.is_file():
                waiting.append(file)
    assert sorted(_name(page) for page in set(ROOT.glob("docs/**/*.md")) - seen) == []


def test_the_reference_of_hooks_lists_every_hook_with_its_arguments_in_order() -> None:
    specified = []
    for name, member in vars(Plugin).items():
        if name.startswith("nanomem_"):
            arguments = [argument for argument in inspect.signature(member).parameters if argument != "self"]
            specified.append(f"{name}({', '.join(arguments)})")
    page = (ROOT / "docs/reference/hooks.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (nanomem_.*)$", page, re.MULTILINE) == specified


def test_the_architecture_page_draws_the_layers_that_the_linter_checks() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = [each["layers"] for each in settings["tool"]["importlinter"]["contracts"] if each["type"] == "layers"]
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    drawing = page.partition("## The directions")[2].partition("```text\n")[2].partition("```")[0]
    drawn = [re.findall(r"\w+", line.partition("  ")[0]) for line in drawing.splitlines()]
    assert drawn == [re.findall(r"\w+", layer) for layer in layers]


class TestTheRunner:
    """A runner that lets a wrong example pass would make every page's test worthless."""

    def run(self, text: str, folder: Path) -> int:
        page = folder / "page.md"
        page.write_text(text, encoding="utf-8")
        return run_page(page, folder)

    def test_the_blocks_of_a_page_share_their_names_in_order(self, own_folder: Path) -> None:
        text = "```python\na = 1\n```\n\n* item\n\n  ```python\n  assert a == 1\n  ```\n\n```pycon\n>>> a + 1\n2\n```\n"
        assert self.run(text, own_folder) == 3

    def test_a_traceback_names_the_line_of_the_page(self, own_folder: Path) -> None:
        with pytest.raises(ZeroDivisionError) as caught:
            self.run("# Title\n\n```python\n\n1 / 0\n```\n", own_folder)
        assert caught.traceback[-1].lineno + 1 == 5

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("```pycon\n>>> 1 + 1\n3\n```\n", "Expected:\n    3\nGot:\n    2"),
            ("```console\n$ exit 3\n```\n", "exited with 3, not 0"),
            ("```console\n$ exit 3  # exit 4\n```\n", "exited with 3, not 4"),
            ("```console\n$ echo one\ntwo\n```\n", "but the page shows"),
            ("```console\n$ echo one two\n... three\n```\n", "but the page shows"),
            ("```console\necho one\n```\n", "a console block starts with"),
            ("```json\n{\n```\n", "this is no json"),
            ("```yaml\na: [\n```\n", "this is no yaml"),
            ("```toml\na =\n```\n", "this is no toml"),
            ("```ruby\nputs 1\n```\n", "found 'ruby'"),
            ("```\nnothing\n```\n", "found 'no language'"),
            ("<!-- not run: -->\n```python\n1 / 0\n```\n", "says nothing after its colon"),
        ],
    )
    def test_a_wrong_example_fails(self, text: str, message: str, own_folder: Path) -> None:
        with pytest.raises(ExampleError) as caught:
            self.run(text, own_folder)
        assert message in str(caught.value)

    @pytest.mark.parametrize(
        "block",
        [
            "$ echo one\none",
            "$ echo one; echo two >&2; echo three\none\n...\nthree",
            "$ exit 3  # exit 3",
            "$ echo one \\\n> two\none two",
            "$ echo $NO_COLOR\n1\n\n$ pwd\n...work",
        ],
    )
    def test_a_right_console_example_passes(self, block: str, own_folder: Path) -> None:
        assert self.run(f"```console\n{block}\n```\n", own_folder) == 1

    def test_a_marked_block_is_left_out_and_only_that_one(self, own_folder: Path) -> None:
        skipped = "<!-- not run: needs a network -->\n\n```python\n1 / 0\n```\n"
        assert self.run(skipped, own_folder) == 0
        with pytest.raises(ZeroDivisionError):
            self.run(skipped + "\n```python\n1 / 0\n```\n", own_folder)

    def test_a_file_block_is_written_for_the_blocks_after_it(self, own_folder: Path) -> None:
        text = (
            "<!-- file: pkg/mod.py -->\n```python\nx = 7\n```\n\n```python\nfrom pkg.mod import x\nassert x == 7\n```\n"
        )
        assert self.run(text, own_folder) == 2
