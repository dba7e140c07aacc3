"""`holdfast spool ship`: a root of another program is delivered while it is written, and nothing in it is changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from tests.agent.in_process_agent import wait_until
from tests.api.evidence.retrovue_sender import RetrovueSender
from tests.api.grpc.agent_driver import AgentDriver, AgentNode, agent_node
from tests.shipping.retrovue_receiver import RetrovueReceiver
from tests.spool.spools import CHANNEL, SESSION, adopt_session, channel_folder, emit_spooled, open_spool
from tests.spool.test_spool_cli import run_cli
from tests.spool.test_spool_ownership import everything, lay_v01, running_writer
from tests.spool.v01_writer import line_of

from holdfast.adapters.keys.agent_keys import AgentKeys
from holdfast.api.evidence.reader import read_session_lines
from holdfast.cli.spool.ship import default_markers
from holdfast.shipping.background_shipper import AsyncSystemClock, transport_opener
from holdfast.shipping.node_connection import NodeConnection
from holdfast.shipping.root_shipper import RootShipper, SessionOutcome
from holdfast.spool import Spool
from holdfast.wire.retrovue_codec import message_of

pytestmark = pytest.mark.rule("SP-OWN-001", "EVD-004")
THEIRS = (CHANNEL, SESSION)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """The command configures logging for its process, which is ours here."""
    yield
    structlog.reset_defaults()


@pytest.fixture
async def receiver() -> AsyncIterator[RetrovueReceiver]:
    made = RetrovueReceiver()
    await made.start()
    yield made
    await made.stop()


async def ship_once(root: Path, markers: Path, address: str) -> list[SessionOutcome]:
    opener = transport_opener("retrovue", None)
    assert callable(opener)
    connection, outcomes = NodeConnection(address, None), list[SessionOutcome]()
    await RootShipper(root, markers, opener(connection), AsyncSystemClock()).ship(outcomes.append)
    await connection.close()
    return outcomes


async def test_a_root_is_shipped_while_its_program_writes_and_nothing_in_it_changes(
    tmp_path: Path, receiver: RetrovueReceiver
) -> None:
    root, markers = tmp_path / "theirs", tmp_path / "ours"
    with running_writer(root) as last:
        await wait_until((channel_folder(root) / f"{SESSION}.ack").exists)
        before = everything(root)
        for _ in range(3):
            (outcome,) = await ship_once(root, markers, f"127.0.0.1:{receiver.port}")
            assert outcome.is_delivered
        assert everything(root) == before
    await ship_once(root, markers, f"127.0.0.1:{receiver.port}")
    assert receiver.sequences(THEIRS) == list(range(1, last[0] + 1))
    assert await ship_once(root, markers, f"127.0.0.1:{receiver.port}") == [], "our markers say that it is delivered"
    assert receiver.repeated == 0
    assert (channel_folder(root) / f"{SESSION}.spool.jsonl").read_bytes() == b"".join(
        line_of(CHANNEL, SESSION, n) for n in range(1, last[0] + 1)
    )


async def test_the_command_ships_our_sessions_and_theirs_and_says_what_it_could_not(
    tmp_path: Path, receiver: RetrovueReceiver
) -> None:
    root = tmp_path / "root"
    lay_v01(root, 3)
    lay_v01(root, 2, session="bad name")
    ours = open_spool(root, "PS-ours")
    emit_spooled(ours, 4, "CHANNEL_TERMINATED", termination_utc_ms=1, reason="x", detail="")
    ours.close(final=True)

    def command(*more: str) -> str:
        words = ("ship", root, "--to", f"127.0.0.1:{receiver.port}", "--markers", tmp_path / "m", *more)
        return run_cli(*words, code=None)

    text = await asyncio.to_thread(command)
    assert f"✔ {CHANNEL}/{SESSION}: 3 of 3 records delivered" in text
    assert f"✔ {CHANNEL}/PS-ours: 4 of 4 records delivered" in text
    assert f"▲ {CHANNEL}/bad name: 0 of 2 records delivered: SP-007" in text
    assert receiver.sequences(THEIRS) == [1, 2, 3]
    assert not list(channel_folder(root).glob("PS-ours*")), "delivered and finished: deleted"
    assert "1 to 3" in run_cli("show", channel_folder(root) / f"{SESSION}.spool.jsonl")
    receiver.is_silent = True
    lay_v01(root, 4)
    assert "not everything was delivered" in await asyncio.to_thread(command, "--timeout-s", "0.5")


def test_what_cannot_be_shipped_is_refused_by_name(tmp_path: Path) -> None:
    to = ("--to", "127.0.0.1:1")
    assert "is not a folder" in run_cli("ship", tmp_path / "none", *to, code=2)
    assert "no protocol 'smoke'" in run_cli("ship", tmp_path, *to, "--protocol", "smoke", code=2)
    assert "needs a provider's key" in run_cli("ship", tmp_path, *to, "--protocol", "holdfast", code=2)
    assert "SEC-001" in run_cli("ship", tmp_path, "--to", "192.0.2.1:1", code=2)


def test_every_root_has_markers_of_its_own_outside_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    first, second = default_markers(tmp_path / "a"), default_markers(tmp_path / "b")
    assert first != second
    assert first.is_relative_to(tmp_path / "state" / "holdfast")
    assert default_markers(tmp_path / "a" / ".." / "a") == first


# ------------------------------------------------------------------------------------------------ a node that is ahead


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[AgentNode]:
    async with agent_node(tmp_path / "node") as node:
        yield node


@pytest.mark.rule("EVD-001", "EVD-004", "SP-RET-001")
async def test_a_node_receives_what_the_command_ships_under_a_providers_key(tmp_path: Path, node: AgentNode) -> None:
    """What an agent has left behind, sent from its folder; a channel of another provider is named and left."""
    root, data = tmp_path / "root", tmp_path / "agent"
    oak = AgentDriver(node, key=AgentKeys(data).current())
    await oak.register()
    sent = dict[str, list[bytes]]()
    for session, last in (("PS-1", "CHANNEL_TERMINATED"), ("PS-2", "PROGRESS")):
        spool = Spool.open(oak.id.hex(), session, root=root)
        assert isinstance(spool, Spool)
        for kind in ("PROGRESS", "PROGRESS", last):
            spool.emit(kind, {"percent": 1})
        spool.writer.spooled.wait(3, None)
        sent[session] = list(spool.replay())
        spool.close(final=session == "PS-1")
    lay_v01(root, 2)

    def command() -> str:
        to = ("--to", f"127.0.0.1:{node.server.port}", "--protocol", "holdfast", "--agent-data", data)
        return run_cli("ship", root, *to, "--markers", tmp_path / "m", "--timeout-s", "20", code=1)

    text = await asyncio.to_thread(command)
    assert f"✔ {oak.id.hex()}/PS-1: 3 of 3 records delivered" in text
    assert f"✔ {oak.id.hex()}/PS-2: 3 of 3 records delivered" in text
    assert f"▲ {CHANNEL}/{SESSION}: 0 of 2 records delivered: EVD-001: the channel belongs to" in text
    for session, lines in sent.items():
        assert [line async for line in read_session_lines(node.engine, oak.id.hex(), session)] == lines
    assert not list((root / oak.id.hex()).glob("PS-1*")), "delivered and finished: deleted"
    assert "✔" not in await asyncio.to_thread(command), "everything of this provider is delivered"


def test_a_folder_without_an_agents_key_is_named_and_gets_none(tmp_path: Path) -> None:
    to = ("--to", "127.0.0.1:1", "--protocol", "holdfast", "--agent-data", tmp_path / "typo")
    assert "no agent's key" in run_cli("ship", tmp_path, *to, code=2)
    assert not (tmp_path / "typo").exists()


def lay_messages(root: Path, count: int, **changes: str) -> list[Any]:
    """A v0.1 spool that a crash has cut after so many records, and what its program had sent by then."""
    lines = [line_of(CHANNEL, SESSION, n).rstrip() for n in range(1, 11)]
    channel_folder(root).mkdir(parents=True)
    kept = lines[:count]
    kept[1] = kept[1].replace(b"uuid-", changes.get("second", "uuid-").encode())
    (channel_folder(root) / f"{SESSION}.spool.jsonl").write_bytes(b"".join(line + b"\n" for line in kept))
    return [message_of(line) for line in lines]


async def send_all(node: AgentNode, messages: list[Any]) -> None:
    stream = await RetrovueSender(node, CHANNEL, SESSION).connect_with_hello()
    await stream.send(*messages)
    await stream.acks_until(len(messages))
    stream.call.cancel()


@pytest.mark.rule("EVD-007", "SP-OWN-001")
async def test_lines_of_another_program_that_are_not_strict_json_are_sent_as_they_are(
    tmp_path: Path, node: AgentNode
) -> None:
    """A node keeps each as a dead letter and takes the rest; a second run has nothing to send."""
    root = tmp_path / "root"
    lay_messages(root, 6)
    file = channel_folder(root) / f"{SESSION}.spool.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"b-', b'"b\xff\xfe-')
    lines[3] = lines[3].replace(b"uuid-", b"uuid\x07-")
    lines[4] = lines[4].replace(b"uuid-", b"uuid\xe4-")
    file.write_bytes(b"".join(lines))
    (outcome,) = await ship_once(root, tmp_path / "m", f"127.0.0.1:{node.server.port}")
    assert (outcome.delivered, outcome.spooled, outcome.reason) == (6, 6, "")
    stored = await RetrovueSender(node, CHANNEL, SESSION).stored_lines()
    kinds = [msgspec.json.decode(line)["payload_type"] for line in stored]
    assert [kind == "DEAD_LETTER" for kind in kinds] == [False, True, False, True, True, False]
    assert await ship_once(root, tmp_path / "m", f"127.0.0.1:{node.server.port}") == []


@pytest.mark.rule("EVD-003", "SP-ACK-004")
@pytest.mark.parametrize("is_adopted", [False, True])
async def test_a_node_that_is_ahead_of_an_orphaned_v01_spool_has_it_where_the_uuids_agree(
    tmp_path: Path, node: AgentNode, is_adopted: bool
) -> None:
    """Its program sent records before they were on its disk, and died."""
    root = tmp_path / "root"
    await send_all(node, lay_messages(root, 7))
    if is_adopted:
        adopt_session(root)
    (outcome,) = await ship_once(root, tmp_path / "m", f"127.0.0.1:{node.server.port}")
    assert (outcome.delivered, outcome.spooled, outcome.reason) == (7, 7, "")
    assert len(await RetrovueSender(node, CHANNEL, SESSION).stored_lines()) == 10


@pytest.mark.rule("EVD-003")
async def test_an_orphan_with_another_uuid_than_the_nodes_is_not_called_delivered(
    tmp_path: Path, node: AgentNode
) -> None:
    root = tmp_path / "root"
    await send_all(node, lay_messages(root, 7, second="other-"))
    (outcome,) = await ship_once(root, tmp_path / "m", f"127.0.0.1:{node.server.port}")
    assert (outcome.delivered, outcome.is_delivered) == (0, False)
    assert "2 is stored with another event_uuid" in outcome.reason
