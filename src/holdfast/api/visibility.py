"""Who sees what of a job (JOB-010, SEC-002): the one place that decides it, for every way out of the node.

`view_of` decides from a principal and a record; the functions below say what each view has of each kind of record. What
the chain makes public of a private job is its id, kind, state and heights, and of its result the leaf and its proof.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Protocol

import msgspec

from holdfast.api.node_access import READERS, Principal
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, Digest, Height, Kind, TaskId
from holdfast.core.job.model import Job, JobState
from holdfast.core.lease.model import Lease
from holdfast.core.proof.model import ProofVerdict
from holdfast.core.result.model import ResultStatus
from holdfast.engine.queries import VACUUMED
from holdfast.engine.queries.jobs import JobOwner
from holdfast.engine.result_view import ResultView


class View(StrEnum):
    """How much of a job a principal sees."""

    WHOLE = "whole"
    """Everything: for its caller's keys, for operators and auditors."""
    OPEN = "open"
    """A public job, for everybody: all but what was submitted and is not in a block, which others could copy."""
    CHAIN = "chain"
    """A private job, for everybody: what is public like the chain."""


class HasCaller(Protocol):
    """A record of a job, or of what became of it."""

    @property
    def caller(self) -> AccountId: ...
    @property
    def is_public(self) -> int: ...


class PublicJob(msgspec.Struct, frozen=True):
    """What everybody sees of a private job."""

    id: TaskId
    kind: Kind
    state: JobState
    height: Height
    expires_height: Height
    is_public: int = 0


class PublicResult(msgspec.Struct, frozen=True):
    """What everybody sees of the result of a private job: its heights, and the fields of its leaf.

    None is unknown: record and history of the result were deleted.
    """

    task_id: TaskId
    kind: str | None
    status: ResultStatus
    height_resolved: Height
    readable_from: Height
    earliest: Height | None
    expires_at: Height | None
    proof_nullifier: Digest
    result_digest: Digest
    result_size: int
    da_commitment: Digest | None
    leaf_index: int
    consumed_height: Height | None
    is_public: int = 0


def view_of(principal: Principal, record: HasCaller) -> View:
    """JOB-010: a function of who asks and of what; no other place decides it."""
    is_own = principal.account is not None and principal.account == record.caller
    if principal.role in READERS or (is_own and principal.role is not None):
        return View.WHOLE
    return View.OPEN if record.is_public else View.CHAIN


def why_not_read(principal: Principal, record: HasCaller, what: str) -> Refused | None:
    """Why this principal may not read what the chain does not make public: payload, output, shares, logs, reasons."""
    if view_of(principal, record) is not View.CHAIN:
        return None
    hint = "ask with a key of the job's caller, or as an operator or auditor"
    return Refused("JOB-010", f"{what} of a private job", hint, "Forbidden")


UNKNOWN_OWNER: Final = JobOwner(AccountId(""), is_public=False)
"""Of what is left of a job that was purged: for operators and auditors alone."""


def why_not_list_caller(principal: Principal, caller: str | None) -> Refused | None:
    """A list by caller would tell whose jobs they are, even where it showed nothing else of them."""
    if caller is None or principal.role in READERS or principal.account == caller:
        return None
    return Refused("JOB-010", "params: caller: only your own jobs", "leave it out, or name your account", "Forbidden")


def show_job(principal: Principal, job: Job) -> Job | PublicJob:
    if view_of(principal, job) is not View.CHAIN:
        return job
    return PublicJob(job.id, job.kind, job.state, job.height, job.expires_height)


def show_leases(view: View, leases: list[Lease]) -> list[Lease]:
    """OPEN: without what was submitted. A replica's provider must not copy it (LEA-009)."""
    if view is View.WHOLE:
        return leases
    return [msgspec.structs.replace(lease, **_NOT_SUBMITTED) for lease in leases] if view is View.OPEN else []


_NOT_SUBMITTED: Final = {"submitted": None, "submitted_size": 0}


def show_verdicts(principal: Principal, owner: HasCaller, verdicts: list[ProofVerdict]) -> list[ProofVerdict]:
    if view_of(principal, owner) is View.WHOLE:
        return verdicts
    return [msgspec.structs.replace(verdict, digest=Digest(b"")) for verdict in verdicts]


def show_result(principal: Principal, result: ResultView) -> ResultView | PublicResult:
    """A result that is readable is in a block, and its leaf is public; of a vacuumed one the rest may be unknown."""
    if view_of(principal, result) is not View.CHAIN and result.method != VACUUMED:
        return result
    public = PublicResult(**{name: getattr(result, name) for name in PublicResult.__struct_fields__})
    if result.method != VACUUMED:
        return public
    return msgspec.structs.replace(public, kind=None, earliest=None, expires_at=None)
