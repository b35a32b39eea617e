"""Real model servers, which `tests/services/models.py` starts; see there."""

from __future__ import annotations

import os
from collections.abc import Iterator

import httpx
import pytest

from nanomem_core.http import forget_unreachable_endpoints
from nanomem_plugins.openai.embedder import OpenAIEmbedder
from nanomem_plugins.openai.generator import OpenAIGenerator
from tests.real.models import Slots, make_embedder, make_generator
from tests.services.models import CHAT_URL, EMBEDDINGS_URL


def _url(variable: str) -> str:
    url = os.environ.get(variable)
    if not url:
        pytest.skip(f"no model server runs ({variable} is not set); `make real` starts them and runs these tests")
    return url


@pytest.fixture(scope="session")
def chat_url() -> str:
    return _url(CHAT_URL)


@pytest.fixture(scope="session")
def embeddings_url() -> str:
    return _url(EMBEDDINGS_URL)


@pytest.fixture(autouse=True)
def nothing_is_known_dead() -> Iterator[None]:
    forget_unreachable_endpoints()
    yield
    forget_unreachable_endpoints()


@pytest.fixture
def generator(chat_url: str) -> Iterator[OpenAIGenerator]:
    with make_generator(chat_url) as generator:
        yield generator


@pytest.fixture
def embedder(embeddings_url: str) -> Iterator[OpenAIEmbedder]:
    with make_embedder(embeddings_url) as embedder:
        yield embedder


@pytest.fixture
def slots(chat_url: str) -> Iterator[Slots]:
    with httpx.Client(base_url=chat_url.removesuffix("/v1"), timeout=60) as client:
        yield Slots(client)
