from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nanomem_bench.data import KINDS, QUERIES, Material, Spec, make, make_from_text

from nanomem_core import PluginManager
from nanomem_core.errors import InputError


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Material]:
    make(Spec(400, 32, request.param), tmp_path, seed=1)
    return request.param, Material(tmp_path)


def test_vectors_are_of_unit_length_and_the_lines_match(made: tuple[str, Material]) -> None:
    _, material = made
    assert (material.vectors.shape, material.queries.shape) == ((400, 32), (QUERIES, 32))
    for rows in (material.vectors, material.queries):
        assert rows.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    assert len(material.texts) == 400
    assert len(set(material.questions)) == QUERIES


def test_each_kind_has_the_shape_it_is_named_for(made: tuple[str, Material]) -> None:
    kind, material = made
    cosines = material.vectors @ material.vectors.T
    np.fill_diagonal(cosines, -1)
    nearest = float(np.median(cosines.max(axis=1)))
    share = float((material.vectors[:, :3] ** 2).sum(axis=1).mean())
    assert (share > 0.9) == (kind == "dominant")
    if kind == "random":
        assert nearest < 0.7
    if kind == "duplicates":
        assert nearest > 0.9995
    if kind == "clustered":
        assert 0.6 < nearest < 0.99


def test_the_same_seed_gives_the_same_data_and_another_gives_other(tmp_path: Path) -> None:
    spec = Spec(60, 16)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make(spec, tmp_path / name, seed)
    a, b, c = (Material(tmp_path / name) for name in "abc")
    assert np.array_equal(a.vectors, b.vectors)
    assert a.texts == b.texts
    assert not np.array_equal(a.vectors, c.vectors)


def test_beyond_its_end_the_material_starts_again(tmp_path: Path) -> None:
    make(Spec(60, 16), tmp_path, 1)
    material = Material(tmp_path, chains=7)
    assert np.array_equal(material.vector(61), material.vectors[1])
    assert np.array_equal(material.matrix(range(58, 62)), material.vectors[[58, 59, 0, 1]])
    assert (material.text(61), material.entity(61)) == (material.texts[1], "attribute 5")


def test_the_lines_of_a_file_are_embedded_and_some_are_held_out_as_questions(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("\n\n".join(f"note {n} about   topic {n % 9}" for n in range(300)), encoding="utf-8")
    with PluginManager.discover().build("embedder", "lexical") as embedder:
        spec = make_from_text(path, embedder, tmp_path / "data", 1_000)
        material = Material(tmp_path / "data")
        assert spec == Spec(len(material), embedder.dim, "text")
        assert len(material.texts) + len(material.questions) == 300
        assert not set(material.texts) & set(material.questions)
        assert "note 1 about topic 1" in material.texts
        np.testing.assert_allclose(material.vectors[3], embedder.embed(material.texts[3]), atol=1e-6)


def test_a_file_with_too_few_lines_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "short.txt"
    path.write_text("one\ntwo\n", encoding="utf-8")
    with PluginManager.discover().build("embedder", "lexical") as embedder, pytest.raises(InputError, match="found 2"):
        make_from_text(path, embedder, tmp_path / "data", 1_000)
