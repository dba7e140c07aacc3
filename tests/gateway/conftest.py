"""A gateway over a folder of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.adapters.objects.simulated_objects import SimulatedObjects
from tests.gateway.running_gateway import Gateway, gateway


@pytest.fixture
def objects() -> SimulatedObjects:
    return SimulatedObjects()


@pytest.fixture
async def running(tmp_path: Path, objects: SimulatedObjects) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path, objects) as opened:
        yield opened
