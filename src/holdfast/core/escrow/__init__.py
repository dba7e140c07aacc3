"""Money (ESC-001, ESC-002): double-entry accounts in integers, reservations, settlements that wait for finality.

Every account has three buckets: `available` can be reserved, `held` belongs to reservations, `pending` was charged
or refunded by a block that a reorg could still roll back. Read: model, messages, decide, apply, invariants.
"""
