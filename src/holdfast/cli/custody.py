"""The chain of custody of one job: who gave what to whom, what proves it, and by which rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec


class HandOff(msgspec.Struct, frozen=True):
    """One change of hands."""

    at_ms: int | None
    what: str
    proof: str
    rule: str


def custody(found: dict[str, Any]) -> list[HandOff]:
    """Every hand-off of a job as `cap.getJob` shows it, in order."""
    job, result = found["job"], found["result"]
    receipt = f"admitted in block {job['height']}, event {job['event']}"
    hands = [HandOff(job["enqueue_ms"], f"{job['caller']} → queue", receipt, "JOB-006")]
    for lease in found["attempts"]:
        hands += _attempt(lease)
    for replica in found.get("replicas", ()):
        hands += _replica(replica)
    hands += _end(job, result)
    return hands


def _attempt(lease: dict[str, Any]) -> Iterator[HandOff]:
    who, name = f"{lease['provider_id'][:12]}…", f"lease {lease['id'][:16]}…"
    yield HandOff(lease["t_start_ms"], f"queue → provider {who}", f"{name}, attempt {lease['attempt']}", "LEA-001")
    if lease["acked_ms"] is not None and lease["acked_ms"] != lease["submitted_ms"]:
        yield HandOff(lease["acked_ms"], f"provider {who} holds it", "its ACK", "LEA-003")
    if lease["submitted"] is not None:
        output = f"digest {lease['submitted'][:16]}…, {lease['submitted_size']} bytes durable"
        yield HandOff(lease["submitted_ms"], f"provider {who} → node", output, "RCV-001")
    if lease["status"] in ("CANCELLED", "EXPIRED"):
        yield HandOff(
            lease["ended_ms"], f"provider {who} → queue", f"lease {lease['status']}: {lease['reason']}", "RTY-001"
        )


def _replica(replica: dict[str, Any]) -> Iterator[HandOff]:
    """LEA-009: the last hand each of them was in; `job show` of a replica tells all."""
    if replica["provider_id"] is None:
        return
    who, at = f"provider {replica['provider_id'][:12]}…", f"replica {replica['index']}"
    if replica["digest"] is None:
        yield HandOff(None, f"queue → {who}", f"{at}, {replica['state']} {replica['reason']}".rstrip(), "LEA-009")
        return
    paid = f", {replica['charged']} paid" if replica["charged"] is not None else ""
    yield HandOff(None, f"{who} → node", f"{at}: digest {replica['digest'][:16]}…{paid}", "LEA-009")


def _end(job: dict[str, Any], result: dict[str, Any] | None) -> Iterator[HandOff]:
    height = job["settled_height"]
    if result is not None and result["status"] == "UNLINKED":
        yield HandOff(
            job["ended_ms"], "the proof waits for a block", f"nullifier {result['proof_nullifier'][:16]}…", "RES-006"
        )
    elif result is not None:
        proof = f"nullifier {result['proof_nullifier'][:16]}…, leaf {result['leaf_index']} of the log"
        at = result["height_resolved"]
        yield HandOff(job["ended_ms"], f"node → ledger, block {at}, readable from {at + 1}", proof, "PRF-003")
    elif job["ended_ms"] is not None:
        yield HandOff(job["ended_ms"], f"the job is {job['state']}", job["reason"], "JOB-007")
    if job["charged"] is not None:
        paid = f"{job['charged']} paid, {job['max_fee'] - job['charged']} back" if job["payee"] else "all given back"
        taker = job["payee"] or job["caller"]
        yield HandOff(None, f"escrow → {taker}", f"money settled in block {height}: {paid}", "ESC-001")
