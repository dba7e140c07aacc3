"""What is true: pure, synchronous, deterministic; no clock, no chance, no IO.

A domain decides (state, command, now_ms → events or Refused) and applies (state, event → state changed in place); it
publishes both as tables in its `handlers`. `state_machine` merges the tables. Workflows span domains.
Read: base, policy, index, then the domains in the order key, escrow, provider, job, queue, lease, match, evidence,
proof, chain, result, policy_change, retention, blob, archive, then state, invariants, workflows, state_machine,
journal_codec.
"""
