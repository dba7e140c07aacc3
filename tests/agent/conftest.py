"""A node for every test of agents."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.agent.fake_node import FakeNode


@pytest.fixture
async def node() -> AsyncIterator[FakeNode]:
    made = FakeNode()
    await made.start()
    yield made
    await made.stop()
