"""How many outputs each live lease has announced (TIER-001): a lease has one result, and is no way to fill the disk."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from holdfast.core.refusal import Refused
from holdfast.core.values import Digest, LeaseId

OUTPUTS_MAX: Final = 8
"""Of one lease: an agent that lost its output may do the work again, and need not come to the same bytes."""
SPARE: Final = 64
"""So many leases that are over may be remembered besides: looking through all of them is not for every call."""


class Taken:
    """Digests by lease, in memory alone. A lease that is over is forgotten, and so are all of them at a start."""

    def __init__(self) -> None:
        self._digests: dict[LeaseId, set[Digest]] = {}

    def __len__(self) -> int:
        return len(self._digests)

    def why_not(self, lease_id: LeaseId, digest: Digest) -> Refused | None:
        """One more of a live lease; the same again is none."""
        digests = self._digests.setdefault(lease_id, set())
        if digest not in digests and len(digests) >= OUTPUTS_MAX:
            says = f"lease {lease_id.hex()} has sent {OUTPUTS_MAX} different outputs"
            return Refused("TIER-001", says, "complete it with one of them, or fail it", "TooLarge")
        digests.add(digest)
        return None

    def forget(self, live: Container[LeaseId], count: int) -> None:
        """Those that are over, once they are more than those that live, of which there are so many."""
        if len(self._digests) > 2 * count + SPARE:
            self._digests = {id_: digests for id_, digests in self._digests.items() if id_ in live}
