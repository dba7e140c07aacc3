"""The chain of custody of one job: who passed what to whom, what proves it, and by which rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec


class CustodyTransfer(msgspec.Struct, frozen=True):
    """One change of custodian."""

    at_ms: int | None
    what: str
    proof: str
    rule: str


def chain_of_custody(job_view: dict[str, Any]) -> list[CustodyTransfer]:
    """Every transfer of a job, in order, from the answer of `cap.getJob`."""
    job, result = job_view["job"], job_view["result"]
    receipt = f"admitted in block {job['height']}, event {job['event']}"
    transfers = [CustodyTransfer(job["enqueue_ms"], f"{job['caller']} → queue", receipt, "JOB-006")]
    for lease in job_view["attempts"]:
        transfers += _attempt_transfers(lease)
    for replica in job_view.get("replicas", ()):
        transfers += _replica_transfers(replica)
    transfers += _final_transfers(job, result)
    return transfers


def _attempt_transfers(lease: dict[str, Any]) -> Iterator[CustodyTransfer]:
    who, name = f"{lease['provider_id'][:12]}…", f"lease {lease['id'][:16]}…"
    yield CustodyTransfer(
        lease["t_start_ms"], f"queue → provider {who}", f"{name}, attempt {lease['attempt']}", "LEA-001"
    )
    if lease["acked_ms"] is not None and lease["acked_ms"] != lease["submitted_ms"]:
        yield CustodyTransfer(lease["acked_ms"], f"provider {who} has it", "its ACK", "LEA-003")
    if lease["submitted"] is not None:
        output = f"digest {lease['submitted'][:16]}…, {lease['submitted_size']} bytes durable"
        yield CustodyTransfer(lease["submitted_ms"], f"provider {who} → node", output, "RCV-001")
    if lease["status"] in ("CANCELLED", "EXPIRED"):
        why = f"lease {lease['status']}: {describe_end(lease['reason'], lease['detail'])}"
        yield CustodyTransfer(lease["ended_ms"], f"provider {who} → queue", why, "RTY-001")


LEASE_ENDS: Final = {
    "ACK_TIMEOUT": "the provider did not take it in time: is its agent connected?",
    "LEASE_EXPIRED": "the provider did not finish in time: give the job a longer --ttl, or look at its agent's log",
    "PROOF_INVALID": "its result was refused: `holdfast result verdicts` says why",
    "PROVIDER_FAIL": "the provider could not run it: `holdfast job logs` and its agent's log say more",
    "PROVIDER_JAILED": "an operator jailed the provider",
    "PROVIDER_SUSPENDED": "an operator suspended the provider",
    "PROVIDER_RETIRED": "the provider was retired",
    "JOB_CANCELLED": "the job was cancelled",
    "JOB_EXPIRED": "the job's time was over",
    "QUORUM_REACHED": "enough other providers agreed",
    "QUORUM_LOST": "the other providers cannot agree any more",
    "QUOTA_LOWERED": "the policy allows the provider fewer leases now",
    "VERIFIER_FAILED": "the node could not check its result: the node's log says why",
    "NO_VERIFIER": "the node has no verifier for this kind of job",
}
"""Why a lease ended without a result, in words."""


def describe_end(reason: str, detail: str) -> str:
    """What the provider said, else what the code means; a provider's own reason is shown as it is."""
    code, said = (reason, detail) if detail != reason else (reason, "")
    said = said.removeprefix(f"{code}: ")
    meaning = said or LEASE_ENDS.get(code, "")
    return f"{code}: {meaning}" if meaning and meaning != code else code or meaning


def _replica_transfers(replica: dict[str, Any]) -> Iterator[CustodyTransfer]:
    """LEA-009: the last custodian of each replica; `job show` of the replica has all of them."""
    if replica["provider_id"] is None:
        return
    who, at = f"provider {replica['provider_id'][:12]}…", f"replica {replica['index']}"
    if replica["digest"] is None:
        yield CustodyTransfer(
            None, f"queue → {who}", f"{at}, {replica['state']} {replica['reason']}".rstrip(), "LEA-009"
        )
        return
    paid = f", {replica['charged']} paid" if replica["charged"] is not None else ""
    yield CustodyTransfer(None, f"{who} → node", f"{at}: digest {replica['digest'][:16]}…{paid}", "LEA-009")


def _final_transfers(job: dict[str, Any], result: dict[str, Any] | None) -> Iterator[CustodyTransfer]:
    height = job["settled_height"]
    if result is not None and result["status"] == "UNLINKED":
        yield CustodyTransfer(
            job["ended_ms"], "the proof waits for a block", f"nullifier {result['proof_nullifier'][:16]}…", "RES-006"
        )
    elif result is not None:
        proof = f"nullifier {result['proof_nullifier'][:16]}…, leaf {result['leaf_index']} of the log"
        at = result["height_resolved"]
        yield CustodyTransfer(job["ended_ms"], f"node → ledger, block {at}, readable from {at + 1}", proof, "PRF-003")
    elif job["ended_ms"] is not None:
        yield CustodyTransfer(job["ended_ms"], f"the job is {job['state']}", job["reason"], "JOB-007")
    if job["charged"] is not None:
        paid = f"{job['charged']} paid, {job['max_fee'] - job['charged']} refunded" if job["payee"] else "all refunded"
        taker = job["payee"] or job["caller"]
        yield CustodyTransfer(None, f"escrow → {taker}", f"money settled in block {height}: {paid}", "ESC-001")
