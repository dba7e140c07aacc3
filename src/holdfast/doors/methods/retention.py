"""Retention at the doors (RET-003): run a pass, or only see what it would do; and how far all of them have come."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.refusal import Refused
from holdfast.core.retention import Pass
from holdfast.core.retention.books import Progress
from holdfast.core.retention.decide import watermark
from holdfast.core.state import State
from holdfast.core.values import EventNo, Height
from holdfast.doors.desk import OPERATORS, READERS, Desk, Method, Visitor
from holdfast.doors.methods.node import Nothing
from holdfast.engine.collected import Report

PASSES: Final = (Pass.HOT, Pass.WARM, Pass.INDEX, Pass.STRAY)


class RunPass(msgspec.Struct, frozen=True):
    """Which pass; a dry run, and any for strays, goes on where the last one says that it ended."""

    tier: str
    dry_run: bool = False
    after: int = 0


class Standing(msgspec.Struct, frozen=True):
    """How far a pass has come."""

    tier: str
    until: EventNo
    results: int
    bytes: int
    lost: int
    left_behind: int


class Retention(msgspec.Struct, frozen=True):
    """How far retention has come."""

    watermark: Height
    """Results up to this height are candidates."""
    passes: list[Standing]
    bytes_hot: int
    bytes_warm: int


async def _run(desk: Desk, _: Visitor, asked: RunPass) -> Report | Refused:
    if asked.tier not in {each.value for each in PASSES}:
        return Refused("RET-003", "params: tier: one of hot, warm, index, stray", name="InvalidParams")
    if desk.collector is None:
        return Refused("RET-003", "nobody collects here", "ask the owner", "Unavailable")
    return await desk.collector.run_pass(Pass(asked.tier), is_dry=asked.dry_run, after=asked.after)


async def _status(desk: Desk, _: Visitor, __: Nothing) -> Retention:
    highest, passes = await desk.source.ask(_standing)
    collector = desk.collector
    held = (collector.bytes_hot, collector.bytes_warm) if collector is not None else (0, 0)
    return Retention(highest, passes, *held)


def _standing(state: State) -> tuple[Height, list[Standing]]:
    left = {Pass.HOT: len(state.kept_hot), Pass.WARM: len(state.kept_warm)}
    found = [(each, state.passes.get(each) or Progress()) for each in Pass]
    return watermark(state), [
        Standing(each.value, mark.until, mark.results, mark.bytes, mark.lost, left.get(each, 0)) for each, mark in found
    ]


METHODS: Final[dict[str, Method]] = {
    "gc.run": Method("One bounded run of a pass of retention.", RunPass, Report, _run, OPERATORS, is_write=True),
    "gc.status": Method("How far retention has come.", Nothing, Retention, _status, READERS),
}
