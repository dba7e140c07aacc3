"""Leases (LEA-001 … LEA-008): one job in the hands of one provider. Read: ids, record, acts, decide, apply."""

from holdfast.core.lease.ids import lease_id

__all__ = ["lease_id"]
