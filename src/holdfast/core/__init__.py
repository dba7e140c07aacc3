"""What is true: pure, synchronous, deterministic; no clock, no chance, no IO.

Read the stations in this order: values, policy, machine, refusal, canon, merkle, da, touch, tally, agenda, ranks,
event, act, claim, key, escrow, provider, job, priority, retry, queue, lease, match, evidence, proof, chain, result,
retention, state, counting, law.
A station decides (state, command, now: events or Refused) and
applies (state, event: in place); `law` is the one table from command to station.
"""
