"""Leases (LEA-001 … LEA-009): one provider holds one job for a time, acknowledges and renews it, and loses it when it
is late. Read: model, messages, decide, quorum (leases of replicas), input_claims, apply, invariants.
"""

from holdfast.core.lease.model import lease_id

__all__ = ["lease_id"]
