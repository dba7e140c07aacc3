"""Holdfast as a contestant: the engine under callers, chunks and bulks on either store."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence

from bench.engine.opened import open_engine, until_in_tables
from bench.stores import StorePlace
from holdfast.core.base.event import Command
from holdfast.core.base.values import AccountId, Amount, Height, ReservationId
from holdfast.core.escrow.messages import Charge, Finalize, Mint, Reserve
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted, Outcome

ALICE, BOB = AccountId("alice"), AccountId("bob")


def ids(count: int) -> list[ReservationId]:
    return [ReservationId(os.urandom(32)) for _ in range(count)]


def reserves(of: Sequence[ReservationId]) -> list[Command]:
    return [Reserve(id_, ALICE, Amount(5)) for id_ in of]


def charges(of: Sequence[ReservationId], height: int) -> list[Command]:
    return [Charge(id_, Height(height), BOB, Amount(3)) for id_ in of]


async def new_engine(spot: StorePlace) -> Engine:
    """A running engine in which alice has money."""
    engine = await open_engine(spot)
    await engine.submit(Mint(os.urandom(32), ALICE, Amount(10**12)))
    await until_in_tables(engine)  # its projector runs
    return engine


async def settle(engine: Engine, height: int) -> None:
    """Between turns: the block becomes final and the tables catch up, so that no contestant pays for another's turn."""
    check([await engine.submit(Finalize(Height(height)))])
    await until_in_tables(engine)


def check(outcomes: Sequence[Outcome]) -> None:
    """A figure counts only where all was done."""
    bad = [each for each in outcomes if not isinstance(each, Accepted)]
    assert not bad, bad[:1]


async def call(engine: Engine, callers: int, pairs: int, height: int) -> tuple[float, list[float]]:
    """A closed loop of callers who reserve, then charge; commands per second, and how long each answer took."""
    waits: list[float] = []
    outcomes: list[Outcome] = []

    async def caller(mine: Sequence[Command]) -> None:
        for command in mine:
            asked = time.perf_counter()
            outcomes.append(await engine.submit(command))
            waits.append(time.perf_counter() - asked)

    theirs = [ids(pairs) for _ in range(callers)]
    alternating = [
        [each for pair in zip(reserves(of), charges(of, height), strict=True) for each in pair] for of in theirs
    ]
    began = time.perf_counter()
    await asyncio.gather(*map(caller, alternating))
    took = time.perf_counter() - began
    check(outcomes)
    return 2 * callers * pairs / took, waits


async def bulk(engine: Engine, count: int, size: int, height: int) -> tuple[float, float]:
    """Reserve and charge by `submit_many`; commands per second until all are answered, and until all are in tables."""
    of = ids(count)
    chunks = [
        chunk
        for at in range(0, count, size)
        for chunk in (reserves(of[at : at + size]), charges(of[at : at + size], height))
    ]
    began = time.perf_counter()
    for chunk in chunks:
        check(await engine.submit_many(chunk))
    answered = time.perf_counter() - began
    await until_in_tables(engine)
    return 2 * count / answered, 2 * count / (time.perf_counter() - began)


async def chunks(engine: Engine, count: int, size: int, height: int) -> float:
    """Reserve and charge by `submit_many` of as many commands as there would be callers; commands per second."""
    of = ids(count)
    began = time.perf_counter()
    for at in range(0, count, size):
        check(await engine.submit_many(reserves(of[at : at + size])))
        check(await engine.submit_many(charges(of[at : at + size], height)))
    return 2 * count / (time.perf_counter() - began)
