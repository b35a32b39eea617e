"""What the embedders of all HTTP providers share."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BadResponseError, ConfigError, WidthError
from ..interfaces import Embedder, Prefixes
from .client import Client
from .endpoint import Endpoint
from .exchange import Body, Call

__all__ = ["HttpEmbedder"]

_BYTES_PER_TOKEN = 3
"""UTF-8 bytes of a token, about; English has more, so batches rather turn out too small than too large."""

Rows = npt.NDArray[np.float32]


class HttpEmbedder(Embedder):
    """An embedder that asks an endpoint. A provider implements `body` and `read`.

    `nanomem_core.aio.AsyncEmbedder` awaits what this does by blocking. Texts are sent in batches, in order; if one of
    them fails, the whole call does.

    Args:
        endpoint: where it is asked.
        model: the model's name.
        dim: numbers in a vector; None learns it from the first answer, or asks if it is wanted before.
        dimensions: numbers in a vector to ask the model for; None takes what it gives.
        batch_size: texts in one request, at most.
        batch_tokens: tokens in one request, about; a longer text goes alone.
        document_prefix: put before a text that is stored, where the model wants that.
        query_prefix: put before a question.

    Raises:
        ConfigError: an option has a wrong value.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        *,
        dim: int | None = None,
        dimensions: int | None = None,
        batch_size: int = 64,
        batch_tokens: int = 32_000,
        document_prefix: str = "",
        query_prefix: str = "",
    ) -> None:
        if not model.strip():
            raise ConfigError("model: expected the name of a model; found an empty one", key="model")
        numbers = {"dim": dim, "dimensions": dimensions, "batch_size": batch_size, "batch_tokens": batch_tokens}
        for name, number in numbers.items():
            if number is not None and number < 1:
                raise ConfigError(f"{name}: expected 1 or more; found {number}", key=name)
        if dim is not None and dimensions is not None and dim != dimensions:
            raise ConfigError(f"dim: expected {dimensions}, as dimensions says; found {dim}", key="dim")
        self.endpoint = endpoint
        self.model = model
        self.dimensions = dimensions
        self._dim = dim or dimensions
        self._declared = self._dim is not None
        self._batch_size = batch_size
        self._batch_tokens = batch_tokens
        self._prefixes = Prefixes(document_prefix, query_prefix)
        self._client = Client(endpoint)
        self._tokens: dict[int, int] = {}  # by thread, so that each adds to a number of its own

    @property
    def input_tokens(self) -> int | None:
        """Tokens that the server counted in all texts so far; None if it counts none."""
        return sum(self._tokens.copy().values()) if self._tokens else None

    @property
    def id(self) -> str:
        """Provider, model, the width that was asked for, and the prefixes; not the server, which may move."""
        width = () if self.dimensions is None else (f"dimensions={self.dimensions}",)
        return self._prefixes.id(f"{self.name}:{self.model}", *width)

    @property
    def dim(self) -> int:
        """Numbers in a vector. Asks the endpoint once if that is not known yet.

        Raises:
            EndpointError: it had to be asked, and can't be used.
        """
        if self._dim is None:
            self.encode(["width"])
        assert self._dim is not None
        return self._dim

    @abstractmethod
    def body(self, texts: Sequence[str]) -> Body:
        """The request for the vectors of `texts`."""

    @abstractmethod
    def read(self, answer: Any) -> tuple[npt.ArrayLike, int | None]:
        """The rows in the JSON of an `answer`, in the order of the texts, and the tokens they took, if it says so."""

    def encode(self, texts: Sequence[str]) -> Rows:
        return self._client.run(self.encoding(texts))

    def encode_query(self, text: str) -> Rows:
        return self._client.run(self.encoding([text], query=True))

    def encoding(self, texts: Sequence[str], query: bool = False) -> Call[Rows]:
        """The call of `encode`, or with `query` of `encode_query`."""
        # An empty text is refused by some servers, and given no vector by others.
        prefixed = [text or " " for text in self._prefixes.put(texts, query=query)]
        batches = []
        for batch in self._batches(prefixed):
            answer = yield self.body(batch)
            rows, tokens = self.read(answer)
            if tokens is not None:
                thread = threading.get_ident()
                self._tokens[thread] = self._tokens.get(thread, 0) + tokens
            batches.append(self._checked_rows(rows, len(batch)))
        return np.concatenate(batches) if batches else np.empty((0, self._dim or 0), np.float32)

    def close(self) -> None:
        self._client.close()

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        tokens = 0
        for text in texts:
            more = len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN + 1
            if batch and (len(batch) == self._batch_size or tokens + more > self._batch_tokens):
                yield batch
                batch, tokens = [], 0
            batch.append(text)
            tokens += more
        if batch:
            yield batch

    def _checked_rows(self, rows: npt.ArrayLike, expected: int) -> Rows:
        shown = self.endpoint.shown
        try:
            found = np.asarray(rows, np.float32)
        except (ValueError, TypeError, OverflowError) as error:
            raise BadResponseError(
                f"{shown}: expected vectors of numbers, all of one width; found something else", url=shown, status=200
            ) from error
        if found.ndim != 2 or len(found) != expected:
            what = f"{len(found)}" if found.ndim == 2 else f"an array of shape {found.shape}"
            raise BadResponseError(
                f"{shown}: expected {expected} vectors for {expected} texts; found {what}", url=shown, status=200
            )
        width = found.shape[1]
        if self._dim is None:
            self._dim = width
        elif width != self._dim:
            why = "as was declared" if self._declared else "as before"
            raise WidthError(
                f"{shown}, model {self.model!r}: expected vectors of {self._dim} numbers, {why}; found {width}. "
                "Vectors of different models can't be compared: name the right model, or its width as dim",
                expected=self._dim,
                found=width,
            )
        return found
