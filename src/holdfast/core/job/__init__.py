"""A job (JOB-001, JOB-003, JOB-007): its id, its payload, its transition table and its replicas (LEA-009).

Read: ids, spec, model, job_class, quorum.
"""

from holdfast.core.job.ids import TASK, TX, request_hash, task_id, tx_hash

__all__ = ["TASK", "TX", "request_hash", "task_id", "tx_hash"]
