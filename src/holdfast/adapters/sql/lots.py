"""Which lots of claims become one, on every store: few lots to look into, and each claim is rewritten seldom."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from holdfast.core.refusal import Corrupt

LOTS_OF_ONE_SIZE: Final = 8
LOT_SIZE_MAX: Final = 1 << 17
"""A lot of this size is left alone: joining eight of them would hold up the projection for many seconds."""

Lot = tuple[int, int]
"""Number and size."""


def lots_to_merge(lots: Sequence[Lot]) -> list[Lot]:
    """The first eight small lots of about one size (within a factor of eight), empty where there are fewer."""
    sizes: dict[int, list[Lot]] = {}
    for lot, size in lots:
        if size >= LOT_SIZE_MAX:
            continue
        alike = sizes.setdefault(size.bit_length() // 3, [])
        alike.append((lot, size))
        if len(alike) == LOTS_OF_ONE_SIZE:
            return alike
    return []


async def keys_of_all(
    lots: Callable[[], Awaitable[Sequence[Lot]]], keys: Callable[[int, bytes], Awaitable[Sequence[bytes]]]
) -> AsyncIterator[Sequence[bytes]]:
    """The keys of all lots in chunks, none missed though lots are merged meanwhile: new ones are walked as well.

    A lot that vanishes under the walk is in a new one by then. Numbers only grow; a key may be told twice.
    """
    seen: set[int] = set()
    while fresh := [lot for lot, _ in await lots() if lot not in seen]:
        for lot in fresh:
            seen.add(lot)
            after = b""
            while chunk := await keys(lot, after):
                if chunk[-1] <= after:  # else a damaged tree would be walked in circles
                    raise Corrupt("ENG-004", f"the ids of lot {lot} are out of order", "run holdfast db rebuild")
                yield chunk
                after = chunk[-1]
