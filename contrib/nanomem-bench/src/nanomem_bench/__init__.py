"""``nanomem bench``: measures `nanomem_core` beside other embedded vector stores.

An *arm* (`nanomem_bench.arms`) is one product in one configuration; it lives in a process of its own
(`nanomem_bench.worker`). A *suite* (`nanomem_bench.suites`) lets arms take turns and writes down figures;
`nanomem_bench.bars` says which ratios are the goal, and `nanomem_bench.report` shows all of it.
"""
