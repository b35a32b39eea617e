"""The process an arm lives in: reads a JSON line a request from stdin, writes a JSON line a reply to stdout.

The first line sets it up (see `Setup` in `nanomem_bench.process`). A request is ``{"do": name, **arguments}``, a reply
``{"result": …}`` or ``{"error": text}``. The process ends when stdin does.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import traceback
from collections import defaultdict
from pathlib import Path
from typing import Any

from . import arms
from .data import K, Material, blocks
from .measure import count_syncs, judge, memory, read_bandwidth

__all__ = ["main"]

_BATCH = 1_000


class _Host:
    """What can be asked of the process: its public methods, with arguments and results that are JSON."""

    def __init__(self, arm: str, folder: str, material: str, chains: int, threads: int, first: int) -> None:
        self._material = Material(Path(material), chains)
        self._threads = threads
        self._arm = arms.load(arm)(Path(folder), self._material, threads)
        self._next: dict[str, int] = defaultdict(lambda: first)
        self._syncs = count_syncs()

    def describe(self) -> dict[str, Any]:
        cls = type(self._arm)
        return {
            "settings": cls.settings,
            "exact": cls.exact,
            "shared": cls.shared,
            "operations": cls.operations(),
        }

    def build(self) -> None:
        """Fill a new store, and use it once, so that it has every file beside it that it will have."""
        self._arm.folder.mkdir(parents=True)
        self._arm.open()
        for block in blocks(0, len(self._material), 10 * _BATCH):
            self._arm.add_many(block)
        self._arm.close()
        self._arm.open()
        if "search" in type(self._arm).operations():
            self._arm.search(0)
        self._arm.close()

    def open(self) -> float:
        begin = time.perf_counter()
        self._arm.open()
        return time.perf_counter() - begin

    def close(self) -> None:
        self._arm.close()

    def repeat(self, operation: str, seconds: float, limit: int) -> list[float]:
        """Seconds of each call of an operation, at least one, until `seconds` are over or there are `limit`.

        The number given to the operation rises by one each time, also from one request to the next.
        """
        return [row["seconds"] for row in self.measure(operation, seconds, limit)]

    def measure(self, operation: str, seconds: float, limit: int, after: str | None = None) -> list[dict[str, float]]:
        """As `repeat`, with more of each call: ``seconds``, ``cpu`` (seconds of this process) and ``syncs`` (files that
        were forced to disk). `after` is an operation that is done before each call, and not measured.
        """
        act = getattr(self._arm, operation)
        before = None if after is None else getattr(self._arm, after)
        samples: list[dict[str, float]] = []
        end = time.perf_counter() + seconds
        while not samples or (len(samples) < limit and time.perf_counter() < end):
            if after is not None and before is not None:
                before(self._take(after))
            position = self._take(operation)
            syncs, cpu, begin = self._syncs(), time.process_time(), time.perf_counter()
            act(position)
            took = time.perf_counter() - begin
            samples.append({"seconds": took, "cpu": time.process_time() - cpu, "syncs": self._syncs() - syncs})
        return samples

    def compete(self, operation: str, seconds: float) -> dict[str, Any]:
        """Repeat an operation beside other processes; calls that fail are counted, with the error of the last."""
        act = getattr(self._arm, operation)
        result: dict[str, Any] = {"seconds": [], "failures": 0, "error": ""}
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            position = self._take(operation)
            begin = time.perf_counter()
            try:
                act(position)
            except Exception as error:
                result |= {"failures": result["failures"] + 1, "error": f"{type(error).__name__}: {error}"}
            else:
                result["seconds"].append(time.perf_counter() - begin)
        return result

    def reopen(self, operation: str, fresh: bool = False) -> float:
        """Seconds that opening the store and the first call take. With `fresh`, what is derived is deleted before."""
        self._arm.close()
        if fresh:
            for name in self._arm.derived:
                shutil.rmtree(self._arm.folder / name, ignore_errors=True)
        position = self._take(operation)
        begin = time.perf_counter()
        self._arm.open()
        getattr(self._arm, operation)(position)
        return time.perf_counter() - begin

    def _take(self, operation: str) -> int:
        """The position of the next call of an operation."""
        number = self._next[operation]
        self._next[operation] = number + 1
        return self._position(operation, number)

    def _position(self, operation: str, number: int) -> int:
        """Records are added beyond those of the store, removed from its end, and read in its first half."""
        if operation == "add":
            return len(self._material) + number
        return len(self._material) - 1 - number if operation == "delete" else number % (len(self._material) // 2)

    def add_many(self, count: int) -> tuple[float, float]:
        """Seconds that a store in a new folder takes for `count` records, with opening it.

        Without closing it, when some prepare searches and others write at last; and with that.
        """
        folder = self._arm.folder / f"new-{self._next['add_many']}"
        self._next["add_many"] += 1
        folder.mkdir(parents=True)
        arm = type(self._arm)(folder, self._material, self._threads)
        self._material.text(0), self._material.vector(0)  # read before the clock runs
        begin = time.perf_counter()
        arm.open()
        for block in blocks(0, count, _BATCH):
            arm.add_many(block)
        added = time.perf_counter() - begin
        arm.close()
        return added, time.perf_counter() - begin

    def memory(self) -> dict[str, int] | None:
        return memory()

    def disk(self) -> tuple[int, int]:
        return self._arm.bytes_on_disk()

    def check(self, questions: int) -> dict[str, float]:
        """How right the answers to the first so many questions are: against the vectors as the store has them, and as
        they were given."""
        queries = self._material.queries[:questions]
        answers = self.answers("search", len(queries))
        recall, order = judge(self._arm.stored(), queries, answers, K)
        return {
            "recall": recall,
            "order": order,
            "recall_of_given": judge(self._material.vectors, queries, answers, K)[0],
        }

    def answers(self, operation: str, count: int) -> list[list[int]]:
        """The positions that a kind of search finds for each of the first `count` questions."""
        return [getattr(self._arm, operation)(number) for number in range(count)]

    def bandwidth(self, threads: int) -> float:
        return read_bandwidth(threads)


def main() -> None:
    # What a library prints must not mix with the replies.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    setup = json.loads(sys.stdin.readline())
    if setup.pop("confined"):
        _confine(setup["threads"])
    host: _Host | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            host = host or _Host(**setup)
            reply = {"result": getattr(host, request.pop("do"))(**request)}
        except Exception as error:
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _confine(threads: int) -> None:
    """Keep to as many processors as there are threads, whatever a library thinks it may use."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


if __name__ == "__main__":
    main()
