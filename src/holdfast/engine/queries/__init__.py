"""What a node can be asked.

`table` has the named queries over memory: a struct that says what is asked, answered by one handler. `records` has the
reads that also look into the tables and the journal. `source` says who answers: the owner or a follower.
"""

from holdfast.engine.queries.query import Query
from holdfast.engine.queries.records import (
    PAGE_MAX,
    VACUUMED,
    admission,
    adoptions,
    attempts,
    block,
    block_by_hash,
    consumption,
    hot_output,
    job,
    job_by_event,
    leaves,
    memo,
    merge_pages,
    page,
    replicas,
    reservation,
    result,
    spec,
    specs,
    stored_result,
    transfer,
)
from holdfast.engine.queries.source import Page, ReadSource, ReplicationStatus

__all__ = [
    "PAGE_MAX",
    "VACUUMED",
    "Page",
    "Query",
    "ReadSource",
    "ReplicationStatus",
    "admission",
    "adoptions",
    "attempts",
    "block",
    "block_by_hash",
    "consumption",
    "hot_output",
    "job",
    "job_by_event",
    "leaves",
    "memo",
    "merge_pages",
    "page",
    "replicas",
    "reservation",
    "result",
    "spec",
    "specs",
    "stored_result",
    "transfer",
]
