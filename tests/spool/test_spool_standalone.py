"""The spool alone: what it imports, its metrics for Prometheus, and its limits in words that name the limit."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.loopback_ports import free_port
from tests.spool.spools import (
    CHANNEL,
    SESSION,
    Fault,
    FaultyDisk,
    channel_folder,
    check_refused,
    emit_spooled,
    open_spool,
    small_policy,
    store_ack,
    stored_bytes,
)
from tests.spool.test_spool_cli import run_cli
from tests.spool.v01_writer import line_of

from holdfast.spool import Refused, SpoolPolicy, Ticket
from holdfast.spool.prometheus import SpoolCollector, serve_metrics

ALLOWED = {"holdfast", "msgspec", "crc32c", "typing_extensions"}
"""msgspec imports typing_extensions where it is installed."""
PROBE = """
import json, sys
before = set(sys.modules)
import holdfast.spool
spool = holdfast.spool.Spool.open("c", "s", root=sys.argv[1])
spool.emit("BLOCK_START", {}).wait()
spool.close()
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)))
print(json.dumps(sorted(name for name in sys.modules if name.startswith("holdfast."))))
"""


def test_the_spool_imports_the_standard_library_msgspec_and_crc32c_alone(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROBE, tmp_path], capture_output=True, text=True, check=True)
    libraries, modules = map(json.loads, done.stdout.splitlines())
    assert set(libraries) <= ALLOWED
    layers = {name.split(".")[1] for name in modules}
    assert layers == {"__about__", "core", "spool", "system"}
    assert "holdfast.spool.prometheus" not in modules


@pytest.mark.rule("OBS-001")
def test_open_spools_are_metrics_for_prometheus(tmp_path: Path) -> None:
    first, second = open_spool(tmp_path, policy=small_policy()), open_spool(tmp_path, "PS-2", policy=small_policy())
    emit_spooled(first, 5)
    store_ack(first, 2)
    second.emit("BLOCK_START", {})
    assert isinstance(second.emit("", {}), Refused)
    registry = CollectorRegistry()
    registry.register(SpoolCollector(lambda: [first, second]))

    def value(metric: str, session: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"holdfast_spool_{metric}", {"channel": CHANNEL, "session": session, **labels})

    assert [value(name, SESSION) for name in ("spooled_sequence", "acked_sequence", "unacked_records")] == [5, 2, 3]
    assert value("waiting_records", "PS-2") == 1
    assert value("refused_total", "PS-2", name="InvalidParams") == 1
    assert (value("channel_bytes_max", SESSION), value("is_damaged", SESSION)) == (20_000, 0)
    assert (value("commits_total", SESSION), value("commit_records_sum", SESSION)) == (1, 5)
    assert (value("disk_free_bytes", SESSION) or 0) > 0
    port = free_port()
    server = serve_metrics(lambda: [first], port)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert b"holdfast_spool_unacked_records" in answer.read()
    server.shutdown()
    server.server_close()
    second.step()
    for spool in (first, second):
        spool.close()
    assert b"holdfast_spool_spooled_sequence" in generate_latest(registry)


# ------------------------------------------------------------------------------------------------ the cap and the disk


@pytest.mark.rule("SP-RET-003")
def test_a_full_disk_is_named_and_the_cap_is_not(tmp_path: Path) -> None:
    disk = FaultyDisk()
    spool = open_spool(tmp_path, disk=disk)
    emit_spooled(spool, 2)
    disk.free_left = 100
    spool.writer.measure()
    refusal = check_refused(spool.emit("BLOCK_START", {}), "SpoolFull")
    assert "disk" in refusal.message
    assert "cap" not in refusal.message + refusal.hint
    spool.step()
    refusal = check_refused(spool.emit("BLOCK_START", {}), "SpoolFull")
    assert "the disk is full, 100 bytes are left on the file system of" in refusal.message
    assert "channel_bytes_max" not in refusal.message + refusal.hint
    spool.step()
    last = json.loads(stored_bytes(tmp_path).splitlines()[-1])
    assert last["payload"]["reason"] == "EVIDENCE_SPOOL_FULL"
    assert last["payload"]["detail"].startswith("the disk is full")
    disk.free_left = None
    spool.step()
    assert isinstance(spool.emit("BLOCK_START", {}), Ticket), "with room on the disk it goes on"
    spool.step()
    spool.close()


@pytest.mark.rule("SP-RET-003")
def test_a_disk_that_what_waits_will_fill_is_told_with_what_is_left_for_more(tmp_path: Path) -> None:
    """Not as full with most of its bytes left: they are for the records that wait for the writer."""
    disk = FaultyDisk()
    spool = open_spool(tmp_path, disk=disk)
    disk.free_left = 100_000
    spool.writer.measure()
    while isinstance(refusal := spool.emit("BLOCK_START", {"text": "x" * 1_000}), Ticket):
        pass
    spool.maintainer.step()
    refusal = check_refused(spool.emit("BLOCK_START", {}), "SpoolFull")
    left = int(refusal.message.split("the disk is full, ")[1].split(" bytes are left")[0])
    assert 0 <= left < 2_000
    spool.step()
    spool.close()


@pytest.mark.rule("SP-RET-003")
def test_a_write_that_finds_the_disk_full_is_told_as_the_disk(tmp_path: Path) -> None:
    disk = FaultyDisk()
    spool = open_spool(tmp_path, disk=disk)
    emit_spooled(spool, 1)
    disk.faults = [Fault("write", times=2, code=errno.ENOSPC, where=".spool.jsonl")]
    spool.emit("BLOCK_START", {})
    spool.step()
    refusal = check_refused(spool.emit("BLOCK_START", {}), "SpoolFull")
    assert "the disk is full" in refusal.message
    spool.close()


@pytest.mark.rule("SP-RET-003")
def test_the_cap_is_named_where_it_is_the_limit(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, policy=small_policy())
    while b"EVIDENCE_SPOOL_FULL" not in stored_bytes(tmp_path):
        spool.emit("BLOCK_START", {"x": "y" * 500})
        spool.step()
    refusal = check_refused(spool.emit("BLOCK_START", {}), "SpoolFull")
    assert "the channel's folder is full" in refusal.message
    assert "disk" not in refusal.message
    assert "channel_bytes_max" in refusal.hint
    spool.close()


@pytest.mark.rule("SP-RET-003")
@pytest.mark.parametrize("cap", [30_000, 80_000, 200_000])
def test_with_a_small_cap_a_channel_does_not_open_and_end_with_every_ack(tmp_path: Path, cap: int) -> None:
    """The reserve is much of a small cap: what counts is the room beside it."""
    policy = SpoolPolicy(channel_bytes_max=cap, reserve_bytes=16_384)
    spool = open_spool(tmp_path, policy=policy, segment_bytes=2_000)
    for _ in range(200):
        spool.emit("BLOCK_START", {"x": "y" * 300})
        spool.step()
    accepted = ends = last = 0
    for _ in range(200):
        answer = spool.emit("BLOCK_START", {"x": "y" * 300})
        before = spool.spooled_sequence
        spool.step()
        spool.step()
        accepted += isinstance(answer, Ticket)
        ends += spool.spooled_sequence - before - isinstance(answer, Ticket)
        if isinstance(answer, Refused):
            last = min(last + 1, spool.spooled_sequence)
            spool.ack(last)
            spool.step()
    assert accepted
    assert ends <= 1 + accepted // 2, "it ends with every record"
    spool.close()


# ------------------------------------------------------------------------------------------------ names


@pytest.mark.parametrize(
    "session", ["a b", "Sendung-äöü", "x@y", "-dash", "_under", ".hidden", "a:b;c", "n" * 200, "PS.ack", "line\nbreak"]
)
def test_sessions_of_any_name_that_a_file_can_have_are_listed_and_shown(tmp_path: Path, session: str) -> None:
    folder = channel_folder(tmp_path)
    folder.mkdir()
    raw = b"".join(line_of(CHANNEL, session, n) for n in (1, 2))
    (folder / f"{session}.spool.jsonl").write_bytes(raw)
    text = run_cli("list", tmp_path)
    assert " ".join(session.split())[:60] in " ".join(text.split())
    assert "records    1 to 2" in run_cli("show", "--", folder / f"{session}.spool.jsonl")
    assert run_cli("replay", "--", folder / f"{session}.spool.jsonl").encode() == raw
    assert "2 valid" in run_cli("verify", "--", folder / f"{session}.spool.jsonl")
