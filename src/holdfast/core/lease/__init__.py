"""Leases (LEA-001 … LEA-009): one provider holds one job for a time, acknowledges and renews it, and loses it when it
is late. Read: ids, model, messages, decide, quorum (leases of replicas), due, revocation, apply, invariants.
"""

from holdfast.core.lease.ids import lease_id

__all__ = ["lease_id"]
