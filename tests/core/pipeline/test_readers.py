"""Files as sections."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanomem_core.errors import InputError, NotFoundError
from nanomem_core.pipeline.chunking import MAX_WORDS, count_words
from nanomem_core.pipeline.readers import Section, decode, read_file, read_text


def numbered(count: int, words: int = 1) -> str:
    return "".join(f"line{number}{' w' * (words - 1)}\n" for number in range(1, count + 1))


def spans(sections: list[Section]) -> list[tuple[int, int]]:
    return [(section.start_line, section.end_line) for section in sections]


class TestPlainText:
    def test_windows_of_fifty_lines_share_ten(self) -> None:
        assert spans(read_text(numbered(120))) == [(1, 50), (41, 90), (81, 120)]

    def test_there_is_no_last_window_that_only_repeats(self) -> None:
        assert spans(read_text(numbered(50))) == [(1, 50)]
        assert spans(read_text(numbered(90))) == [(1, 50), (41, 90)]

    def test_a_window_of_long_lines_ends_at_a_line(self) -> None:
        sections = read_text(numbered(30, words=60))
        assert all(count_words(section.text) <= MAX_WORDS for section in sections)
        assert spans(sections)[:2] == [(1, 8), (8, 15)]

    def test_a_line_over_the_limit_stays_whole_and_is_not_repeated(self) -> None:
        text = "short\n" + "w " * 900 + "\nend\n"
        assert spans(read_text(text)) == [(1, 1), (2, 2), (3, 3)]

    def test_line_numbers_count_line_feeds_only(self) -> None:
        sections = read_text("one\x0bstill one\u2028and still\nlast\n")
        assert spans(sections) == [(1, 2)]

    def test_blank_lines_at_the_edges_are_left_out(self) -> None:
        assert read_text("\n \n    first\n\nlast  \n\n") == [Section("    first\n\nlast", 3, 5)]

    @pytest.mark.parametrize("text", ["", " ", "\n\n\t\n"])
    @pytest.mark.parametrize("extension", ["txt", "md", "py", "csv", "json", "jsonl", "yaml"])
    def test_an_empty_text_has_no_sections(self, text: str, extension: str) -> None:
        assert read_text(text, extension) == []

    @pytest.mark.parametrize(("lines", "overlap"), [(0, 0), (10, 10), (10, -1)])
    def test_windows_that_can_not_advance_are_refused(self, lines: int, overlap: int) -> None:
        with pytest.raises(InputError, match="overlap < lines"):
            read_text("x", lines=lines, overlap=overlap)

    def test_the_window_can_be_chosen(self) -> None:
        assert spans(read_text(numbered(10), lines=4, overlap=1)) == [(1, 4), (4, 7), (7, 10)]


class TestMarkdown:
    def headings(self, text: str) -> list[tuple[str | None, str]]:
        return [(section.metadata.get("heading"), section.text) for section in read_text(text, "md")]

    def test_a_section_begins_at_each_heading_and_knows_those_above(self) -> None:
        text = "before\n# A #\na\n## B\nb\n### C\nc\n## D\nd\n# E\ne\n"
        assert self.headings(text) == [
            (None, "before"),
            ("A", "# A #\na"),
            ("A > B", "## B\nb"),
            ("A > B > C", "### C\nc"),
            ("A > D", "## D\nd"),
            ("E", "# E\ne"),
        ]

    def test_a_heading_without_text_joins_the_deeper_one_below(self) -> None:
        assert self.headings("# A\n\n## B\n\nb\n\n## C\n## D\nd\n") == [
            ("A > B", "# A\n\n## B\n\nb"),
            ("A > C", "## C"),
            ("A > D", "## D\nd"),
        ]

    def test_underlined_headings_count(self) -> None:
        assert self.headings("Title\n=====\nx\n\nPart\n----\ny\n\nno\nheading\n---\n") == [
            ("Title", "Title\n=====\nx"),
            ("Title > Part", "Part\n----\ny\n\nno\nheading\n---"),
        ]

    def test_what_looks_like_a_heading_inside_a_fence_is_code(self) -> None:
        text = "# A\n```sh\n# not a heading\n```\n~~~~\n# nor this\n~~~\n# nor that\n~~~~\n# B\n"
        assert [heading for heading, _ in self.headings(text)] == ["A", "B"]

    def test_a_fence_that_is_never_closed_runs_to_the_end(self) -> None:
        assert len(self.headings("# A\n```\n# x\n# y\n")) == 1

    def test_inline_code_in_backticks_opens_no_fence(self) -> None:
        assert len(self.headings("```not a fence```\n# A\nx\n")) == 2

    def test_a_fenced_block_is_never_divided(self) -> None:
        fence = "```\n" + "code\n\n" * 60 + "```"
        text = "# A\n" + "prose\n" * 30 + "\n" + fence + "\n\nafter\n"
        assert any(fence in section.text for section in read_text(text, "md"))

    def test_what_is_repeated_before_a_tall_block_leaves_room_for_it(self) -> None:
        text = "prose\n" * 45 + "```\n" + "code\n" * 46 + "```\n"
        assert spans(read_text(text, "md")) == [(1, 45), (44, 93)]

    def test_a_long_section_is_divided_at_blank_lines_and_keeps_its_heading(self) -> None:
        text = "# A\n" + ("prose\n" * 9 + "\n") * 12
        sections = read_text(text, "md")
        assert len(sections) > 1
        assert {section.metadata["heading"] for section in sections} == {"A"}
        assert all(section.text.endswith("prose") for section in sections)
        assert len(sections) * 50 >= 120 > sum(section.text.count("prose") for section in sections)

    def test_front_matter_is_a_section_of_its_own(self) -> None:
        sections = read_text("---\ntitle: x\n# comment\n---\nText\n\n# A\na\n", "md")
        assert [section.metadata for section in sections] == [{"front_matter": True}, {}, {"heading": "A"}]
        assert sections[0].text == "---\ntitle: x\n# comment\n---"

    def test_a_rule_at_the_top_is_no_front_matter(self) -> None:
        assert len(read_text("---\ntext\n", "md")) == 1


class TestCode:
    def test_indentation_stays_verbatim(self) -> None:
        text = "    def inner():\n\t\treturn 1\n"
        assert read_text(text, "py")[0].text == text.rstrip()

    def test_a_section_ends_between_definitions(self) -> None:
        function = "def f():\n" + "    x\n" * 10 + "\n\n"
        sections = read_text(function * 10, "py")
        assert all(section.text.startswith("def f():") for section in sections)
        assert all(section.text.endswith("    x") for section in sections)
        assert sum(section.text.count("def f") for section in sections) == 10

    def test_a_section_that_ends_inside_a_block_is_continued_with_an_overlap(self) -> None:
        assert spans(read_text("def f():\n" + "    x\n" * 80, "py")) == [(1, 50), (41, 81)]


class TestData:
    def test_each_section_of_a_table_repeats_the_header(self) -> None:
        text = "name,city\n" + "".join(f"n{number},c{number}\n" for number in range(120))
        sections = read_text(text, "csv")
        assert spans(sections) == [(1, 50), (51, 100), (101, 121)]
        assert all(section.text.startswith("name,city\nn") for section in sections)

    def test_a_quoted_field_over_several_lines_is_not_divided(self) -> None:
        row = '"a\nb\nc",x\n'
        sections = read_text("h,i\n" + row * 40, "csv")
        assert all(section.text.count('"') % 2 == 0 for section in sections)

    def test_tab_separated_values_keep_their_header(self) -> None:
        sections = read_text("a\tb\n" + '5" pipe\tx\n' * 80, "tsv")
        assert len(sections) == 2
        assert sections[1].text.startswith("a\tb\n5")

    def test_each_line_of_json_lines_is_a_section(self) -> None:
        sections = read_text('{"a": 1}\n\n{"a": 2}\n', "jsonl")
        assert [(section.text, section.start_line) for section in sections] == [('{"a": 1}', 1), ('{"a": 2}', 3)]

    def test_each_object_of_an_array_is_a_section(self) -> None:
        data = [{"name": "Ann", "tags": ["x", "}"]}, {"name": "Bob"}]
        sections = read_text(json.dumps(data, indent=2), "json")
        assert [section.text.count('"name"') for section in sections] == [1, 1]
        assert sections[1].text.startswith('  {\n    "name": "Bob"')

    def test_the_plain_values_of_an_object_share_a_section(self) -> None:
        data = {"a": 1, "b": "two", "server": {"port": 1}, "c": None, "d": []}
        sections = read_text(json.dumps(data, indent=1), "json")
        assert [section.text.split('"')[1] for section in sections] == ["a", "server", "c"]

    def test_elements_on_one_line_are_told_apart_by_their_part(self) -> None:
        sections = read_text('[{"a":1},{"a":2},{"a":3}]', "json")
        assert [section.part for section in sections] == [1, 2, 3]
        assert {(section.start_line, section.end_line) for section in sections} == {(1, 1)}

    def test_a_huge_element_is_divided_at_lines(self) -> None:
        text = json.dumps([{"k": ["word"] * 2000}], indent=1)
        assert all(count_words(section.text) <= MAX_WORDS for section in read_text(text, "json"))

    @pytest.mark.parametrize(
        "text", ["{broken", "[1 2]", '{"a" 1}', "[" * 100_000, "7", "[1] trailing", "[1," + "9" * 5000]
    )
    def test_what_is_no_json_is_read_as_text(self, text: str) -> None:
        assert [section.text for section in read_text(text, "json")] == [text]

    def test_each_block_and_document_of_yaml_is_a_section(self) -> None:
        text = "a: 1\nb: 2\n# about c\nc:\n  d: 1\n  e: 2\nf: 3\n---\ng: 4\n- x\n-\n  y: 1\n"
        assert [section.text for section in read_text(text, "yaml")] == [
            "a: 1\nb: 2",
            "# about c\nc:\n  d: 1\n  e: 2",
            "f: 3",
            "---\ng: 4\n- x",
            "-\n  y: 1",
        ]


PROSE = ["word", "", "  ", "# H", "## I", "```", "~~~", "---", "===", "...", "w " * 260, "字" * 400, "\u2028", "\x0c"]
DATA = [
    "    indented",
    "def f():",
    "<p>",
    "a: 1",
    "- x",
    "b:",
    "{",
    "}",
    '{"a": 1},',
    "[",
    "]",
    "a,b",
    '"q',
    'r"',
    "x\ty",
]
PIECE = st.sampled_from(PROSE + DATA)


@settings(max_examples=120, deadline=None)
@given(
    st.lists(PIECE, max_size=150),
    st.sampled_from(["txt", "md", "py", "csv", "tsv", "json", "jsonl", "yaml"]),
    st.integers(1, 60),
    st.booleans(),
)
def test_every_line_is_in_some_section(lines: list[str], extension: str, height: int, final: bool) -> None:
    text = "\n".join(lines) + ("\n" if final else "")
    sections = read_text(text, extension, lines=height, overlap=min(3, height - 1))
    true_lines = text.split("\n")
    seen: set[int] = set()
    for section in sections:
        assert 1 <= section.start_line <= section.end_line <= len(true_lines)
        stretch = "\n".join(true_lines[section.start_line - 1 : section.end_line])
        own = section.text.split("\n")[-(section.end_line - section.start_line + 1) :]
        assert "\n".join(own).strip() in stretch
        assert section.text.strip()
        seen.update(range(section.start_line, section.end_line + 1))
    assert {number for number, line in enumerate(true_lines, 1) if line.strip()} <= seen
    ids = [(section.start_line, section.end_line, section.part) for section in sections]
    assert len(ids) == len(set(ids))
    starts = [section.start_line for section in sections]
    assert starts == sorted(starts)


class TestDecoding:
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
    def test_byte_order_marks_are_understood(self, encoding: str) -> None:
        assert decode("Zoë 字\n".encode(encoding), "f") == "Zoë 字\n"

    def test_big_endian_utf_16_is_understood(self) -> None:
        assert decode(b"\xfe\xff" + "Zoë".encode("utf-16-be"), "f") == "Zoë"

    def test_every_line_end_becomes_a_line_feed(self) -> None:
        assert decode(b"a\r\nb\rc\n\r\n", "f") == "a\nb\nc\n\n"

    def test_a_few_undecodable_bytes_are_replaced(self) -> None:
        assert decode(b"The caf\xe9 on the corner", "f") == "The caf\ufffd on the corner"

    @pytest.mark.parametrize(
        "data", [b"text\0more", bytes(range(128, 256)) * 4, "Привет".encode("koi8-r"), b"\x7fELF\0"]
    )
    def test_binary_data_is_refused(self, data: bytes) -> None:
        with pytest.raises(InputError, match=r"name\.txt: expected"):
            decode(data, "name.txt")

    def test_a_lone_surrogate_in_utf_16_is_replaced(self) -> None:
        assert decode(b"\xff\xfe" + "abcdefghijk".encode("utf-16-le") + b"\x00\xd8", "f").endswith("k\ufffd")


class TestFiles:
    def test_a_file_gives_ids_sources_and_metadata(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.md"
        path.write_bytes(b"# A\r\na\r\n# B\r\nb\r\n")
        file = read_file(path)
        digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:10]
        second = file.sections[1]
        assert file.section_id(second) == f"notes.md@{digest}:3-4"
        assert file.source(second) == "notes.md:3-4"
        assert file.section_metadata(second) == {
            "heading": "B",
            "file_id": f"notes.md@{digest}",
            "file_path": str(path),
            "filename": "notes.md",
            "start_line": 3,
            "end_line": 4,
            "file_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }

    def test_files_of_one_name_in_two_directories_never_share_an_id(self, tmp_path: Path) -> None:
        ids = set()
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "c.txt").write_text("same\n")
            file = read_file(tmp_path / name / "c.txt")
            ids.add(file.section_id(file.sections[0]))
        assert len(ids) == 2

    def test_sections_of_one_line_have_distinct_ids(self, tmp_path: Path) -> None:
        path = tmp_path / "d.json"
        path.write_text('[{"a":1},{"a":2}]')
        file = read_file(path)
        assert [file.section_id(section).rpartition(":")[2] for section in file.sections] == ["1-1", "1-1#2"]

    def test_an_empty_file_has_no_sections(self, tmp_path: Path) -> None:
        (tmp_path / "e.txt").write_bytes(b"")
        assert read_file(tmp_path / "e.txt").sections == ()

    def test_a_missing_file_is_not_found(self, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError, match=r"no\.txt"):
            read_file(tmp_path / "no.txt")

    def test_a_directory_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="regular file"):
            read_file(tmp_path)

    def test_a_binary_extension_is_refused_without_a_look(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"\.pdf is a binary format"):
            read_file(tmp_path / "missing.PDF")

    @pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names there are always Unicode")
    def test_a_name_that_is_no_unicode_gives_metadata_that_can_be_stored(self, tmp_path: Path) -> None:
        path = os.path.join(os.fsencode(tmp_path), b"caf\xe9.txt")
        with open(path, "wb") as file:
            file.write(b"x")
        read = read_file(os.fsdecode(path))
        json.dumps(read.section_metadata(read.sections[0])).encode("utf-8")
        read.section_id(read.sections[0]).encode("utf-8")
