"""Vaults that the package nanomem 0.8 itself writes, read back as records."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nanomem_core.changes import Vectors
from nanomem_core.errors import ConfigError, CorruptionError, FormatError, InputError, NotFoundError
from nanomem_core.pipeline.nanomem08 import OldVault, read_nanomem
from nanomem_core.records import Record, check_record

nanomem = pytest.importorskip("nanomem", reason="the extra nanomem08 is not installed")

DIM = 16


class HashEmbedder:
    """What the old package asks of an embedder, without a server."""

    dim = DIM
    last_backend = "model"

    def embed(self, text: str) -> Any:
        rows = np.random.default_rng(zlib.crc32(text.encode())).normal(size=DIM)
        return (rows / np.linalg.norm(rows)).astype(np.float32)

    def embed_batch(self, texts: list[str]) -> Any:
        return np.stack([self.embed(text) for text in texts])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.dat"


@pytest.fixture(autouse=True)
def no_password_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NANOMEM_PASSWORD", raising=False)


def vault(path: Path, **options: Any) -> Any:
    options.setdefault("password", None)
    return nanomem.Vault(str(path), embedder=HashEmbedder(), **options)


def by_id(old: OldVault) -> dict[str, tuple[Record, Vectors | None]]:
    found = {record.id: (record, vectors) for record, vectors in old}
    assert len(found) == len(old)
    for record, _ in old:
        check_record(record)
    return found


def rules(old: OldVault) -> list[str]:
    return [note.rule for note in old.notes]


def test_every_field_of_a_plain_vault_comes_along(path: Path) -> None:
    with vault(path) as old:
        first = old.add("My favorite color is green.", {"user_id": "ann"}, timestamp=1_700_000_000.5)
        old.add("Works at Alder Foods", {"entity": "Employer", "project": "p"}, source="crm", timestamp=5.0, id="e1")
        old.add("Water boils at 100 degrees.", source="book", timestamp=-1.0)
    read = read_nanomem(path)
    found = by_id(read)
    assert (read.dim, read.rows, len(read), read.encrypted, read.embedder) == (DIM, 3, 3, False, None)
    assert read.notes == ()
    record, vectors = found[first]
    assert record == Record(
        id=first,
        text="My favorite color is green.",
        entity="favorite_color",
        revision=1,
        valid_from=1_700_000_000.5,
        recorded_at=1_700_000_000.5,
        metadata={"user_id": "ann"},
    )
    assert vectors is not None
    assert vectors.shape == (1, DIM)
    assert vectors[0] @ HashEmbedder().embed(record.text) == pytest.approx(1, abs=1e-4)
    employer = found["e1"][0]
    assert (employer.entity, employer.declared, employer.source) == ("employer", True, "crm")
    assert employer.metadata == {"project": "p"}
    assert [record.valid_from for record, _ in read] == [1_700_000_000.5, 5.0, -1.0]


def test_the_vault_and_its_directory_are_not_touched(path: Path) -> None:
    with vault(path) as old:
        old.add_batch([{"text": f"fact {number}"} for number in range(300)])  # enough for a sidecar
    sidecar = path.with_name("memory.dat.arena")
    sidecar.unlink(missing_ok=True)
    path.chmod(0o400)
    before = (path.read_bytes(), path.stat().st_mtime_ns, sorted(os.listdir(path.parent)))
    assert len(read_nanomem(path)) == 300
    assert (path.read_bytes(), path.stat().st_mtime_ns, sorted(os.listdir(path.parent))) == before


def test_an_encrypted_vault_takes_its_password(path: Path) -> None:
    with vault(path, password="open sesame") as old:
        old.add("My locker code is 7431.", id="x")
    read = read_nanomem(path, "open sesame")
    assert read.encrypted
    assert by_id(read)["x"][0].text == "My locker code is 7431."
    with pytest.raises(InputError, match="encrypted; pass its password"):
        read_nanomem(path)
    with pytest.raises(InputError, match="password is wrong"):
        read_nanomem(path, "other")


def test_a_password_for_a_plain_vault_is_refused(path: Path) -> None:
    vault(path).close()
    with pytest.raises(InputError, match="not encrypted"):
        read_nanomem(path, "x")


def test_full_precision_vectors_come_along_unchanged(path: Path) -> None:
    with vault(path, vector_dtype="float32") as old:
        old.add("exact", id="x")
    vectors = by_id(read_nanomem(path))["x"][1]
    assert vectors is not None
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors[0], HashEmbedder().embed("exact"), rtol=0, atol=1e-7)


def test_a_chain_keeps_its_revisions_and_its_times_in_any_order(path: Path) -> None:
    moments = [3000.0, 1000.0, 2000.0]
    with vault(path) as old:
        for moment in moments:
            old.add(f"Employer at {moment}", {"entity": "employer", "user_id": "u"}, timestamp=moment)
    records = [record for record, _ in read_nanomem(path)]
    assert [(record.revision, record.valid_from) for record in records] == [(1, 3000.0), (2, 1000.0), (3, 2000.0)]
    assert len({record.chain for record in records}) == 1
    assert all(record.declared for record in records)


def test_names_that_shared_a_chain_still_do(path: Path) -> None:
    names = ["Favourite Colour", "favorite-colour", "x" * 60, "x" * 48, "employés", "雇主"]
    with vault(path) as old:
        for number, name in enumerate(names):
            old.add(f"value {number}", {"entity": name}, id=str(number))
    entities = [record.entity for record, _ in read_nanomem(path)]
    assert entities == ["favorite_colour", "favorite_colour", "x" * 48, "x" * 48, "employés", "雇主"]


def test_a_name_without_letters_is_kept_as_metadata(path: Path) -> None:
    with vault(path) as old:
        old.add("value", {"entity": "!!!"}, id="x")
    read = read_nanomem(path)
    record = by_id(read)["x"][0]
    assert (record.entity, record.declared, record.metadata) == (None, False, {"old_entity": "!!!"})
    assert rules(read) == ["entity"]


def test_rows_of_one_id_get_distinct_ids_and_the_last_keeps_it(path: Path) -> None:
    with vault(path) as old:
        id = old.add("I live in Rome.", timestamp=1.0)
        old.add("I live in Oslo.", timestamp=2.0)
        assert old.add("I live in Rome.", timestamp=3.0) == id
        old.add("taken", id=f"{id}~1", timestamp=4.0)
        old.add("I live in Rome.", timestamp=5.0)
    read = read_nanomem(path)
    found = by_id(read)
    assert found[id][0].valid_from == 5.0
    assert found[f"{id}~2"][0].valid_from == 1.0
    assert found[f"{id}~3"][0].valid_from == 3.0
    assert [(note.rule, note.id) for note in read.notes] == [("duplicate_id", f"{id}~2"), ("duplicate_id", f"{id}~3")]


PARAGRAPHS = "\n\n".join(f"Paragraph {p}: " + " ".join(f"w{p}x{n}" for n in range(120)) for p in range(12))
SENTENCES = " ".join(f"Sentence {s} has words " + " ".join(f"s{s}n{n}" for n in range(20)) + "." for s in range(80))
WORDS = " ".join(f"token{number}" for number in range(1700))
LINES = "\n".join(f"Line {number} " + "ends here " * 10 + "." for number in range(90))
CHINESE = "".join(chr(0x4E00 + number) for number in range(4000))
CHINESE_PARAGRAPHS = "\n\n".join("".join(chr(0x4E00 + p * 500 + n) for n in range(500)) for p in range(8))


@pytest.mark.parametrize("text", [PARAGRAPHS, SENTENCES, WORDS, LINES, CHINESE, CHINESE_PARAGRAPHS])
def test_a_divided_text_is_one_record_with_exactly_its_text(path: Path, text: str) -> None:
    with vault(path) as old:
        id = old.add(text, {"entity": "handbook", "tag": "t"}, timestamp=7.0)
        pieces = len(old)
    assert pieces > 1
    read = read_nanomem(path)
    record, vectors = by_id(read)[id]
    assert record.text == text
    assert (record.entity, record.revision, record.metadata) == ("handbook", 1, {"tag": "t"})
    assert vectors is None
    assert rules(read) == ["joined"]


def test_a_divided_text_that_can_not_be_rebuilt_exactly_loses_no_word(path: Path) -> None:
    text = SENTENCES + "\n\n" + PARAGRAPHS + "\n \n\n" + "  indented " * 30
    with vault(path) as old:
        id = old.add(text)
    read = read_nanomem(path)
    assert by_id(read)[id][0].text.split() == text.split()
    assert rules(read) == ["inexact"]


def test_a_divided_text_added_twice_makes_two_records(path: Path) -> None:
    with vault(path) as old:
        id = old.add(WORDS, timestamp=1.0)
        old.add("between")
        old.add(WORDS, timestamp=2.0)
    found = by_id(read_nanomem(path))
    assert len(found) == 3
    assert (found[id][0].valid_from, found[f"{id}~1"][0].valid_from) == (2.0, 1.0)
    assert found[id][0].text == found[f"{id}~1"][0].text == WORDS


def test_a_divided_text_with_a_piece_missing_is_reported(path: Path) -> None:
    with vault(path) as old:
        id = old.add(WORDS)
        old.delete(id=f"{id}_chunk_2")
    read = read_nanomem(path)
    record = by_id(read)[id][0]
    assert record.text.startswith("token0 ")
    assert record.text.endswith("token1699")
    assert rules(read) == ["incomplete", "inexact"]


def test_pieces_are_put_in_the_order_of_their_numbers(path: Path) -> None:
    with vault(path) as old:
        old.add(WORDS, id="w")
        rows = old.get_all_records()
    shuffled = path.with_name("shuffled.dat")
    with vault(shuffled) as old:
        for row in reversed(rows):
            old.engine.add_fact(row["text"], row["embedding"], metadata=row["metadata"], revision=1, id=row["id"])
    assert by_id(read_nanomem(shuffled))["w"][0].text == WORDS


def test_metadata_of_every_kind_comes_along_and_keys_of_fields_are_renamed(path: Path) -> None:
    metadata = {
        "list": [1, 2.5, None, True],
        "nested": {"a": {"b": ["c"]}},
        "unicode": "Zoë 字 🫖",
        "text": "shadow",
        "version": 3,
        "old_version": 2,
        "score": 0.5,
        "timestamp": 9,
        "user_id": "u",
    }
    with vault(path) as old:
        old.add("value", metadata, id="x", timestamp=1.0)
    read = read_nanomem(path)
    renamed = {"old_text": "shadow", "old_old_version": 3, "old_version": 2, "old_score": 0.5}
    kept = {key: metadata[key] for key in ("list", "nested", "unicode", "timestamp", "user_id")}
    assert by_id(read)["x"][0].metadata == {**kept, **renamed}
    assert rules(read) == ["renamed_key"] * 3


def test_an_ingested_file_keeps_its_sections_and_lines(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text("".join(f"    line_{number} = {number}\n" for number in range(1, 121)))
    with vault(path) as old:
        old.ingest_file(str(file))
    read = read_nanomem(path)
    records = [record for record, _ in read]
    assert [(record.metadata["start_line"], record.metadata["end_line"]) for record in records] == [
        (1, 50),
        (41, 90),
        (81, 120),
    ]
    assert records[0].text.startswith("    line_1 = 1\n")
    assert records[0].id == f"code.py@{hashlib.md5(str(file).encode()).hexdigest()[:10]}:1-50"
    assert records[0].source == "code.py:1-50"
    assert records[0].metadata["file_path"] == str(file)
    assert records[0].entity is None


def test_vectors_of_the_offline_encoder_are_left_out_beside_a_models(path: Path) -> None:
    with vault(path) as old:
        old.add("by the model", id="m")
        old.embedder.last_backend = "offline-lexical"
        old.add("offline", id="o")
    read = read_nanomem(path)
    found = by_id(read)
    assert found["m"][1] is not None
    assert found["o"][1] is None
    assert found["o"][0].metadata == {}
    assert (rules(read), read.embedder) == (["vectors"], None)


def test_a_vault_of_the_offline_encoder_alone_names_it(path: Path) -> None:
    with vault(path) as old:
        old.embedder.last_backend = "offline-lexical"
        old.add("offline", id="o")
    read = read_nanomem(path)
    assert by_id(read)["o"][1] is not None
    assert (read.notes, read.embedder) == ((), "offline-lexical")


def test_times_that_are_no_dates_are_repaired_and_reported(path: Path) -> None:
    with vault(path) as old:
        old.add("in milliseconds", timestamp=1_700_000_000_000, id="ms")
        old.add("nonsense", timestamp=1e300, id="no")
    read = read_nanomem(path)
    found = by_id(read)
    assert found["ms"][0].valid_from == 1_700_000_000
    assert (found["no"][0].valid_from, found["no"][0].metadata) == (0.0, {"old_timestamp": 1e300})
    assert rules(read) == ["time", "time"]


def test_an_id_that_can_not_be_stored_is_replaced(path: Path) -> None:
    with vault(path) as old:
        old.add("nul", id="a\0b")
        old.add("long", id="x" * 2000)
    read = read_nanomem(path)
    assert {id[:4] for id in by_id(read)} == {"old-"}
    assert rules(read) == ["bad_id", "bad_id"]


def test_an_unfinished_write_is_reported_and_the_rest_is_read(path: Path) -> None:
    with vault(path) as old:
        old.add("whole", id="w")
        old.flush()
        size = path.stat().st_size
        old.add("torn", id="t")
    with open(path, "r+b") as file:
        file.truncate(size + 100)
    read = read_nanomem(path)
    assert list(by_id(read)) == ["w"]
    assert rules(read) == ["torn_tail"]


def test_damage_is_named_with_its_place(path: Path) -> None:
    with vault(path) as old:
        old.add("some text to damage", id="w")
    data = bytearray(path.read_bytes())
    place = data.index(b"some text")
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=str(path)):
        read_nanomem(path)


@pytest.mark.parametrize("data", [b"", b"no vault at all" * 30, b"NANOMEM\0" + bytes(300)])
def test_a_file_of_another_kind_is_refused(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"memory\.dat"):
        read_nanomem(path)


def test_an_empty_vault_has_no_records(path: Path) -> None:
    vault(path).close()
    read = read_nanomem(path)
    assert (list(read), read.notes, read.dim) == ([], (), DIM)


def test_a_missing_file_is_not_found(path: Path) -> None:
    with pytest.raises(NotFoundError):
        read_nanomem(path)


def test_without_the_package_the_error_names_the_extra(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['nanomem'] = None\n"
        "from nanomem_core.errors import ConfigError\n"
        "from nanomem_core.pipeline.nanomem08 import read_nanomem\n"
        "try:\n    read_nanomem('x')\nexcept ConfigError as error:\n    print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "nanomem-core[nanomem08]" in result.stdout


def test_another_version_of_the_package_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault(path).close()
    monkeypatch.setattr(nanomem, "__version__", "0.9.0")
    with pytest.raises(ConfigError, match=r"found 0\.9\.0"):
        read_nanomem(path)
