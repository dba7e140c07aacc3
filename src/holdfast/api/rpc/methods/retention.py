"""Methods about retention (RET-003): run a pass, or see what it would delete; and how far all passes have come."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.api.node_access import OPERATORS, READERS, NodeAccess, RpcCall, RpcMethod
from holdfast.api.rpc.params import NoParams
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import EventNo, Height
from holdfast.core.retention.model import Pass
from holdfast.engine.queries.retention import GetRetentionProgress, RetentionProgress
from holdfast.engine.retention_report import RetentionReport

PASSES: Final = (Pass.HOT, Pass.WARM, Pass.RECORDS, Pass.ORPHANS)


class RunPassParams(msgspec.Struct, frozen=True):
    """Which pass to run. A dry run, and every run of the pass for orphans, continues after `after`: the position that
    the last report gives."""

    tier: str
    dry_run: bool = False
    after: int = 0


class PassStatus(msgspec.Struct, frozen=True):
    """How far a pass has come."""

    tier: str
    until: EventNo
    results: int
    bytes: int
    lost: int
    skipped: int
    """Results that it has skipped and tries again."""


class RetentionStatus(msgspec.Struct, frozen=True):
    """How far retention has come."""

    watermark: Height
    """Results up to this height are candidates."""
    passes: list[PassStatus]
    bytes_hot: int
    bytes_warm: int


async def _run(access: NodeAccess, _: RpcCall, params: RunPassParams) -> RetentionReport | Refused:
    names = [each.value for each in PASSES]
    if params.tier not in names:
        return Refused("RET-003", f"params: tier: one of {', '.join(names)}", name="InvalidParams")
    if access.collector is None:
        return Refused("RET-003", "this node runs no retention passes", "ask the owner", "Unavailable")
    return await access.collector.run_pass(Pass(params.tier), is_dry=params.dry_run, after=params.after)


async def _get_status(access: NodeAccess, _: RpcCall, __: NoParams) -> RetentionStatus:
    progress = await access.source.query_durable(GetRetentionProgress())
    collector = access.collector
    if collector is not None:
        await collector.measure()
    return RetentionStatus(
        progress.watermark,
        _pass_status(progress),
        bytes_hot=collector.bytes_hot if collector is not None else 0,
        bytes_warm=collector.bytes_warm if collector is not None else 0,
    )


def _pass_status(progress: RetentionProgress) -> list[PassStatus]:
    return [
        PassStatus(
            tier=pass_.value,
            until=done.until,
            results=done.results,
            bytes=done.bytes,
            lost=done.lost,
            skipped=progress.skipped.get(pass_, 0),
        )
        for pass_, done in progress.passes.items()
    ]


METHODS: Final[dict[str, RpcMethod]] = {
    "gc.run": RpcMethod(
        "One bounded run of a retention pass.", RunPassParams, RetentionReport, _run, OPERATORS, is_write=True
    ),
    "gc.getStatus": RpcMethod("How far retention has come.", NoParams, RetentionStatus, _get_status, READERS),
}
