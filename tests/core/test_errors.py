import inspect
import re

import pytest

from nanomem_core import errors
from nanomem_core.errors import ConfigError, ConflictError, CorruptionError, EmbedderMismatchError, NanomemError

CLASSES = {
    name: cls for name, cls in vars(errors).items() if inspect.isclass(cls) and cls.__module__ == errors.__name__
}


def drawn():
    """Name, parent and builtin of each line of the tree in the docstring."""
    path = []
    for line in errors.__doc__.splitlines():
        found = re.match(r"    ((?:│   |    )*)(?:[├└]── )?([A-Z]\w+Error)(?: \((\w+)\))?", line)
        if found:
            depth = len(found[1]) // 4 + ("── " in line)
            del path[depth:]
            yield found[2], path[-1] if path else None, found[3]
            path.append(found[2])


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes():
    real = set()
    for name, cls in CLASSES.items():
        parents = [base.__name__ for base in cls.__bases__ if base in CLASSES.values()]
        builtins = [base.__name__ for base in cls.__bases__ if base not in CLASSES.values()]
        if cls is NanomemError:
            assert builtins == ["Exception"]
            builtins = []
        real.add((name, parents[0] if parents else None, builtins[0] if builtins else None))
    assert set(drawn()) == real


def test_every_error_is_exported():
    assert list(errors.__all__) == sorted(CLASSES)


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_is_caught_as_nanomem_error(name):
    assert issubclass(CLASSES[name], NanomemError)
    assert CLASSES[name].__doc__


def test_errors_carry_the_facts_as_attributes():
    conflict = ConflictError("no", id="a", expected=1, found=2)
    assert (conflict.id, conflict.expected, conflict.found) == ("a", 1, 2)
    setting = ConfigError("no", key="search.top_k", source="nanomem.yaml")
    assert (setting.key, setting.source) == ("search.top_k", "nanomem.yaml")


def test_damage_names_the_place_and_the_command():
    error = CorruptionError("memory.dat", 512, "the checksum does not fit")
    assert str(error) == "memory.dat at byte 512: the checksum does not fit. Run `nanomem doctor` to see all damage."
    assert (error.path, error.offset, error.reason) == ("memory.dat", 512, "the checksum does not fit")
    assert str(CorruptionError("f", None, "x")).startswith("f: x")


def test_a_mismatch_names_both_embedders_and_the_command():
    text = str(EmbedderMismatchError("memory.dat", "a-1", 384, "b-2", 768))
    for part in ("memory.dat", "'a-1' (384 dimensions)", "'b-2' (768 dimensions)", "nanomem reembed"):
        assert part in text
