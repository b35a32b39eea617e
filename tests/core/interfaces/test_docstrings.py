"""The smallest component in the docstring of each interface runs as it stands."""

import inspect
import textwrap
import threading
import tomllib
from contextlib import contextmanager

import numpy as np
import pytest

from nanomem_core.changes import Delete, Put
from nanomem_core.interfaces import Completion, Embedder, Generator, Segmenter, Storage, Tagger
from nanomem_core.records import Record, Scope


def blocks(interface):
    """The indented blocks after ``::`` in the docstring."""
    found, lines = [], None
    for line in inspect.cleandoc(interface.__doc__).splitlines():
        if lines is not None and (line.startswith("    ") or not line):
            lines.append(line)
            continue
        lines = [] if line.endswith("::") else None
        if lines is not None:
            found.append(lines)
    return [textwrap.dedent("\n".join(lines)) for lines in found]


def example(interface):
    """An instance of the class that the docstring of `interface` defines."""
    namespace = {"np": np, "threading": threading, "contextmanager": contextmanager, "Completion": Completion}
    namespace[interface.__name__] = interface
    exec(blocks(interface)[0], namespace)
    classes = [value for value in namespace.values() if inspect.isclass(value) and issubclass(value, interface)]
    return next(cls for cls in classes if cls is not interface)()


def test_the_smallest_storage_keeps_records():
    storage = example(Storage)
    ann, bob = Scope("ann"), Scope("bob")
    storage.commit(ann, [Put(Record("a", "first", entity="city")), Put(Record("b", "x", "message"))])
    storage.commit(bob, [Put(Record("a", "of bob"))])
    commit = storage.commit(
        ann, [Put(Record("a", "second", entity="city"), 1), Delete("b"), Put(Record("c", "x", entity="city"))]
    )
    assert [(r.id, r.text, r.version, r.revision) for r in storage.scan(ann)] == [
        ("a", "second", 2, 1),
        ("c", "x", 1, 2),
    ]
    assert commit.deleted == ("b",)
    assert storage.head(ann) == 2
    assert storage.scopes() == [ann, bob]
    assert storage.columns(ann).live.sum() == 2
    storage.erase(ann)
    assert (storage.head(ann), storage.scopes()) == (0, [bob])


def test_the_smallest_storage_is_offered_by_valid_toml():
    assert tomllib.loads(blocks(Storage)[1]) == {
        "project": {"entry-points": {"nanomem.plugins": {"dict": "nanomem_dict"}}}
    }


def test_the_smallest_embedder_gives_unit_vectors():
    rows = example(Embedder).embed_batch(["abc", ""])
    np.testing.assert_allclose(rows, np.array([[3, 1], [0, 10**0.5]]) / 10**0.5, atol=1e-6)


def test_the_smallest_segmenter_makes_pairs():
    messages = [Record(str(i), "x", "message") for i in range(5)]
    assert example(Segmenter).segment(messages) == [[0, 1], [2, 3], [4]]


def test_the_smallest_tagger_tags():
    tagger = example(Tagger)
    assert tagger.tag("my colour is red") == "favorite_colour"
    assert tagger.tag("hello") is None


def test_the_smallest_generator_answers():
    assert example(Generator).generate("hello") == "hello"


@pytest.mark.parametrize("interface", [Storage, Embedder, Segmenter, Tagger, Generator])
def test_every_interface_shows_one(interface):
    assert f"({interface.__name__}):" in blocks(interface)[0]
