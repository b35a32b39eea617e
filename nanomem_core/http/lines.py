"""The lines of a stream, whose pieces end anywhere."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import BadResponseError
from .endpoint import Endpoint

__all__ = ["Lines"]

_LONGEST = 1 << 22


class Lines:
    """Cuts a stream of bytes into lines, at ``\\n`` or ``\\r\\n``."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[str]:
        """The lines that end in `piece`.

        Raises:
            BadResponseError: a line is longer than 4 MiB.
        """
        *whole, self._rest = (self._rest + piece).replace(b"\r\n", b"\n").split(b"\n")
        if len(self._rest) > _LONGEST:
            shown = self._endpoint.shown
            raise BadResponseError(f"{shown}: expected a stream of lines; found one without an end", url=shown)
        for line in whole:
            yield line.decode("utf-8", "replace")

    def end(self) -> Iterator[str]:
        """What stands behind the last line end, if anything does."""
        if self._rest:
            yield self._rest.decode("utf-8", "replace")
            self._rest = b""
