"""Models in the process itself: from folders, without a network, and with errors that say what to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nanomem_core.errors import ConfigError, EmbedderError, EmbedderMismatchError
from nanomem_core.interfaces import Embedder, Prefixes
from nanomem_core.memory import Memory
from nanomem_core.registry.manager import PluginManager
from nanomem_core.testing import EmbedderContract

fastembed = pytest.importorskip("fastembed", reason="nanomem-fastembed[testing] is not installed")
pytest.importorskip("onnx", reason="nanomem-fastembed[testing] is not installed")

from nanomem_fastembed.embedder import FastembedEmbedder  # noqa: E402
from nanomem_fastembed.files import cache_folder  # noqa: E402

MakeModel = Callable[..., Path]
WIDTH = 4


class _Maker:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self) -> Embedder:
        return FastembedEmbedder(path=self.folder)


class TestFloatModel(EmbedderContract):
    @pytest.fixture
    def make_embedder(self, model: Path) -> Callable[[], Embedder]:
        return _Maker(model)


class TestModelThatDependsOnItsBatch(EmbedderContract):
    @pytest.fixture
    def make_embedder(self, tmp_path: Path, make_model: MakeModel) -> Callable[[], Embedder]:
        return _Maker(make_model(tmp_path / "quantised", quantised=True))


def test_it_is_found_by_its_name_and_checks_its_options(model: Path) -> None:
    plugins = PluginManager.discover()
    with plugins.build("embedder", {"use": "fastembed", "path": str(model), "threads": "2"}) as embedder:
        assert isinstance(embedder, FastembedEmbedder)
        assert embedder.dim == WIDTH
    for option, value in (("threads", 0), ("batch_size", 0), ("pooling", "most")):
        with pytest.raises(ConfigError) as caught:
            plugins.build("embedder", {"use": "fastembed", "path": str(model), option: value})
        assert str(caught.value.key).endswith(option)
    with pytest.raises(ConfigError, match="goes with a path alone"):
        FastembedEmbedder("BAAI/bge-small-en-v1.5", pooling="mean")


def test_nothing_is_loaded_before_it_is_needed(tmp_path: Path) -> None:
    code = """
import sys
from nanomem_core.registry.manager import PluginManager
embedder = PluginManager.discover().build("embedder", {"use": "fastembed", "path": "nowhere"})
sys.exit("fastembed" in sys.modules or "onnxruntime" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0


OFFLINE = """
import sys

def watch(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        sys.stderr.write(f"{event} {args}\\n")
        raise OSError(f"no network: {event}")

sys.addaudithook(watch)
from nanomem_core.memory import Memory
memory = Memory({"use": "arena", "path": "m.dat"}, {"use": "fastembed", "path": sys.argv[1]}, taggers=())
memory.add("the red car")
memory.add("the green cat")
print(memory.search("kitten", mode="vector")[0].text)
memory.close()
"""


def test_a_folder_needs_no_network(model: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, str(model)], cwd=tmp_path, capture_output=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "the green cat\n", "")


def test_vectors_are_the_mean_or_one_of_those_of_the_tokens(tmp_path: Path, make_model: MakeModel) -> None:
    folder = make_model(tmp_path / "untold", pooling=None)
    rows = {}
    for pooling in ("cls", "mean", "last"):
        with FastembedEmbedder(path=folder, pooling=pooling) as embedder:
            rows[pooling] = embedder.embed_batch(["cat", "car", "cat car"])
    # The first token is the first word; the last one ends each text.
    first, last, mean = rows["cls"], rows["last"], rows["mean"]
    np.testing.assert_allclose(first[2], first[0], atol=1e-6)
    np.testing.assert_allclose(last, [last[0]] * 3, atol=1e-6)
    assert first[0] @ first[1] < 0.99
    assert mean[2] @ mean[0] > mean[1] @ mean[0]


@pytest.mark.parametrize(
    "told", [{"pooling_mode_cls_token": True}, {"pooling_mode": "cls"}, {"pooling_mode": "cls_token"}]
)
def test_the_folder_tells_the_pooling_in_the_old_and_the_new_form(
    tmp_path: Path, told: dict[str, Any], make_model: MakeModel
) -> None:
    folder = make_model(tmp_path / "told")
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(told), encoding="utf-8")
    with FastembedEmbedder(path=folder) as embedder:
        np.testing.assert_allclose(embedder.embed("cat car"), embedder.embed("cat"), atol=1e-6)


def test_a_long_list_keeps_its_order(model: Path) -> None:
    texts = [" ".join(["cat", "car", "red", "green"][: 1 + number % 4]) for number in range(50)]
    with FastembedEmbedder(path=model, batch_size=8) as embedder:
        rows = embedder.embed_batch(texts)
        for number in (0, 1, 2, 3, 49):
            np.testing.assert_allclose(rows[number], embedder.embed(texts[number]), atol=1e-5)


def test_prefixes_stand_before_what_is_stored_and_before_questions(model: Path) -> None:
    with (
        FastembedEmbedder(path=model) as plain,
        FastembedEmbedder(path=model, document_prefix="red ", query_prefix="green ") as prefixed,
    ):
        np.testing.assert_allclose(prefixed.embed("cat"), plain.embed("red cat"), atol=1e-6)
        np.testing.assert_allclose(prefixed.embed_query("cat"), plain.embed_query("green cat"), atol=1e-6)
        assert prefixed.id == f"{plain.id} document='red ' query='green '"


@pytest.mark.parametrize(
    ("model", "prefixes"),
    [
        (None, ("", "")),
        ("intfloat/multilingual-e5-large", ("passage: ", "query: ")),
        ("nomic-ai/nomic-embed-text-v1.5", ("search_document: ", "search_query: ")),
        ("snowflake/snowflake-arctic-embed-s", ("", "Represent this sentence for searching relevant passages: ")),
    ],
)
def test_prefixes_of_known_models_are_known(model: str | None, prefixes: tuple[str, str]) -> None:
    embedder = FastembedEmbedder(model)
    assert embedder._prefixes == Prefixes(*prefixes)
    assert model is None or model in [each["model"] for each in fastembed.TextEmbedding.list_supported_models()]


def test_an_output_can_be_named(make_model: MakeModel, tmp_path: Path) -> None:
    folder = make_model(tmp_path / "outputs")
    with (
        FastembedEmbedder(path=folder) as first,
        FastembedEmbedder(path=folder, output="last_hidden_state") as named,
        FastembedEmbedder(path=folder, output="nothing_like_it") as missing,
    ):
        np.testing.assert_array_equal(named.embed("cat"), first.embed("cat"))
        assert named.id != first.id
        with pytest.raises(EmbedderError, match="nothing_like_it"):
            missing.embed("cat")


# The id.


def test_the_id_follows_the_files_and_not_their_place(model: Path, tmp_path: Path, make_model: MakeModel) -> None:
    ids = {"here": FastembedEmbedder(path=model).id}
    ids["copy"] = FastembedEmbedder(path=Path(shutil.copytree(model, tmp_path / "copy"))).id
    ids["nested"] = FastembedEmbedder(path=make_model(tmp_path / "nested", place="onnx/model.onnx")).id
    assert len(set(ids.values())) == 1
    assert ids["here"].startswith("fastembed:folder@")
    others = [
        FastembedEmbedder(path=make_model(tmp_path / "weights", seed=1)).id,
        FastembedEmbedder(path=make_model(tmp_path / "pooling", pooling="cls")).id,
    ]
    config = tmp_path / "copy" / "tokenizer_config.json"
    config.write_text(config.read_text(encoding="utf-8").replace("16", "8"), encoding="utf-8")
    others.append(FastembedEmbedder(path=tmp_path / "copy").id)
    assert len({ids["here"], *others}) == 4


def test_a_store_refuses_the_vectors_of_other_weights(model: Path, tmp_path: Path, make_model: MakeModel) -> None:
    storage = {"use": "arena", "path": tmp_path / "m.dat"}
    with Memory(storage, {"use": "fastembed", "path": model}, taggers=()) as memory:
        memory.add("the red car")
    other = make_model(tmp_path / "other", seed=1)
    with (
        Memory(storage, {"use": "fastembed", "path": other}, taggers=()) as memory,
        pytest.raises(EmbedderMismatchError),
    ):
        memory.search("car")


def test_folders_of_several_models_are_used_side_by_side(model: Path, tmp_path: Path, make_model: MakeModel) -> None:
    other = make_model(tmp_path / "other", seed=1)
    found: list[Any] = []

    def work(folder: Path) -> None:
        with FastembedEmbedder(path=folder) as embedder:
            found.append((folder, embedder.embed("cat")))

    threads = [threading.Thread(target=work, args=(folder,)) for folder in (model, other, model, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = {folder: [row for place, row in found if place == folder] for folder in (model, other)}
    np.testing.assert_array_equal(*rows[model])
    np.testing.assert_array_equal(*rows[other])
    assert rows[model][0] @ rows[other][0] < 0.999


# What can't be had.


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("tokenizer.json", "expected tokenizer.json in"),
        ("tokenizer_config.json", "expected tokenizer_config.json in"),
        ("model.onnx", "expected model.onnx or onnx/model.onnx in .*; found no ONNX file"),
        ("1_Pooling/config.json", "set the option `pooling` to cls, mean, last or none"),
    ],
)
def test_a_folder_that_lacks_something_is_an_error_that_names_it(model: Path, missing: str, message: str) -> None:
    (model / missing).unlink()
    embedder = FastembedEmbedder(path=model)
    for ask in (lambda: embedder.id, lambda: embedder.dim, lambda: embedder.embed("cat")):
        with pytest.raises(EmbedderError, match=message):
            ask()


def test_several_weights_without_a_usual_name_are_not_guessed_from(model: Path) -> None:
    (model / "model.onnx").rename(model / "a.onnx")
    assert FastembedEmbedder(path=model).dim == WIDTH
    shutil.copy(model / "a.onnx", model / "b.onnx")
    with pytest.raises(EmbedderError, match=r"found a\.onnx, b\.onnx"):
        _ = FastembedEmbedder(path=model).id


def test_weights_that_are_none_are_an_error_of_the_embedder(model: Path) -> None:
    (model / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(EmbedderError, match="can't be loaded"):
        FastembedEmbedder(path=model).embed("cat")


def test_a_folder_without_the_files_of_the_named_model_is_an_error(model: Path) -> None:
    shutil.rmtree(model / "1_Pooling")
    (model / "model.onnx").unlink()
    embedder = FastembedEmbedder("sentence-transformers/all-MiniLM-L6-v2", path=model)
    with pytest.raises(EmbedderError, match="of the model 'sentence-transformers/all-MiniLM-L6-v2'"):
        embedder.embed("cat")


def test_a_model_that_is_not_here_is_an_error_every_time_and_nothing_is_stored(tmp_path: Path) -> None:
    spec = {"use": "fastembed", "cache_dir": tmp_path / "models", "offline": True}
    with Memory({"use": "arena", "path": tmp_path / "m.dat"}, spec, taggers=()) as memory:
        for _ in range(2):
            with pytest.raises(EmbedderError, match=r"is not in .*models, and `offline` is set.*name that as `path`"):
                memory.add("the red car")
    with Memory({"use": "arena", "path": tmp_path / "m.dat"}, taggers=()) as memory:
        assert memory.search("car") == []


def test_an_unknown_model_is_named_with_what_was_meant(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"did you mean .*BAAI/bge-small-en-v1\.5") as caught:
        _ = FastembedEmbedder("baai/bge-smal-en-v1.5", cache_dir=tmp_path).id
    assert caught.value.key == "model"


def test_a_missing_package_is_named_with_what_to_do(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastembed", None)
    with pytest.raises(EmbedderError, match=r"the package fastembed can't be imported.*pip install"):
        FastembedEmbedder(path=model).embed("cat")


def test_downloads_are_kept_among_the_user_s_caches() -> None:
    assert cache_folder({"FASTEMBED_CACHE_PATH": "/there"}) == Path("/there")
    assert cache_folder({}).parts[-2:] == ("nanomem", "fastembed")
    if sys.platform == "linux":
        assert cache_folder({"XDG_CACHE_HOME": "/caches"}) == Path("/caches/nanomem/fastembed")


REAL = os.environ.get("NANOMEM_FASTEMBED_MODEL", "")


@pytest.mark.skipif(not REAL, reason="NANOMEM_FASTEMBED_MODEL names no folder with a model that knows English")
def test_a_real_model_knows_meanings() -> None:
    with FastembedEmbedder(path=Path(REAL), pooling=None if Path(REAL, "1_Pooling").is_dir() else "mean") as embedder:
        rows = embedder.embed_batch(["My car broke down", "I bought a new kettle", "The weather was fine"])
        assert int(np.argmax(rows @ embedder.embed_query("trouble with an automobile"))) == 0
