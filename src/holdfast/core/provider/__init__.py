"""Providers (PRV-001 … PRV-004): who may hold leases, their stake, their health, and what offences cost.

Read: model, provider_timers, messages, transitions, health, decide, operator_actions, sla, apply,
invariants. Status changes and upkeep, which also end leases, are in the workflow `revoke`.
"""

from holdfast.core.provider.model import provider_id

__all__ = ["provider_id"]
