"""`holdfast audit match`: every assignment of a node decided once more, and the first that differs shown (MAT-006)."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Final

import msgspec
import typer

from holdfast.cli.asking import Json
from holdfast.cli.chain.look import counted
from holdfast.cli.columns import print_json, when
from holdfast.cli.db.opened import Data, File, Progress, opened
from holdfast.cli.speak import configured, given, told
from holdfast.core.event import Event
from holdfast.core.refusal import Refused
from holdfast.engine.audit import Audited, Difference, audit

DIFFERENT: Final = 1


def match(
    since: Annotated[int, typer.Option("--from", min=1, help="Only from this event on.")] = 1,
    until: Annotated[int | None, typer.Option("--to", min=1, help="Only up to this event. [default: the last]")] = None,
    data: Data = None,
    config: File = None,
    as_json: Json = False,
) -> None:
    """Decide every assignment again, from the journal alone, and compare.

    What was given to whom follows from the queue, the providers, the policy and the head's beacon at that moment, all
    of which the journal holds. It reads beside a running node or without one, from either store and from the archive.

    Exit code 0: all are what the rules give. 1: one is not; both sides of the first one are shown. 2: bad input.
    """
    settings = configured(config, {"data": data}, with_stores=True)
    progress, began = Progress("auditing"), time.monotonic()

    async def work() -> Audited | Refused:
        async with opened(settings) as db:
            return await audit(db.journal, db.snapshots, db.policy, since, until, progress)

    with told():
        try:
            done = given(asyncio.run(work()))
        finally:
            progress.end()
        print_json(_values(done)) if as_json else _print(done, time.monotonic() - began)
        if done.difference is not None:
            raise typer.Exit(DIFFERENT)


def _print(done: Audited, took_s: float) -> None:
    where = f"events {done.first} to {done.last}, {took_s:.1f} s"
    if done.older:
        print(f"not judged: {counted(done.older, 'assignment')} from before version 0.3")
    if done.difference is None:
        ticks = counted(done.ticks, "tick")
        print(f"as the rules give it: {counted(done.assignments, 'assignment')} in {ticks} decided again ({where})")
        return
    other = done.difference
    print(f"different: event {other.event}, in batch {other.batch} of {when(other.time_ms)}")
    print(f"  the journal has  {_shown(other.found)}")
    print(f"  the rules give   {_shown(other.expected)}")
    print(f"before it {counted(done.assignments, 'assignment')} were as the rules give them ({where})")


def _shown(event: Event | None) -> str:
    if event is None:
        return "nothing more"
    return f"{type(event).__name__}  " + "  ".join(f"{name}={value}" for name, value in _fields(event).items())


def _fields(event: Event) -> dict[str, Any]:
    values = msgspec.structs.asdict(event)
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in values.items()}


def _values(done: Audited) -> dict[str, Any]:
    values = msgspec.structs.asdict(done)
    return values | {"difference": None if done.difference is None else _both(done.difference)}


def _both(other: Difference) -> dict[str, Any]:
    sides = {"found": other.found, "expected": other.expected}
    return msgspec.structs.asdict(other) | {
        name: None if event is None else {"type": type(event).__name__, **_fields(event)}
        for name, event in sides.items()
    }
