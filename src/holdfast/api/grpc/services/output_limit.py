"""The outputs of each live lease (TIER-001): how many it may upload, and which of them have arrived.

A lease cannot fill the disk, and learns only of bytes that it has sent itself whether the node holds them.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Digest, LeaseId

OUTPUTS_MAX: Final = 8
"""Different outputs of one lease: an agent that lost its output may do the work again and get other bytes."""
ENDED_LEASES_KEPT: Final = 64
"""Ended leases that may be remembered, so that not every call has to look through all of them."""


class OutputLimit:
    """Digests by lease, in memory only: a restart forgets them. Ended leases are forgotten as well."""

    def __init__(self) -> None:
        self._digests: dict[LeaseId, dict[Digest, bool]] = {}
        """Whether all bytes of each of them have arrived."""

    def __len__(self) -> int:
        return len(self._digests)

    def why_not_output(self, lease_id: LeaseId, digest: Digest) -> Refused | None:
        """Count one more output of a live lease; the same output again does not count."""
        digests = self._digests.setdefault(lease_id, {})
        if digest not in digests and len(digests) >= OUTPUTS_MAX:
            message = f"lease {lease_id.hex()} has sent {OUTPUTS_MAX} different outputs"
            return Refused("TIER-001", message, "complete it with one of them, or fail it", "TooLarge")
        digests.setdefault(digest, False)
        return None

    def record_arrival(self, lease_id: LeaseId, digest: Digest) -> None:
        """The lease has sent every byte of an output."""
        self._digests.setdefault(lease_id, {})[digest] = True

    def has_arrived(self, lease_id: LeaseId, digest: Digest) -> bool:
        return self._digests.get(lease_id, {}).get(digest, False)

    @property
    def lease_ids(self) -> frozenset[LeaseId]:
        """The leases that are remembered."""
        return frozenset(self._digests)

    def must_forget(self, live_count: int) -> bool:
        """Whether far more leases are remembered than live."""
        return len(self._digests) > 2 * live_count + ENDED_LEASES_KEPT

    def forget_ended(self, live: Container[LeaseId]) -> None:
        """Keep only the leases that live."""
        self._digests = {id_: digests for id_, digests in self._digests.items() if id_ in live}
