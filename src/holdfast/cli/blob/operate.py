"""`holdfast blob audit | retry | prune`: what an operator does with archived blobs."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import typer

from holdfast.cli.terminal.node_client import NodeSession, call_node, run_on_node
from holdfast.cli.terminal.options import Json, NodeAddress, on_node
from holdfast.cli.terminal.progress import ProgressLine
from holdfast.cli.terminal.tables import pluralize, print_json, print_outcome

POLL_S: Final = 0.2
HEIGHTS_A_CALL: Final = 50
"""Each height is hashed once more and synced: a call must not take longer than its answer is waited for."""


@on_node
def audit(
    address: NodeAddress,
    sample: Annotated[int, typer.Option(min=0, help="About this many blobs; 0 is all of them.")] = 0,
    as_json: Json = False,
) -> None:
    """Read archived blobs back and check them against their commitments.

    What the archive has lost or changed is archived again while this node has the bytes, packed or as outputs. Exit
    code 1: something is wrong that this node cannot repair.
    """
    report = run_on_node(address, lambda node: _audit(node, sample))
    if as_json:
        print_json(report)
    else:
        for fault in report["faults"]:
            end = "; this node has its bytes and uploads it again" if fault["is_repaired"] else ""
            print(f"block {fault['height']}, blob {fault['number']}: {fault['reason']} ({fault['locator']}){end}")
        repaired = sum(fault["is_repaired"] for fault in report["faults"])
        notes = [f"{repaired} of them repaired"] if repaired else []
        notes += [f"{pluralize(report['upgraded'], 'record')} verified now"] if report["upgraded"] else []
        print(", ".join([f"{pluralize(report['checked'], 'blob')} read back, {len(report['faults'])} bad", *notes]))
    if any(not fault["is_repaired"] for fault in report["faults"]):
        raise typer.Exit(1)


async def _audit(node: NodeSession, sample: int) -> dict[str, Any]:
    report: dict[str, Any] = await node.call("blob.audit", sample=sample)
    progress = ProgressLine("reading back")
    while not report["is_done"]:
        await asyncio.sleep(POLL_S)
        report = await node.call("blob.getAudit")
        progress.show_count(report["checked"], report["total"], "blobs")
    progress.end()
    return report


@on_node
def retry(
    address: NodeAddress,
    height: Annotated[int, typer.Argument(metavar="[HEIGHT]", min=0, help="Only this height. [default: all]")] = 0,
    as_json: Json = False,
) -> None:
    """Try uploads that failed or stalled again now."""
    result = call_node(address, "blob.retry", height=height)
    outcome = "no upload has failed" if result["is_repeat"] else "failed uploads are tried again now"
    print_outcome(result, outcome, as_json=as_json)


@on_node
def prune(
    address: NodeAddress,
    before: Annotated[int, typer.Option("--before", metavar="HEIGHT", min=0, help="Only heights below this one.")],
    as_json: Json = False,
) -> None:
    """Delete this node's bytes of heights that are archived as a whole; say why the others stay."""
    report = run_on_node(address, lambda node: _prune(node, before))
    if as_json:
        print_json(report)
        return
    print(f"{pluralize(len(report['pruned']), 'height')} pruned, {len(report['kept'])} kept")
    for height, reason in report["kept"].items():
        print(f"block {height}: {reason}")


async def _prune(node: NodeSession, before: int) -> dict[str, Any]:
    """What may go now in steps, and at the end why the rest stays."""
    heights = [height for height in await node.call("blob.listArchivable") if height < before]
    progress, pruned = ProgressLine("pruning"), set[int]()
    for start in range(HEIGHTS_A_CALL, len(heights), HEIGHTS_A_CALL):
        report: dict[str, Any] = await node.call("blob.prune", height=heights[start])
        pruned.update(report["pruned"])
        progress.show_count(len(pruned), len(heights), "heights")
    report = await node.call("blob.prune", height=before)
    progress.end()
    return {"pruned": sorted(pruned.union(report["pruned"])), "kept": report["kept"]}
