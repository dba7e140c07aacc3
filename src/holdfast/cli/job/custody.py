"""The chain of custody of one job: who passed what to whom, what proves it, and by which rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
        why = f"lease {lease['status']}: {lease['detail'] or lease['reason']}"
        yield CustodyTransfer(lease["ended_ms"], f"provider {who} → queue", why, "RTY-001")


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
