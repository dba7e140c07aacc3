"""A job: what is asked for, and the id it keeps for ever. Read: ids, spec, record."""

from holdfast.core.job.ids import TASK, TX, request_hash, task_id, tx_hash

__all__ = ["TASK", "TX", "request_hash", "task_id", "tx_hash"]
