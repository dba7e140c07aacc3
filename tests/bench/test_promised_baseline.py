"""The baseline that makes the same promises does make them: a comparison with less would prove nothing."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine
from hashlib import sha3_256
from typing import Any

import msgspec
import pytest
from bench.queue.baselines import promises
from bench.queue.baselines.contract import FEE, SPEC
from bench.queue.baselines.promised_postgres import PromisedPostgresQueue
from bench.queue.baselines.promised_sqlite import PromisedSqliteQueue
from tests.storage.stores import Place

from holdfast.core.base import merkle

Queue = PromisedSqliteQueue | PromisedPostgresQueue
Open = Callable[..., Coroutine[Any, Any, Queue]]


@pytest.fixture(params=["sqlite", "postgres"])
async def open_queue(request: pytest.FixtureRequest, place: Place) -> AsyncIterator[Open]:
    """Opens the same stored queue again, as another process would."""
    opened: list[Queue] = []

    async def open_(funds: int = promises.FUNDS) -> Queue:
        if request.param == "sqlite":
            opened.append(PromisedSqliteQueue(place.folder, funds))
        else:
            opened.append(await PromisedPostgresQueue.open(place.address, funds))
        return opened[-1]

    yield open_
    for each in opened:
        await each.close()


def txs(count: int) -> list[bytes]:
    return [os.urandom(32) for _ in range(count)]


async def events(queue: Queue, cursor: int = 0) -> list[promises.EventRow]:
    found = queue.events_after(cursor)
    return list(found if isinstance(queue, PromisedSqliteQueue) else await found)  # type: ignore[misc, arg-type]


async def rows(queue: Queue, statement: str) -> list[tuple[Any, ...]]:
    if isinstance(queue, PromisedSqliteQueue):
        return [tuple(row) for row in queue.db.execute(statement)]
    return [tuple(row) for row in await queue.db.fetch(statement)]


async def test_a_repeated_request_refuses_only_itself(open_queue: Open) -> None:
    queue, asked = await open_queue(), txs(3)
    assert await queue.enqueue([asked[0], asked[1], asked[0]]) == [promises.Refusal(2, "the id was used before")]
    assert await queue.enqueue([asked[1], asked[2]]) == [promises.Refusal(0, "the id was used before")]
    assert await queue.drain(10) == 3


async def test_a_request_without_money_refuses_only_itself_and_does_not_use_up_its_id(open_queue: Open) -> None:
    queue, asked = await open_queue(funds=2 * FEE), txs(4)
    refused = await queue.enqueue([asked[0], asked[1], asked[2]])
    assert refused == [promises.Refusal(2, "not enough money")]
    assert await rows(queue, "SELECT available, held FROM account WHERE owner = 'alice'") == [(0, 2 * FEE)]
    assert await queue.enqueue([asked[2]]) == [promises.Refusal(0, "not enough money")]


async def test_events_have_numbers_without_gaps_and_can_be_resumed_at_any_of_them(open_queue: Open) -> None:
    queue, asked = await open_queue(), txs(5)
    await queue.enqueue([*asked, asked[0]])
    await queue.drain(3)
    await queue.drain(10)
    found = await events(queue)
    assert [each[0] for each in found] == list(range(1, 21))
    for cursor in range(21):
        assert await events(queue, cursor) == found[cursor:]


async def test_a_block_has_the_rfc_6962_roots_of_its_transactions_and_results(open_queue: Open) -> None:
    queue = await open_queue()
    await queue.enqueue(txs(7))
    await queue.drain(10)
    request = sha3_256(b"request.v1" + SPEC).digest()
    leaves, results = [], []
    for number, _, kind, job, body in await events(queue):
        at = number.to_bytes(8, "big")
        if kind == promises.ADMITTED:
            leaves.append(b"a" + at + job + request)
        elif kind == promises.COMPLETED:
            _, digest, used, _ = msgspec.msgpack.decode(body)
            leaves.append(b"p" + at + job + used + digest)
            results.append(b"r" + (1).to_bytes(8, "big") + job + digest)
    found = await rows(queue, "SELECT tx_count, tx_root, result_root FROM block")
    assert found == [(14, merkle.root(leaves), merkle.root(results))]


async def test_a_nullifier_is_used_once_for_ever(open_queue: Open) -> None:
    queue = await open_queue()
    await queue.enqueue(txs(2))
    await queue.drain(10)
    claims = {bytes(row[0]) for row in await rows(queue, "SELECT key FROM claim")}
    used = {msgspec.msgpack.decode(each[4])[2][:16] for each in await events(queue) if each[2] == promises.COMPLETED}
    assert used < claims
    assert len(claims) == 4


async def test_after_a_restart_numbers_blocks_and_money_go_on_where_they_were(open_queue: Open) -> None:
    queue, asked = await open_queue(), txs(4)
    await queue.enqueue(asked[:2])
    await queue.drain(10)
    await queue.enqueue(asked[2:3])
    again = await open_queue()
    await again.enqueue(asked[3:])
    await again.drain(10)
    blocks = await rows(again, "SELECT height, parent, hash, first_event, tx_count FROM block ORDER BY height")
    assert [block[0] for block in blocks] == [1, 2]
    assert blocks[1][1] == blocks[0][2]
    assert [block[3:] for block in blocks] == [(1, 4), (9, 4)]
    assert [each[0] for each in await events(again)] == list(range(1, 17))


async def test_a_chunk_that_fails_leaves_nothing_behind(open_queue: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, asked = await open_queue(), txs(3)
    await queue.enqueue(asked[:1])
    with monkeypatch.context() as broken:
        broken.setattr(type(queue), "_insert_events", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            await queue.enqueue(asked[1:])
    assert await queue.enqueue(asked[1:]) == []
    assert [each[0] for each in await events(queue)] == [1, 2, 3]
    assert await queue.drain(10) == 3


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 7, 8, 9, 1_000])
def test_a_root_is_that_of_rfc_6962(count: int) -> None:
    leaves = [number.to_bytes(4, "big") for number in range(count)]
    assert promises.root([merkle.leaf_hash(leaf) for leaf in leaves]) == merkle.root(leaves)
