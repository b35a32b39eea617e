"""The page on the format shows what the code does."""

import inspect
import re
from pathlib import Path

from nanomem_plugins.markdown import document
from nanomem_plugins.markdown.document import Owner, parse_document

PAGE = Path(__file__).parents[3] / "docs/reference/formats/markdown.md"


def test_the_document_on_the_page_is_one_as_this_store_writes_it():
    [text] = re.findall(r"```text\n(---\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    found = parse_document(text.encode(), Owner("ann", "__default__"), "fact_ab12")
    assert found.sealed
    assert (found.record.entity, found.record.declared, found.record.revision) == ("employer", True, 2)


def test_every_key_of_a_document_is_on_the_page():
    source = inspect.getsource(document)
    keys = set(re.findall(r'ours(?:\.get\(|\[)"(\w+)"', source))
    page = PAGE.read_text("utf-8")
    assert keys
    assert [key for key in sorted(keys) if f"`{key}`" not in page] == []
