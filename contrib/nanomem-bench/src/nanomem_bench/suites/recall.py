"""How right the answers are, on data of several shapes; and what embedding costs, which no other figure contains."""

from __future__ import annotations

import time

from ..arms import OURS
from ..bench import Bench, Running
from ..data import KINDS, QUERIES, Material

__all__ = ["SIZES", "check", "run"]

SIZES = ((10_000, 384), (10_000, 768), (100_000, 768))
"""Where every answer of ours is compared."""

_CHECKED = 100
"""Questions that are enough for the others."""


def run(bench: Bench) -> None:
    # On random data, the first kind, the suite "search" compares the arms.
    specs = [bench.spec(bench.effort.middle, 384, kind) for kind in KINDS[1:]]
    if bench.text_spec is not None:
        specs.append(bench.text_spec)
    for spec in specs:
        with bench.running(bench.able("search"), spec) as running:
            bench.say(f"answers: {spec}")
            for (each, _), seconds in bench.turns(running, "search").items():
                bench.add_times("search", each.arm, spec, seconds, threads=bench.threads)
            check(bench, running)
    ours = [name for name in bench.arms if name == OURS]
    for spec in dict.fromkeys(bench.spec(n, dim, kind) for n, dim in SIZES for kind in KINDS):
        with bench.running(ours, spec) as running:
            bench.say(f"every answer: {spec}")
            check(bench, running, QUERIES)
    _embedding(bench)


def check(bench: Bench, running: list[Running], questions: int = _CHECKED) -> None:
    """Compare the answers of each process with brute force."""

    def compare(each: Running) -> None:
        found = each.process.call("check", questions=questions)
        bench.add("recall@10 of what is stored", each.arm, each.spec, found["recall"], "")
        bench.add("answers in the order of brute force", each.arm, each.spec, found["order"], "")
        bench.add("recall@10 of what was given", each.arm, each.spec, found["recall_of_given"], "")

    bench.each(running, compare)


def _embedding(bench: Bench) -> None:
    material = Material(bench.material(bench.text_spec or bench.spec(1_000, 384)))
    bench.say("embedding")
    bench.embedder.embed_query(material.question(0))  # a model is loaded by the first call
    seconds = []
    for question in material.questions:
        begin = time.perf_counter()
        bench.embedder.embed_query(question)
        seconds.append(time.perf_counter() - begin)
    bench.add_times("embedding a question (in no other figure)", OURS, bench.embedder.id, seconds)
    texts = material.texts[:1_000]
    begin = time.perf_counter()
    bench.embedder.embed_batch(texts)
    rate = len(texts) / (time.perf_counter() - begin)
    bench.add("embedding texts (in no other figure)", OURS, bench.embedder.id, rate, "texts/s")
