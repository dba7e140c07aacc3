"""When each provider must be checked: an index beside the records, so that healthy providers cost nothing (PRV-002).

It is rebuilt from the records: providers by due time and by due height, rotated keys, providers without a stake.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.core.base.values import ProviderId
from holdfast.core.index.due_index import DueIndex


class ProviderTimers(msgspec.Struct):
    """When each provider is due. One without a due time is in none of these."""

    due_index: DueIndex = msgspec.field(default_factory=DueIndex)
    due_ms_by_id: dict[ProviderId, int] = {}
    """The due time of each provider in `due_index`."""
    due_heights: dict[ProviderId, int] = {}
    """Providers that wait for a block height: jailed ones, and those with locked stake. They are few."""
    rotated_keys: dict[bytes, ProviderId] = {}
    """Rotated keys, and the provider of each."""
    unstaked: set[ProviderId] = set()
    """Providers without a stake that have not retired: anyone with a fresh key can register one."""

    def schedule(self, id_: ProviderId, due_ms: int | None, height: int | None) -> None:
        """Set the due time and height of a provider, in place of the earlier ones."""
        before_ms = self.due_ms_by_id.get(id_)
        if before_ms != due_ms:
            if before_ms is not None:
                self.due_index.remove(id_, before_ms)
                del self.due_ms_by_id[id_]
            if due_ms is not None:
                self.due_index.schedule(id_, due_ms)
                self.due_ms_by_id[id_] = due_ms
        if height is not None:
            self.due_heights[id_] = height
        else:
            self.due_heights.pop(id_, None)

    def set_unstaked(self, id_: ProviderId, *, is_unstaked: bool) -> None:
        if is_unstaked:
            self.unstaked.add(id_)
        else:
            self.unstaked.discard(id_)

    def is_due(self, now_ms: int, height: int) -> bool:
        next_ms = self.due_index.earliest()
        return (next_ms is not None and next_ms <= now_ms) or any(due <= height for due in self.due_heights.values())

    def due_until(self, now_ms: int, height: int) -> Iterator[ProviderId]:
        """All providers that may be due now, each once; the caller checks the exact time."""
        by_height = {id_: None for id_, due in self.due_heights.items() if due <= height}
        yield from by_height
        for id_ in self.due_index.due_until(now_ms):
            if id_ not in by_height:
                yield ProviderId(id_)
