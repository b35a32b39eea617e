"""``python -m nanomem_core`` is the ``nanomem`` command."""

from __future__ import annotations

from .cli import main

if __name__ == "__main__":
    main()
