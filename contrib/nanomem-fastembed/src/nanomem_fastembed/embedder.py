"""Vectors of models that run in this process."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from nanomem_core.errors import ConfigError, EmbedderError
from nanomem_core.interfaces import Embedder, Prefixes

from .files import Files, Pooling, cache_folder, files_of_folder

if TYPE_CHECKING:
    from fastembed import TextEmbedding

__all__ = ["DEFAULT_MODEL", "FastembedEmbedder"]

DEFAULT_MODEL = "BAAI/bge-small-en-v1.5"
"""English, 384 numbers, 67 MB."""

_SEARCH_QUERY = "Represent this sentence for searching relevant passages: "
_PREFIXES = {
    "e5-": ("passage: ", "query: "),
    "embeddinggemma": ("title: none | text: ", "task: search result | query: "),
    "mxbai-embed": ("", _SEARCH_QUERY),
    "nomic-embed": ("search_document: ", "search_query: "),
    "snowflake-arctic-embed": ("", _SEARCH_QUERY),
}
"""What the cards of model families ask for, before a text that is stored and before a question."""

_registering = threading.Lock()


class FastembedEmbedder(Embedder):
    """Runs a model in this process, by fastembed (https://github.com/qdrant/fastembed): no server, no GPU needed.

    With `path` nothing is ever asked over a network. A model that is named is downloaded once, into `cache_dir`, when
    it is first needed; after that nothing is asked for it either. The id holds a digest of the weights and the
    tokenizer, so vectors of another version of a model are never taken for comparable; so the files must be there.

    The model is loaded at the first text. A text that has no token the model knows gets a vector of equal numbers.

    Args:
        model: a name that fastembed knows, in any case; `DEFAULT_MODEL` if there is no `path` either.
        path: a folder with the model's files: those of `model`, or an ONNX model in the form of sentence-transformers
            or Optimum (``model.onnx`` or ``onnx/model.onnx``, ``tokenizer.json``, ``tokenizer_config.json``).
        pooling: how the vectors of tokens become that of the text, for a model that fastembed does not know and whose
            folder has no ``1_Pooling/config.json``.
        output: the output of such a model that holds the vectors of the tokens, or that of the text; its first one for
            None.
        cache_dir: where downloads are kept; ``FASTEMBED_CACHE_PATH``, or a folder of the user's caches for None.
        offline: never download; ``HF_HUB_OFFLINE=1`` means the same.
        threads: that compute. More are faster on an idle machine, and much slower on a busy one.
        batch_size: texts that are computed at once, at most; one at a time where numbers depend on the batch.
        document_prefix: put before a text that is stored; for None what the card of a known model asks for.
        query_prefix: put before a question, likewise.

    Raises:
        ConfigError: an option has a wrong value; for an unknown `model` when it is first needed.
    """

    name: ClassVar[str] = "fastembed"

    def __init__(
        self,
        model: str | None = None,
        *,
        path: Path | None = None,
        pooling: Pooling | None = None,
        output: str | None = None,
        cache_dir: Path | None = None,
        offline: bool = False,
        threads: int = 1,
        batch_size: int = 16,
        document_prefix: str | None = None,
        query_prefix: str | None = None,
    ) -> None:
        for option, number in (("threads", threads), ("batch_size", batch_size)):
            if number < 1:
                raise ConfigError(f"{option}: expected 1 or more; found {number}", key=option)
        for option, given in (("pooling", pooling), ("output", output)):
            if given is not None and (path is None or model is not None):
                raise ConfigError(
                    f"{option}: fastembed knows that of a named model; it goes with a path alone", key=option
                )
        self.model = model if model is not None or path is not None else DEFAULT_MODEL
        family = next(
            (prefixes for part, prefixes in _PREFIXES.items() if part in (self.model or "").lower()), ("", "")
        )
        self._prefixes = Prefixes(
            family[0] if document_prefix is None else document_prefix,
            family[1] if query_prefix is None else query_prefix,
        )
        self._path = path
        self._pooling = pooling
        self._output = output
        self._cache_dir = cache_dir
        self._offline = offline
        self._threads = threads
        self._batch_size = batch_size
        self._lock = threading.RLock()
        self._engine: TextEmbedding | None = None
        self._dim: int | None = None

    @cached_property
    def id(self) -> str:
        """Model, digest of its files, and the prefixes.

        Raises:
            EmbedderError: the model's files can't be had.
        """
        model = "folder" if self.model is None else self._known.model
        return self._prefixes.id(f"{self.name}:{model}@{self._digest}")

    @property
    def dim(self) -> int:
        if self._dim is None:
            self._dim = self.encode(["width"]).shape[1]
        return self._dim

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        engine = self._loaded()
        # Texts of like length side by side: the shorter ones of a batch are padded, which costs as much as words.
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        prefixed = self._prefixes.put([texts[number] for number in order])
        found = self._rows(engine.passage_embed(prefixed, batch_size=self._batch))
        rows = np.empty_like(found)
        rows[order] = found
        return rows

    def encode_query(self, text: str) -> npt.NDArray[np.float32]:
        return self._rows(self._loaded().query_embed(self._prefixes.put([text], query=True)))

    def close(self) -> None:
        """Let go of the model's memory."""
        with self._lock:
            self._engine = None

    def _rows(self, vectors: Iterator[Any]) -> npt.NDArray[np.float32]:
        try:
            rows = np.array(list(vectors), np.float32)
        # Whatever a model file makes the runtime raise.
        except Exception as error:
            raise EmbedderError(f"embedder 'fastembed', {self._shown}: the model could not be run: {error}") from error
        # A text without a known token has no direction of its own in a model that adds up tables of tokens.
        rows[~rows.any(axis=1)] = 1
        return rows

    @property
    def _shown(self) -> str:
        return f"model {self.model!r}" if self._path is None else f"the model in {self._path}"

    @cached_property
    def _digest(self) -> str:
        return self._files.digest()

    @cached_property
    def _batch(self) -> int:
        return 1 if self._files.depends_on_batch() else self._batch_size

    def _loaded(self) -> TextEmbedding:
        with self._lock:
            if self._engine is None:
                files, fastembed = self._files, _fastembed()
                name = self.model or _registered(files, self._digest)
                try:
                    with _quiet():
                        self._engine = fastembed.TextEmbedding(
                            name, threads=self._threads, specific_model_path=str(files.folder)
                        )
                except Exception as error:
                    raise EmbedderError(
                        f"embedder 'fastembed', {self._shown}: the files in {files.folder} can't be loaded: {error}"
                    ) from error
            return self._engine

    @cached_property
    def _files(self) -> Files:
        """Where the model's files are, after downloading them if they may be."""
        if self.model is None:
            assert self._path is not None
            return files_of_folder(self._path, self._pooling, self._output)
        known = self._known
        folder = self._path or self._downloaded(known)
        files = Files(folder, known.model_file, tuple(known.additional_files))
        missing = [name for name in (files.weights, *files.further) if not (folder / name).is_file()]
        if missing:
            raise EmbedderError(
                f"embedder 'fastembed': expected {', '.join(missing)} of the model {self.model!r} in {folder}; found "
                "no such file. Without `model`, the folder may hold any ONNX model"
            )
        return files

    def _downloaded(self, known: Any) -> Path:
        folder = self._cache_dir or cache_folder(os.environ)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _quiet():
                found: Path = _fastembed().TextEmbedding.download_model(
                    known, cache_dir=str(folder), retries=1, local_files_only=self._offline
                )
        except Exception as error:
            how = "and `offline` is set" if self._offline else f"and it can't be downloaded: {str(error).rstrip('.')}"
            raise EmbedderError(
                f"embedder 'fastembed': the model {self.model!r} is not in {folder}, {how}. Use it once with a "
                "connection to huggingface.co, or copy a folder with its files here and name that as `path`"
            ) from error
        return found

    @cached_property
    def _known(self) -> Any:
        """What fastembed knows of the model that is named."""
        model = str(self.model)
        known = {each.model.lower(): each for each in _fastembed().TextEmbedding._list_supported_models()}
        if model.lower() not in known:
            close = get_close_matches(model.lower(), known, 3)
            raise ConfigError(
                f"model: fastembed knows no {model!r}"
                + (f"; did you mean {' or '.join(repr(known[name].model) for name in close)}?" if close else "")
                + ' (`python -c \'import fastembed; print(*sorted(each["model"] for each in '
                "fastembed.TextEmbedding.list_supported_models()))'` lists them; another model goes by `path`)",
                key="model",
            )
        return known[model.lower()]


def _fastembed() -> Any:
    # Importing it, and the ONNX runtime with it, takes about a second.
    try:
        import fastembed
    except ImportError as error:
        raise EmbedderError(
            f"embedder 'fastembed': the package fastembed can't be imported: {error}. "
            "Install it anew: pip install --force-reinstall fastembed"
        ) from error
    return fastembed


def _registered(files: Files, digest: str) -> str:
    """The name under which fastembed knows the model of a folder from now on."""
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    poolings = {
        "cls": PoolingType.CLS,
        "mean": PoolingType.MEAN,
        "last": PoolingType.LAST_TOKEN,
        "none": PoolingType.DISABLED,
    }
    name = f"nanomem/{digest}-{files.weights}"
    with _registering:
        if name not in (each["model"] for each in TextEmbedding.list_supported_models()):
            TextEmbedding.add_custom_model(
                name,
                pooling=poolings[str(files.pooling)],
                normalization=True,
                # Both are for models that are downloaded and listed; this one is loaded from its folder.
                sources=ModelSource(url=files.folder.absolute().as_uri()),
                dim=0,
                model_file=files.weights,
                output_name=files.output,
            )
    return name


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What fastembed logs on stderr is in its exceptions, too."""
    from loguru import logger

    logger.disable("fastembed")
    try:
        yield
    finally:
        logger.enable("fastembed")
