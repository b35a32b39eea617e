"""A run: which arms there are, their data and stores, their processes, and the figures that come of it."""

from __future__ import annotations

import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median

from nanomem_core.cli.show import count
from nanomem_core.interfaces import Embedder

from . import arms
from .data import KINDS, TEXT, Spec, make, make_from_text
from .findings import Described, Effort, Failure, Figure, Findings
from .measure import p95
from .process import ArmError, ArmProcess, Setup

__all__ = ["Bench", "Running", "Samples"]


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """A process with a store."""

    arm: str
    spec: Spec
    process: ArmProcess


Samples = Mapping[tuple[Running, str], Sequence[float]]
"""Seconds of each call, by process and operation."""


class Bench:
    """One run. Everything it makes is in `folder`.

    Args:
        wanted: names of the arms, those of facts included; those that are not installed end up in `missing`.
        text: a file whose lines are embedded by `embedder` for the data of kind ``text``.
        say: told how many suites are done, and what is being done.
    """

    def __init__(
        self,
        folder: Path,
        effort: Effort,
        wanted: Iterable[str],
        *,
        seed: int,
        embedder: Embedder,
        kinds: Sequence[str] = ("random",),
        text: Path | None = None,
        say: Callable[[int, str], None] = lambda done, text: None,
    ) -> None:
        self.folder = folder
        self.effort = effort
        self.kinds = kinds
        self.embedder = embedder
        self.text = text
        self._say = say
        self._done = 0
        self.suite = ""
        self.figures: list[Figure] = []
        self.failures: list[Failure] = []
        self.missing: list[str] = []
        self._seed = seed
        self._stores: dict[tuple[str, Spec], Path | None] = {}
        self._copies = 0
        wanted = tuple(wanted)
        self.arms = self._described(name for name in wanted if name in arms.ARMS)
        self.fact_arms = self._described(name for name in wanted if name in arms.FACT_ARMS)

    def _described(self, names: Iterable[str]) -> dict[str, Described]:
        """Those of `names` that are installed."""
        found = {}
        for name in names:
            version = arms.installed_version(name)
            if version is None:
                self.missing.append(name)
                continue
            self.say(f"looking at {name}")
            with self._noting(), ArmProcess(Setup(name, self.folder, self.folder)) as process:
                said = process.call("describe")
                found[name] = Described(version, **(said | {"operations": tuple(said["operations"])}))
        return found

    def note(self, error: ArmError) -> None:
        """Write down that an arm failed in the present suite."""
        failure = Failure(self.suite, error.arm, error.message)
        if failure not in self.failures:
            self.failures.append(failure)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Go on after the error of an arm."""
        try:
            yield
        except ArmError as error:
            self.note(error)

    def say(self, text: str) -> None:
        """Tell what is being done."""
        self._say(self._done, f"{self.suite}: {text}" if self.suite else text)

    @property
    def threads(self) -> int:
        """Where only one number of threads is measured, this one."""
        return self.effort.threads[-1]

    def able(self, *operations: str) -> list[str]:
        """The arms that can do all of these."""
        return [name for name, arm in self.arms.items() if set(operations) <= set(arm.operations)]

    # Data and stores.

    def spec(self, n: int, dim: int, data: str = "random", *, in_chains: bool = False) -> Spec:
        """What a store of this size is in this run, ten values a chain if it has chains."""
        n = self.effort.records(n)
        return Spec(n, dim, data, n // 10 if in_chains else 0)

    @cached_property
    def text_spec(self) -> Spec | None:
        """The data of the text file, None if there is no file."""
        if self.text is None:
            return None
        self.say(f"embedding {self.text}")
        return make_from_text(
            self.text, self.embedder, self._material_folder(TEXT), self.effort.records(self.effort.top)
        )

    def specs(self, sizes: Iterable[tuple[int, int]]) -> list[Spec]:
        """The stores of these sizes (records, dimensions), of each kind of data that was asked for."""
        made = [self.spec(n, dim, kind) for kind in self.kinds if kind in KINDS for n, dim in sizes]
        if TEXT in self.kinds and self.text_spec is not None:
            made.append(self.text_spec)
        return list(dict.fromkeys(made))

    def _material_folder(self, name: str) -> Path:
        return self.folder / "data" / name

    def material(self, spec: Spec) -> Path:
        """The folder with the data; made when it is first asked for."""
        if spec.data == TEXT:
            return self._material_folder(TEXT)
        plain = replace(spec, chains=0)
        folder = self._material_folder(f"{plain.n}-{plain.dim}-{plain.data}")
        if not folder.exists():
            self.say(f"making data: {plain}")
            make(plain, folder, self._seed)
        return folder

    def setup(self, arm: str, spec: Spec, folder: Path, threads: int) -> Setup:
        return Setup(arm, folder, self.material(spec), spec.chains, threads)

    def store(self, arm: str, spec: Spec) -> Path | None:
        """The folder with a store; built by a process of its own when it is first asked for. None: that failed."""
        self._build([arm], [spec])
        return self._stores[arm, spec]

    def _build(self, names: Iterable[str], specs: Sequence[Spec]) -> None:
        """Build those stores that are not there yet, side by side: building is not timed."""
        missing = [(name, spec) for spec in specs for name in names if (name, spec) not in self._stores]
        for spec in dict.fromkeys(spec for _, spec in missing):
            self.material(spec)
        processors = os.cpu_count() or 1

        def build(key: tuple[str, Spec]) -> None:
            arm, spec = key
            self._stores[key] = None
            folder = self.folder / "stores" / f"{arm}-{spec.n}-{spec.dim}-{spec.data}-{spec.chains}"
            self.say(f"building {arm}: {spec}")
            setup = replace(self.setup(arm, spec, folder, processors), confined=False)
            with self._noting(), ArmProcess(setup) as process:
                process.call("build")
                self._stores[key] = folder

        with ThreadPoolExecutor(processors) as pool:
            list(pool.map(build, missing))

    @contextmanager
    def copy(self, folder: Path) -> Iterator[Path]:
        """A copy of a store, to be written to."""
        self._copies += 1
        target = self.folder / "copies" / str(self._copies)
        shutil.copytree(folder, target)
        try:
            yield target
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def on_copy(self, arm: str, spec: Spec, act: Callable[[Path], None]) -> None:
        """`act` on a copy of a store, if there is one; an error of the arm is written down."""
        folder = self.store(arm, spec)
        if folder is not None:
            with self._noting(), self.copy(folder) as copy:
                act(copy)

    @contextmanager
    def running(
        self, names: Iterable[str], specs: Spec | Sequence[Spec], *, threads: int | None = None, writes: bool = False
    ) -> Iterator[list[Running]]:
        """A process with an open store for each arm and spec. With `writes`, the stores are copies."""
        made: list[Running] = []
        threads = self.threads if threads is None else threads
        names = list(names)
        specs = [specs] if isinstance(specs, Spec) else specs
        self._build(names, specs)
        with ExitStack() as stack:
            for spec in specs:
                for name in names:
                    folder = self.store(name, spec)
                    if folder is None:
                        continue
                    if writes:
                        folder = stack.enter_context(self.copy(folder))
                    process = stack.enter_context(ArmProcess(self.setup(name, spec, folder, threads)))
                    made.append(Running(name, spec, process))
            # Asked of all before any is waited for: most of the time goes into importing the products.
            self.each(made, lambda each: each.process.ask("open"))
            self.each(made, lambda each: each.process.answer())
            yield made
            for each in made:
                with self._noting():
                    each.process.call("close")

    # Measuring.

    def each(self, running: list[Running], act: Callable[[Running], None]) -> None:
        """`act` on each process; one whose arm fails is taken from the list."""
        for each in list(running):
            try:
                act(each)
            except ArmError as error:
                self.note(error)
                running.remove(each)

    def turns(self, running: list[Running], *operations: str, calls: int | None = None) -> Samples:
        """Seconds of each call of `operations`, by arms that take turns; the first call of each is not counted."""
        samples: dict[tuple[Running, str], list[float]] = defaultdict(list)
        calls = self.effort.calls if calls is None else calls
        for number in range(1 + self.effort.rounds):
            for operation in operations:

                def turn(each: Running, number: int = number, operation: str = operation) -> None:
                    if operation not in self.arms[each.arm].operations:
                        return
                    if number == 0:
                        each.process.call("repeat", operation=operation, seconds=0, limit=1)
                        return
                    # A store must not run out of records.
                    spare = each.spec.n // (4 * (1 + self.effort.rounds))
                    limit = min(calls, spare) if operation == "delete" else calls
                    samples[each, operation] += each.process.call(
                        "repeat", operation=operation, seconds=self.effort.seconds, limit=limit
                    )

                self.each(running, turn)
        return samples

    def add(
        self,
        measure: str,
        arm: str,
        case: Spec | str,
        value: float,
        unit: str,
        *,
        n: int | None = None,
        p95: float | None = None,
        threads: int | None = None,
    ) -> None:
        """Write down a figure of the present suite."""
        n = n if n is not None else case.n if isinstance(case, Spec) else 0
        self.figures.append(Figure(self.suite, measure, arm, str(case), value, unit, n, p95, threads))

    def add_times(
        self,
        measure: str,
        arm: str,
        case: Spec | str,
        seconds: Sequence[float],
        *,
        n: int | None = None,
        threads: int | None = None,
    ) -> None:
        """Write down the median and the 95th percentile of `seconds`, in milliseconds."""
        self.add(measure, arm, case, 1e3 * median(seconds), "ms", n=n, p95=1e3 * p95(seconds), threads=threads)

    def run(self, suites: Mapping[str, Callable[[Bench], None]]) -> dict[str, float]:
        """Run suites; returns the seconds that each took."""
        took = {}
        for name, run in suites.items():
            self.suite = name
            begin = time.perf_counter()
            run(self)
            took[name] = time.perf_counter() - begin
            self._done += 1
        return took

    def bandwidth(self) -> dict[int, float]:
        """Bytes a second that can be read from memory, by number of threads."""
        found = {}
        for threads in self.effort.threads:
            self.say(f"memory bandwidth, {count(threads, 'thread')}")
            with self._noting(), ArmProcess(Setup("numpy", self.folder, self.folder, threads=threads)) as process:
                found[threads] = process.call("bandwidth", threads=threads)
        return found

    @property
    def findings(self) -> Findings:
        """What was found so far."""
        return Findings(self.effort, self.arms | self.fact_arms, self.missing, self.failures, self.figures)
