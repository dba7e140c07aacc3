"""The act of the archive: it refuses or lies, and nothing goes; it heals, and the node deletes its own copies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from holdfast.client.node_socket import NodeSocket
from holdfast.demo.event_history import BlobTrace
from holdfast.demo.faults import ArchiveBroken, FaultKind
from holdfast.demo.final_checks import all_jobs_ended, fetch_outputs
from holdfast.demo.jobs import LARGE
from holdfast.demo.pace import UPLOADS_TRIED
from holdfast.demo.processes import DemoFailed
from holdfast.demo.run import DemoRun
from holdfast.demo.screen.board import Check, StateGlyph

SENTENCE: Final = "Bytes are let go only after the archive's receipt."
ROOM_BYTES: Final = 1_024
"""What the archive accepts of the node while it refuses: less than a blob."""
REASON_MAX: Final = 90


async def archive_outputs(demo: DemoRun) -> None:
    """Everything that is said here is read from the node's events, its measured tiers, or a file that was fetched."""
    await all_jobs_ended(demo)
    demo.outputs = await demo.complete_within(fetch_outputs(demo.data, demo.board), "the node returns the results")
    blob = await demo.wait_for(lambda: _failing(demo), "the archive's fault is noticed")
    hot, warm = await measure_tiers(demo)
    height, reason = blob.height, blob.failures[-1][1]
    demo.report(StateGlyph.STUCK, f"block {height}, tried {len(blob.failures)} times: {reason[:REASON_MAX]}")
    stalled = (await demo.call("archive.getStatus"))["stalled"]
    demo.report(StateGlyph.STUCK, f"holdfast archive status: {stalled} stalled, an operator is needed")
    demo.set_sentence(SENTENCE)
    demo.report(StateGlyph.HELD, f"the node keeps everything: {hot:,} bytes in its store, {warm:,} on its disk")
    await demo.pause(0.05)
    await _heal(demo)
    blobs = await demo.wait_for(lambda: _all_archived(demo), "every blob is archived and read back")
    demo.report(StateGlyph.CONFIRMED, f"{len(blobs)} blobs archived, each read back and compared")
    await _delete_here(demo)
    await _fetch_back(demo)
    await demo.pause(0.04)


def _failing(demo: DemoRun) -> BlobTrace | None:
    """A blob whose upload has failed until the node gave up and asks for an operator."""
    blobs = demo.board.history.blobs.values()
    return next((blob for blob in blobs if len(blob.failures) >= UPLOADS_TRIED), None)


def _all_archived(demo: DemoRun) -> list[BlobTrace] | None:
    """Of every result that is in the chain: the last blob waits a little for more of them."""
    blobs = list(demo.board.history.blobs.values())
    packed = demo.board.history.packed
    is_all = all(task_id in packed for task_id in demo.board.history.jobs)
    return blobs if blobs and is_all and all(blob.is_verified for blob in blobs) else None


async def measure_tiers(demo: DemoRun) -> tuple[int, int]:
    """The bytes of outputs in the node's store and on its disk, as the node counts them now."""
    tiers = await demo.call("gc.getStatus")
    demo.board.bytes_here = (tiers["bytes_hot"], tiers["bytes_warm"])
    return demo.board.bytes_here


async def _heal(demo: DemoRun) -> None:
    """What an operator does: make room, or replace the archive that lies; then try again at once."""
    if demo.proxy is not None:
        demo.proxy.is_lying = False
        demo.report(StateGlyph.CONFIRMED, "the archive tells the truth from now on")
    else:
        await asyncio.to_thread(demo.processes.stop, "gateway")
        pid = await demo.start_gateway()
        demo.report(StateGlyph.CONFIRMED, f"the gateway is started again with room, pid {pid}")
    await demo.call("blob.retry")


async def _delete_here(demo: DemoRun) -> None:
    """BLB-003: private outputs are encrypted, and nothing goes while this machine alone has the key."""
    copied = await asyncio.to_thread(
        demo.processes.run, "archive", "key", "export", str(demo.folder / "archive.key"), "--data", str(demo.data)
    )
    if copied.returncode:
        raise DemoFailed(copied.stderr.decode("utf-8", "replace"))
    demo.report(StateGlyph.CONFIRMED, "the key of encrypted outputs is copied: now they may be deleted here")
    await demo.complete_within(_all_gone(demo), "the node deletes its own copies")
    demo.report(StateGlyph.RELEASED, "hot bytes 0, warm bytes 0, no blob on this node")


async def _all_gone(demo: DemoRun) -> None:
    while any(await measure_tiers(demo)) or not all(blob.pruned for blob in demo.board.history.blobs.values()):
        await demo.wait_ticks()


async def _fetch_back(demo: DemoRun) -> None:
    """By the locators that the chain's records name, with the product's own command."""
    task_id = next(record.task_id for record in demo.board.records if record.number == LARGE and record.task_id)
    async with NodeSocket(demo.data) as node:
        where = await node.call("blob.getParts", task_id=task_id)
    fetched, settings = demo.folder / "fetched", demo.archive_settings()
    words = ("blob", "fetch", task_id, "--output", str(fetched), "--data", str(demo.data))
    ended = await demo.complete_within(
        asyncio.to_thread(demo.processes.run, *words, settings=settings), "holdfast blob fetch ends"
    )
    if ended.returncode:
        raise DemoFailed(ended.stderr.decode("utf-8", "replace"))
    locators = [part["blob"]["locator"] for part in where["parts"]]
    demo.fetch_check = check_fetched(fetched, demo.board.jobs[LARGE - 1].output, locators)
    state = StateGlyph.CONFIRMED if demo.fetch_check.is_good else StateGlyph.STUCK
    demo.report(state, f"job {LARGE} fetched back from {locators[0]} and {len(locators) - 1} more")


def check_fetched(file: Path, expected: bytes, locators: list[str]) -> Check:
    """The bytes that came from the archive are those that an honest provider returns."""
    raw = file.read_bytes()
    detail = f"{len(raw):,} bytes from {len(locators)} blobs"
    return Check(f"job {LARGE} fetched from the archive", detail, raw == expected and len(locators) > 1)


async def start_archive(demo: DemoRun, fault: FaultKind) -> None:
    """The gateway in its broken form: without room for a blob, or behind a proxy that lies."""
    await asyncio.to_thread(demo.new_archive_key)
    room = {"gateway.quota_bytes": ROOM_BYTES} if fault is FaultKind.ARCHIVE_REFUSES else {}
    pid = await demo.start_gateway(room)
    if fault is FaultKind.ARCHIVE_LIES:
        await demo.open_proxy()
    demo.board.faults_injected.append(ArchiveBroken(demo.board.history.last))
    demo.report(StateGlyph.CONFIRMED, f"the gateway is up, pid {pid}: an archive of its own, on this machine")
