"""Settings that all tests share."""

from __future__ import annotations

import os

from hypothesis import settings

# A deadline measures how busy the machine is, not the code.
settings.register_profile("short", deadline=None, derandomize="CI" in os.environ)
settings.register_profile("full", settings.get_profile("short"), max_examples=1000)
settings.load_profile("full" if os.environ.get("NANOMEM_FULL") else "short")
