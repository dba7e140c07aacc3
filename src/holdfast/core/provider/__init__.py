"""Providers (PRV-001 … PRV-004): who may hold leases, their stake, their health, and what offences cost.

Read: model, provider_timers, messages, health, decide, invitations, operator_actions, sla, apply, invariants. Status
changes and upkeep, which also end leases, are in the workflow `revoke`.
"""
