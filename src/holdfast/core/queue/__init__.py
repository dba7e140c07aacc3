"""The queue (JOB-001 … JOB-008, PRI-001 … PRI-003, RTY-001, TTL-002, QUO-001): which jobs are admitted, in which order
they wait, when they are retried, requeued, paused and purged.

Read: model, messages, priority, ready_queue, retry, quota, decide, replicas, apply, requeue, pauses, purge, invariants.
"""
