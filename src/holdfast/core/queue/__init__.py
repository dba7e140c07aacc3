"""The queue's front: admission with its guards, receipts, cancelling, raising a fee (JOB-001 … JOB-008).

Read: books, acts, decide, apply.
"""
