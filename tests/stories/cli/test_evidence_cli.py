"""Evidence as an operator looks at it: sessions, records, exports that resume, as-run logs, dead letters dealt with."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from tests.api.evidence.retrovue_sender import KINDS, RetrovueSender
from tests.loopback_ports import free_ports
from tests.stories.cli_runner import CliNode, running_cli_node
from tests.stories.node_process import QUIET_CHAIN

from holdfast.wire.gen.retrovue.evidence.v1 import evidence_pb2 as pb
from holdfast.wire.retrovue_codec import line_of

DAY_MS = 86_400_000


class NodeWithEvidence:
    """A node, and what was sent to it."""

    def __init__(self, node: CliNode, air: RetrovueSender, messages: list[Any]) -> None:
        self.node, self.air, self.messages = node, air, messages
        self.lines: list[Any] = [line_of(message) for message in messages]


@pytest.fixture
async def sent(tmp_path: Path) -> AsyncIterator[NodeWithEvidence]:
    (port,) = free_ports(1)
    grpc_api = {"HOLDFAST_GRPC__ENABLED": "true", "HOLDFAST_GRPC__PORT": str(port)}
    asrun = {"HOLDFAST_GRPC__LEGACY_EVIDENCE": "open", "HOLDFAST_ASRUN_FOLDER": str(tmp_path / "asrun")}
    settings = QUIET_CHAIN | grpc_api | asrun
    async with (
        running_cli_node(tmp_path, chain=settings) as node,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        air = RetrovueSender(SimpleNamespace(channel=channel))  # type: ignore[arg-type]
        messages = [air.message(sequence, kind) for sequence, kind in enumerate(KINDS, start=1)]
        stream = await air.connect_with_hello(9)
        await stream.send(*messages, air.message(6, schema_version=7))
        await stream.acks_until(6)
        await node.wait_tables()
        yield NodeWithEvidence(node, air, messages)


@pytest.mark.rule("EVD-001", "RPC-001")
async def test_sessions_and_records_are_shown(sent: NodeWithEvidence) -> None:
    listed = await sent.node.run("evidence", "list")
    (row,) = [line for line in listed.out.splitlines() if line.startswith("classic-1")]
    assert row.split()[:5] == ["classic-1", "PS-1", "6", "-", "3"]
    assert (await sent.node.run("evidence", "list", "--channel", "none", "--json")).json == []
    shown = await sent.node.run("evidence", "show", "classic-1", "--session", "PS-1", "--limit", 5, "--json")
    assert shown.out.splitlines() == [line.decode() for line in sent.lines]
    plain = await sent.node.run("evidence", "show", "classic-1", "--session", "PS-1", "--after", 3)
    assert [line.split()[3] for line in plain.out.splitlines()] == ["BLOCK_FENCE", "CHANNEL_TERMINATED", "DEAD_LETTER"]
    assert (await sent.node.run("evidence", "show", "classic-1", "--after", 3)).code == 2
    assert (await sent.node.run("evidence", "show", "classic-1", "--session", "none")).code == 1


@pytest.mark.rule("EVD-002")
async def test_an_export_resumes_is_contiguous_and_notices_what_was_changed(
    sent: NodeWithEvidence, tmp_path: Path
) -> None:
    to = tmp_path / "out"
    first = await sent.node.run("evidence", "export", "classic-1", "--to", to)
    assert first.out.startswith("6 records written")
    file = to / "classic-1" / "PS-1.spool.jsonl"
    whole = file.read_bytes()
    assert whole.splitlines()[:5] == sent.lines
    file.write_bytes(whole[:-40])
    assert (await sent.node.run("evidence", "export", "classic-1", "--to", to)).out.startswith("1 records written")
    assert file.read_bytes() == whole
    assert (await sent.node.run("evidence", "export", "classic-1", "--to", to)).out.startswith("0 records written")
    lines = whole.splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:2], *lines[3:]]))
    said = await sent.node.run("evidence", "export", "classic-1", "--to", to)
    assert (said.code, "is not the next one" in said.err) == (1, True)
    assert (await sent.node.run("evidence", "export", "../up", "--to", to)).code == 2


@pytest.mark.rule("EVD-001")
async def test_what_is_not_here_cannot_be_exported_nor_into_what_is_not_a_folder(
    sent: NodeWithEvidence, tmp_path: Path
) -> None:
    to, file = tmp_path / "out", tmp_path / "file"
    file.touch()
    for words in (("export", "classic-l"), ("asrun", "classic-l"), ("export", "classic-1", "--session", "PS-l")):
        said = await sent.node.run("evidence", *words, "--to", to)
        assert (said.code, "holdfast evidence list" in said.err, to.exists()) == (1, True, False), said.err
    said = await sent.node.run("evidence", "export", "classic-1", "--to", file)
    assert (said.code, "Not a directory" in said.err, "holdfast up" in said.err) == (75, True, False), said.err


@pytest.mark.rule("EVD-009")
async def test_as_run_logs_are_written_by_command_and_by_the_node_alike(sent: NodeWithEvidence, tmp_path: Path) -> None:
    said = await sent.node.run("evidence", "asrun", "classic-1", "--to", tmp_path / "out")
    assert said.out.startswith("5 entries added")
    assert (await sent.node.run("evidence", "asrun", "classic-1", "--to", tmp_path / "out")).out.startswith("0 entries")
    ours = {path.name: path.read_bytes() for path in (tmp_path / "out" / "classic-1").glob("*.asrun*")}
    assert sorted(ours) == [f"{day}.asrun{end}" for day in ("1970-01-01", "2026-02-13") for end in ("", ".jsonl")]
    assert await sent.node.node.stop() == 0
    assert (await sent.node.run_offline("db", "check")).code == 0, (
        "tables, dead letters and watermarks are the journal's"
    )
    await sent.node.node.up()
    theirs = tmp_path / "asrun" / "classic-1"
    for _ in range(200):
        if (theirs / "written.json").exists() and json.loads((theirs / "written.json").read_bytes()) == {"PS-1": 6}:
            break
        assert (await sent.node.run("status")).code == 0
    assert {path.name: path.read_bytes() for path in theirs.glob("*.asrun*")} == ours


@pytest.mark.rule("EVD-007", "SEC-001")
async def test_a_dead_letter_is_found_shown_and_resolved_under_a_name(sent: NodeWithEvidence) -> None:
    found = (await sent.node.run("evidence", "dead-letter", "list", "--json")).json["rows"]
    assert [(one["sequence"], one["name"]) for one in found] == [(6, "WrongSchema")]
    id_ = found[0]["event"]
    shown = await sent.node.run("evidence", "dead-letter", "show", id_)
    assert shown.field("reason") == "schema_version is 7, not 1"
    raw = await sent.node.run("evidence", "dead-letter", "show", id_, "--raw")
    assert json.loads(raw.out)["schema_version"] == 7
    refused = await sent.node.run("evidence", "dead-letter", "resolve", id_, "--retry")
    assert (refused.code, "EVD-007" in refused.err) == (2, True)
    resolved = await sent.node.run("evidence", "dead-letter", "resolve", id_, "--note", "an old build")
    assert (resolved.field("status"), resolved.field("note")) == ("SETTLED", "an old build")
    assert (await sent.node.run("evidence", "dead-letter", "resolve", id_)).code == 1
    actions = (await sent.node.run("audit", "log")).out
    assert "evidence.resolveDeadLetter" in actions
    assert "deadLetterResolved" in actions


@pytest.mark.rule("SP-RET-001", "EVD-009")
async def test_sessions_are_sealed_and_channels_assigned(sent: NodeWithEvidence) -> None:
    assert (await sent.node.run("evidence", "seal", "classic-1", "PS-1")).out == "classic-1/PS-1 is final\n"
    assert (await sent.node.run("evidence", "seal", "classic-1", "PS-1")).out == "it was final already\n"
    (row,) = (await sent.node.run("evidence", "list", "--json")).json
    assert (row["is_final"], row["owner"]) == (True, "classic-1")
    assert (await sent.node.run("evidence", "set-owner", "classic-1", "air-1")).code == 0
    (row,) = (await sent.node.run("evidence", "list", "--json")).json
    assert row["owner"] == "air-1"


def test_the_kinds_that_are_sent_are_all_there_are() -> None:
    assert len(KINDS) == len(pb.EvidenceFromAir.DESCRIPTOR.oneofs_by_name["payload"].fields) - 1
