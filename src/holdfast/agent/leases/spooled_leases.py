"""What the spool of earlier processes says about leases: which were accepted and not ended, and which are reported."""

from __future__ import annotations

from holdfast.agent.leases.records import ACCEPTED, OUTCOMES, READY, AcceptedOffer, read_lease_record
from holdfast.agent.transport.evidence_emitter import SpooledAt
from holdfast.spool.files.record import BLOCK_FENCE


class SpooledLeases:
    """An index of spooled records by lease. Records may be added in any order."""

    def __init__(self) -> None:
        self._offers: dict[bytes, AcceptedOffer] = {}
        self._accepted_in: dict[bytes, str] = {}
        """The session that holds the offer of a lease."""
        self._spooled: dict[tuple[str, bytes], SpooledAt] = {}

    def add(self, at: SpooledAt, line: bytes) -> None:
        """Index one record."""
        read = read_lease_record(line)
        if read is None:
            return
        payload_type, lease_id, offer = read
        if payload_type in (READY, *OUTCOMES, BLOCK_FENCE):
            self._spooled[payload_type, lease_id] = at
        if payload_type == ACCEPTED and offer is not None:
            self._offers[lease_id], self._accepted_in[lease_id] = offer, at.session

    def outcome_at(self, lease_id: bytes) -> SpooledAt | None:
        """Where the outcome of a lease is spooled: it is not decided again, whatever the node knows of it."""
        found = (self._spooled.get((payload_type, lease_id)) for payload_type in OUTCOMES)
        return next((at for at in found if at is not None), None)

    def is_spooled(self, payload_type: str, lease_id: bytes) -> bool:
        return (payload_type, lease_id) in self._spooled

    def is_fenced(self, lease_id: bytes) -> bool:
        return self.is_spooled(BLOCK_FENCE, lease_id)

    def unfinished(self) -> list[AcceptedOffer]:
        """Leases that were accepted, and neither reported nor lost."""
        return [
            offer
            for lease_id, offer in self._offers.items()
            if self.outcome_at(lease_id) is None and not self.is_fenced(lease_id)
        ]

    def needed_sessions(self) -> set[str]:
        """Those that hold the offer of an unfinished lease."""
        return {self._accepted_in[offer.lease_id] for offer in self.unfinished()}
