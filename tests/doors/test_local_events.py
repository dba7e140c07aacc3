"""Events on the node's own socket say what happened, without result bytes and without secrets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.doors.results import SERVING, shop

from holdfast.client import Client, NodeRefused
from holdfast.core.event import enclose
from holdfast.core.key import MakeKey, Role, secret_hash
from holdfast.core.proof.acts import Judge
from holdfast.core.refusal import Unavailable
from holdfast.core.values import EventNo, KeyId
from holdfast.doors.local import LocalDoor
from holdfast.engine.tail import Recorded


@pytest.mark.rule("RPC-002", "ENG-006")
async def test_neither_result_bytes_nor_secrets_leave_with_events(tmp_path: Path) -> None:
    async with shop(SERVING) as made:
        await made.do(MakeKey(KeyId("ab" * 8), secret_hash(b"s" * 32), Role.OPERATOR))
        job, proof = await made.submission(b"the answer itself")
        await made.do(proof)
        await made.do(Judge(proof.lease_id, True, "", b"the answer itself"))
        door = LocalDoor(made.desk, tmp_path / "node.sock")
        await door.open()
        seen: dict[str, dict[str, Any]] = {}
        async for event in Client(tmp_path).follow():
            seen[event["type"]] = event["event"]
            if event["number"] == made.engine.durable.last:
                break
        await door.close()
    assert seen["ProofAccepted"]["task_id"] == job.hex()
    payload, _ = enclose(b"the answer itself", 0)
    said = repr(seen)
    assert payload.digest.hex() not in said
    assert b"the answer itself".hex() not in said
    assert secret_hash(b"s" * 32).hex() not in said
    assert seen["KeyMade"]["role"] == "operator"


@pytest.mark.rule("ENG-006")
async def test_who_asks_for_deleted_events_is_told_where_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(_: EventNo) -> AsyncIterator[Recorded]:
        raise Unavailable("ENG-006", "events 1 to 18 were deleted from the archive", "follow after event 18")
        yield

    async with shop(SERVING) as made:
        monkeypatch.setattr(made.engine.tail, "follow", gone)
        door = LocalDoor(made.desk, tmp_path / "node.sock")
        await door.open()
        with pytest.raises(NodeRefused, match="follow after event 18"):
            await anext(Client(tmp_path, patience_s=1.0).follow())
        await door.close()
