"""Numbers: what the machine and a process have, and how samples are summed up."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["THREAD_VARIABLES", "count_syncs", "judge", "machine", "memory", "p95", "read_bandwidth", "slope"]

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "TOKIO_WORKER_THREADS",
    "LANCE_CPU_THREADS",
)
"""Where the libraries that may be in use look for the number of threads."""

_TIE = 1e-5
"""Scores that are closer than this count as equal: sums of products in float32 differ by the order of summing."""


def p95(samples: Sequence[float]) -> float:
    """The 95th percentile."""
    return float(np.percentile(samples, 95))


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Exponent b of the power law value = a · size^b that fits best (least squares of the logarithms)."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def judge(
    vectors: npt.NDArray[np.float32], queries: npt.NDArray[np.float32], answers: Sequence[Sequence[int]], k: int
) -> tuple[float, float]:
    """Compare answers with a brute-force scan of `vectors`: recall at `k`, and the share of answers in right order.

    Records whose scores differ by less than the error of float32 sums may stand in for one another.
    """
    scores = vectors @ queries.T
    k = min(k, len(scores))
    bests = -np.sort(-np.partition(scores, len(scores) - k, axis=0)[len(scores) - k :], axis=0).T
    recalls, ordered = [], 0
    for column, (best, answer) in enumerate(zip(bests, answers, strict=True)):
        given = scores[list(answer), column]
        distinct = len(set(answer)) == len(answer)
        recalls.append(float((given >= best[-1] - _TIE).sum()) / len(best) if distinct else 0.0)
        ordered += distinct and len(given) == len(best) and bool((np.abs(given - best) <= _TIE).all())
    return float(np.mean(recalls)), ordered / len(recalls)


def memory() -> dict[str, int] | None:
    """Bytes of this process: ``anonymous`` (its own), and ``mapped`` (of files, which the system can drop).

    None where the system does not tell them apart: only Linux does, since 4.14.
    """
    try:
        text = Path("/proc/self/smaps_rollup").read_text()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in text.splitlines()[1:])
    kib = {name: int(value.split()[0]) for name, value in fields.items()}
    return {"anonymous": 1024 * kib["Anonymous"], "mapped": 1024 * (kib["Rss"] - kib["Anonymous"])}


def count_syncs() -> Callable[[], int]:
    """Count from now on how often Python code of this process forces a file to disk; returns how to ask for the number.

    What libraries in C do by themselves, as SQLite does, is not seen.
    """
    number = 0

    def counting(sync: Callable[[int], None]) -> Callable[[int], None]:
        def counted(descriptor: int) -> None:
            nonlocal number
            number += 1
            sync(descriptor)

        return counted

    for name in ("fsync", "fdatasync"):
        if hasattr(os, name):
            setattr(os, name, counting(getattr(os, name)))
    return lambda: number


def read_bandwidth(threads: int, size: int = 1 << 28, rounds: int = 5) -> float:
    """Bytes a second that `threads` threads read from memory together; the best of `rounds`.

    Each looks for the largest number in a part of its own, which needs next to no arithmetic.
    """
    parts = np.array_split(np.ones(size // 4, np.float32), threads)
    best = 0.0
    for _ in range(rounds + 1):
        workers = [threading.Thread(target=np.max, args=(part,)) for part in parts]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = max(best, size / (time.perf_counter() - start))
    return best


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "system": platform.platform(),
        "processor": _processor(),
        "processors": os.cpu_count(),
        "memory": _memory_size(),
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "numkong": _version("numkong"),
    }


def _memory_size() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (AttributeError, ValueError):  # Windows
        return "unknown"


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
