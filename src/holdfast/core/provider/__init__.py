"""Providers (PRV-001 … PRV-004): who may take work, what they put at stake, how they are, what offences cost.

Read: record, ward, acts, steps, health, decide, moves, sla, apply.
"""

from holdfast.core.provider.record import provider_id

__all__ = ["provider_id"]
