"""Settings that all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from nanomem_core.testing import faults
from nanomem_core.testing.samples import full_run

# A deadline measures how busy the machine is, not the code.
settings.register_profile("short", deadline=None, derandomize="CI" in os.environ)
settings.register_profile("full", settings.get_profile("short"), max_examples=1000)
settings.load_profile("full" if full_run() else "short")


@pytest.fixture
def unsynced() -> Iterator[None]:
    """For tests that open many states of a disk: see `faults.unsynced`."""
    with faults.unsynced():
        yield
