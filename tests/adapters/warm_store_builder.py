"""A warm store that holds these bytes, for the tests of sweeps and scans."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from holdfast.adapters.warm_store import WarmStore


async def filled_warm_store(folder: Path, raws: Iterable[bytes]) -> WarmStore:
    warm = WarmStore(folder)
    for raw in raws:
        incoming = await warm.receive()
        await incoming.write(raw)
        await incoming.keep()
    return warm
