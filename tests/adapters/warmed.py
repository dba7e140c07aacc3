"""A warm folder that holds these bytes, for the tests of what is swept away and found."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from holdfast.adapters.warm import WarmFolder


async def filled(folder: Path, raws: Iterable[bytes]) -> WarmFolder:
    warm = WarmFolder(folder)
    for raw in raws:
        incoming = await warm.receive()
        await incoming.write(raw)
        await incoming.keep()
    return warm
