"""Events on the node's own socket say what happened, without result bytes and without secrets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.result_node import SERVING, result_node
from tests.core.blocks import SEAL, final_after

from holdfast.api.rpc import unix_socket
from holdfast.api.rpc.unix_socket import UnixSocketServer
from holdfast.client import NodeRefused
from holdfast.client.node_socket import NodeSocket, cursor_of
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.event import make_payload
from holdfast.core.base.values import AccountId, Amount, EventNo, Height, KeyId
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.escrow.messages import Mint
from holdfast.core.key.messages import CreateKey
from holdfast.core.key.model import Role, secret_hash
from holdfast.core.proof.messages import RecordVerdict
from holdfast.engine.event_stream import StoredEvent


@pytest.mark.rule("RPC-002", "ENG-006")
async def test_neither_result_bytes_nor_secrets_leave_with_events(tmp_path: Path) -> None:
    async with result_node(SERVING) as made:
        await made.do(CreateKey(KeyId("ab" * 8), secret_hash(b"s" * 32), Role.OPERATOR))
        job, proof = await made.submission(b"the answer itself")
        await made.do(proof)
        await made.do(RecordVerdict(proof.lease_id, True, "", b"the answer itself"))
        door = UnixSocketServer(made.access, tmp_path / "node.sock")
        await door.open()
        seen: dict[str, dict[str, Any]] = {}
        async for event in NodeSocket(tmp_path).follow():
            seen[event["type"]] = event["event"]
            if event["number"] == made.engine.durable_head.last:
                break
        await door.close()
    assert seen["jobCompleted"]["task_id"] == job.hex()
    payload, _ = make_payload(b"the answer itself", 0)
    said = repr(seen)
    assert payload.digest.hex() not in said
    assert b"the answer itself".hex() not in said
    assert secret_hash(b"s" * 32).hex() not in said
    assert seen["keyCreated"]["role"] == "operator"


@pytest.mark.rule("ENG-006")
async def test_who_asks_for_deleted_events_learns_where_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(_: EventNo) -> AsyncIterator[StoredEvent]:
        raise Unavailable("ENG-006", "events 1 to 18 were deleted from the archive", "follow after event 18")
        yield

    async with result_node(SERVING) as made:
        monkeypatch.setattr(made.engine.event_stream, "follow_batches", gone)
        door = UnixSocketServer(made.access, tmp_path / "node.sock")
        await door.open()
        with pytest.raises(NodeRefused, match="follow after event 18"):
            await anext(NodeSocket(tmp_path, total_timeout_s=1.0).follow())
        await door.close()


LIFE = ("readable", "blockSealed", "rolledBack", "reincluded", "readable", "blockSealed", "finalized")


@pytest.mark.rule("EVT-002")
async def test_the_socket_says_what_blocks_do_to_results_from_any_cursor(tmp_path: Path) -> None:
    async with result_node(final_after(2)) as made:
        await made.resolved()
        await made.do(SEAL)
        await made.do(RollBackBlocks(Height(1)))
        for _ in range(3):
            await made.do(SEAL)
        door = UnixSocketServer(made.access, tmp_path / "node.sock")
        await door.open()
        told = await events_after(tmp_path, 0, made.engine.durable_head.last)
        names = [event["type"] for event in told if event["type"] in LIFE]
        assert names == ["blockSealed", *LIFE[:6], "blockSealed", "blockSealed", "finalized"]
        assert [event["number"] for event in told if "index" not in event] == list(range(1, told[-1]["number"] + 1))
        for at, event in enumerate(told):
            assert await events_after(tmp_path, cursor_of(event), told[-1]["number"]) == told[at + 1 :], at
        plain = await events_after(tmp_path, 0, told[-1]["number"], derived=False)
        assert plain == [event for event in told if "index" not in event]
        for no in ("1.x", ".", "-1"):
            with pytest.raises(NodeRefused, match=r"number\.index"):
                await anext(NodeSocket(tmp_path).follow(no))
        await door.close()


@pytest.mark.rule("ENG-006")
async def test_a_batch_of_many_events_is_sent_in_few_writes_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    send = unix_socket._Connection._send

    async def noting(connection: Any, raw: bytes) -> None:
        writes.append(raw.count(b"\n") + 1)
        await send(connection, raw)

    monkeypatch.setattr(unix_socket, "EVENTS_PER_WRITE", 4)
    monkeypatch.setattr(unix_socket._Connection, "_send", noting)
    async with result_node(SERVING) as made:
        before = made.engine.durable_head
        mints = [Mint(bytes([number]) * 32, AccountId("alice"), Amount(1)) for number in range(10)]
        await made.engine.submit_many(mints)
        assert made.engine.durable_head.number == before.number + 1
        door = UnixSocketServer(made.access, tmp_path / "node.sock")
        await door.open()
        told = await events_after(tmp_path, before.last, before.last + 10, derived=False)
        await door.close()
    assert [event["number"] for event in told] == list(range(before.last + 1, before.last + 11))
    assert writes == [4, 4, 2]


async def events_after(folder: Path, after: int | str, last: int, *, derived: bool = True) -> list[Any]:
    if after == last:
        return []
    told: list[Any] = []
    async for event in NodeSocket(folder).follow(after, derived=derived):
        told.append(event)
        if event["number"] == last and "index" not in event:
            break
    return told
