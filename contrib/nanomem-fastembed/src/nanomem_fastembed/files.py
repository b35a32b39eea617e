"""The files of a model: where they are, what they say about it, and a digest that changes with its vectors."""

from __future__ import annotations

import json
import mmap
import os
import sys
from collections.abc import Iterable, Mapping
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any, Literal, NamedTuple

from nanomem_core.errors import EmbedderError

__all__ = ["Files", "Pooling", "cache_folder", "files_of_folder"]

Pooling = Literal["cls", "mean", "last", "none"]
"""How the vectors of tokens become that of the text: the first one, their mean, the last one, or the model does it."""

_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_PLACES = ("model.onnx", "onnx/model.onnx")
_POOLINGS: dict[str, Pooling] = {"cls_token": "cls", "mean_tokens": "mean", "lasttoken": "last"}

_BY_BATCH = b"DynamicQuantizeLinear"
"""An operation of ONNX that scales by what is in the batch; its name stands in the file as it is."""


class Files(NamedTuple):
    """What a model is made of.

    Attributes:
        weights: the file with the weights, as a path below `folder`.
        further: other files of the weights.
        pooling: None if fastembed knows it.
        output: the output of the model that holds the vectors; None for the first one.
    """

    folder: Path
    weights: str
    further: tuple[str, ...] = ()
    pooling: Pooling | None = None
    output: str | None = None

    def digest(self) -> str:
        """16 hexadecimal digits of BLAKE2b over all that the vectors depend on."""
        total = blake2b(f"{self.pooling} {self.output}".encode(), digest_size=8)
        for name in (self.weights, *self.further, *_TOKENIZER):
            path = self.folder / name
            if path.is_file():
                with path.open("rb") as file:
                    # Where a file is, does not matter: copies of a model are the same model.
                    total.update(Path(name).name.encode() + b"\0" + file_digest(file, "blake2b").digest())
        return total.hexdigest()

    def depends_on_batch(self) -> bool:
        """True if the model gives a text other numbers in other company, as dynamically quantised ones do."""
        with (self.folder / self.weights).open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return False
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return data.find(_BY_BATCH) >= 0


def files_of_folder(folder: Path, pooling: Pooling | None, output: str | None) -> Files:
    """The files of a model in the form of sentence-transformers or Optimum: an ONNX file and a tokenizer.

    `pooling` None is read from ``1_Pooling/config.json``.

    Raises:
        EmbedderError: something is missing; names what.
    """
    if not folder.is_dir():
        raise EmbedderError(f"embedder 'fastembed': expected a folder with a model as path; {folder} is none")
    found = sorted(
        path.relative_to(folder).as_posix() for path in (*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx"))
    )
    weights = found[0] if len(found) == 1 else next((place for place in _PLACES if place in found), None)
    if weights is None:
        raise EmbedderError(
            f"embedder 'fastembed': expected {' or '.join(_PLACES)} in {folder}; found "
            f"{', '.join(found) or 'no ONNX file'}. Put one there, or name a model that fastembed knows as `model`"
        )
    _require(folder, _TOKENIZER[:2])
    return Files(folder, weights, pooling=pooling or _pooling_of(folder), output=output)


def _require(folder: Path, names: Iterable[str]) -> None:
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise EmbedderError(f"embedder 'fastembed': expected {', '.join(missing)} in {folder}; found no such file")


def _pooling_of(folder: Path) -> Pooling:
    path = folder / "1_Pooling" / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        modes = [mode for mode in _POOLINGS if config.get(f"pooling_mode_{mode}") is True]
        modes += [mode for mode, name in _POOLINGS.items() if config.get("pooling_mode") in (mode, name)]
    except (OSError, ValueError, AttributeError) as error:
        raise EmbedderError(
            f"embedder 'fastembed': how the model in {folder} pools the vectors of tokens is not told, since {path} "
            f"can't be read ({error}); set the option `pooling` to cls, mean, last or none, as the model's card says"
        ) from error
    if len(modes) != 1:
        raise EmbedderError(
            f"embedder 'fastembed': expected one way of pooling out of {', '.join(_POOLINGS)} in {path}; found "
            f"{' and '.join(modes) or 'none'}. Set the option `pooling`"
        )
    return _POOLINGS[modes[0]]


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where models that were downloaded are kept: ``FASTEMBED_CACHE_PATH``, or a folder of the user's caches."""
    named = environ.get("FASTEMBED_CACHE_PATH")
    if named:
        return Path(named)
    if os.name == "nt":
        caches = Path(environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    else:
        caches = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "nanomem" / "fastembed"
