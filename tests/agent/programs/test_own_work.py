"""Own work: programs and functions get their input, say their output, and are contained whatever they do."""

from __future__ import annotations

import asyncio
import io
import os
import stat
import tarfile
import time
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.loopback_ports import free_port

from holdfast.agent.executors.contract import AsyncExecutor, TypedOutput, Work
from holdfast.agent.executors.execute import Declined, Failed, execute_async
from holdfast.agent.executors.health import probe_all
from holdfast.agent.executors.own_work import OwnExecutor, WorkSource, make_executors, read_option, why_not_own
from holdfast.agent.executors.programs import limits as limits_module
from holdfast.agent.executors.programs.http_server import HttpServerExecutor
from holdfast.agent.executors.programs.limits import WorkLimits, make_cgroup, own_cgroup
from holdfast.agent.executors.programs.process import LABEL, read_progress
from holdfast.agent.executors.programs.program import ProgramExecutor
from holdfast.agent.executors.programs.python_function import PythonFunction
from holdfast.agent.executors.registry import ExecutorRegistry
from holdfast.agent.leases.lease_run import LeaseRun
from holdfast.agent.leases.records import AcceptedOffer
from holdfast.agent.leases.slots import Slots
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Kind
from holdfast.core.job.input_ref import InputRef, input_digest
from holdfast.core.job.spec import WorkPayload

pytestmark = pytest.mark.rule("JOB-012", "JOB-003")
TASK = bytes(range(32))
SAID = list[tuple[int | None, str]]


def program(folder: Path, script: str, **limits: Any) -> ProgramExecutor:
    file = folder / "program.sh"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(stat.S_IRWXU)
    return ProgramExecutor([str(file)], folder / "scratch", WorkLimits(**limits), {})


async def run(
    executor: AsyncExecutor, folder: Path, raw: bytes | None = b"in", timeout_ms: int = 20_000, **spec: Any
) -> tuple[bytes | Failed | Declined, SAID]:
    said: SAID = []
    ref, file = None, ""
    if raw is not None:
        ref, file = InputRef(input_digest(raw).hex(), len(raw)), str(folder / "input")
        Path(file).write_bytes(raw)
    payload = WorkPayload(kind=Kind.COMPUTE, spec={"runtime": "x"} | spec, input=ref, input_file=file)
    work = Work(payload, TASK, 123, lambda percent, text: said.append((percent, text)))
    outcome = await execute_async(executor, work, timeout_ms)
    return outcome.raw if isinstance(outcome, TypedOutput) else outcome, said


def is_clean(folder: Path) -> bool:
    return not list((folder / "scratch").iterdir())


async def test_a_program_reads_its_input_and_its_arguments_and_reports_progress(tmp_path: Path) -> None:
    executor = program(tmp_path, 'echo "progress 42 almost" >&2; echo hm >&2; tr a-z A-Z; echo "$1"')
    assert await run(executor, tmp_path, args=["one two"]) == (b"INone two\n", [(42, "almost"), (None, "hm")])
    assert is_clean(tmp_path)


async def test_without_an_input_it_reads_its_spec_and_its_environment_holds_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hush")
    output, _ = await run(program(tmp_path, "cat; echo; env"), tmp_path, None, b=2, a="ä")
    assert isinstance(output, bytes)
    spec, *environment = output.decode().splitlines()
    assert spec == '{"a":"ä","b":2,"runtime":"x"}'
    assert f"HOLDFAST_SPEC={spec}" in environment
    assert f"HOLDFAST_TASK_ID={TASK.hex()}" in environment
    assert "HOLDFAST_DEADLINE_MS=123" in environment
    names = {line.partition("=")[0] for line in environment}
    assert not names & {"SECRET", "USER", "SSH_AUTH_SOCK"}


async def test_files_are_the_output_one_as_its_bytes_several_as_a_plain_archive(tmp_path: Path) -> None:
    one = program(tmp_path, "echo no; printf 1 > $HOLDFAST_OUTPUT_DIR/a")
    assert (await run(one, tmp_path))[0] == b"1"
    several = program(tmp_path, "cd $HOLDFAST_OUTPUT_DIR; printf 2 > b; mkdir c; printf 3 > c/d; printf 1 > a")
    first, second = (await run(several, tmp_path))[0], (await run(several, tmp_path))[0]
    assert isinstance(first, bytes)
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        entries = archive.getmembers()
        assert [entry.name for entry in entries] == ["a", "b", "c/d"]
        assert {(entry.mtime, entry.uid, entry.gid, entry.uname, entry.mode) for entry in entries} == {
            (0, 0, 0, "", 0o644)
        }
    linked, _ = await run(program(tmp_path, "ln -s /etc/passwd $HOLDFAST_OUTPUT_DIR/a"), tmp_path)
    assert linked == Failed("OUTPUT_INVALID: a is not a regular file")


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ("echo nonsense >&2; exit 65", Failed("INVALID_INPUT: nonsense")),
        ("echo later >&2; exit 75", Declined("DECLINED: later")),
        ("echo oh >&2; exit 3", Failed("PROVIDER_FAIL: exit code 3: oh")),
        ("kill -SEGV $$", Failed("PROVIDER_FAIL: ended by SIGSEGV")),
        ("yes", Failed("OUTPUT_TOO_LARGE: more than 65536 bytes")),
        ("yes > file", Failed("PROVIDER_FAIL: ended by SIGXFSZ")),
    ],
)
async def test_every_way_to_fail_has_its_name(tmp_path: Path, script: str, outcome: object) -> None:
    found, _ = await run(program(tmp_path, script, output_bytes_max=65_536), tmp_path)
    if isinstance(outcome, Failed) and "SIGXFSZ" in outcome.reason:
        assert isinstance(found, Failed)
        assert found.reason.startswith(("PROVIDER_FAIL", "OUTPUT_TOO_LARGE"))
    else:
        assert isinstance(found, Failed | Declined)
        assert found.reason.startswith(outcome.reason)  # type: ignore[attr-defined]
    assert is_clean(tmp_path)


def marked_processes() -> list[bytes]:
    """Processes of runs that are still there."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"{LABEL}=".encode() in environ and b"holdfast-test-fork" in (entry / "cmdline").read_bytes():
                found.append(environ)
    return found


@pytest.mark.parametrize("has_namespaces", [True, False])
async def test_what_a_program_has_started_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_namespaces: bool
) -> None:
    if not has_namespaces:
        monkeypatch.setattr(limits_module, "namespaces", lambda **_: ())
    stay = "sh -c 'sleep 600; : holdfast-test-fork'"
    executor = program(tmp_path, f"setsid {stay} & {stay} & (setsid setsid {stay} &) ; echo forked")
    assert (await run(executor, tmp_path))[0] == b"forked\n"
    assert marked_processes() == []


async def test_at_the_deadline_it_is_told_to_end_and_then_ended(tmp_path: Path) -> None:
    polite = program(tmp_path, "trap 'echo bye >&2; exit 0' TERM; sleep 60 & wait")
    found, said = await run(polite, tmp_path, timeout_ms=300)
    assert found == Failed("TIME_OUT: not done after 300 ms")
    assert (None, "bye") in said
    assert is_clean(tmp_path)


def test_lines_of_progress_are_told_from_the_log() -> None:
    assert read_progress("progress 0") == (0, "")
    assert read_progress("progress 100 all of it") == (100, "all of it")
    for line in ("progress", "progress x", "progress 101 y", "progressing 5 z"):
        assert read_progress(line) == (None, line)


async def test_a_line_without_an_end_takes_no_memory_and_is_cut(tmp_path: Path) -> None:
    output, said = await run(program(tmp_path, "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo done"), tmp_path)
    assert output == b"done\n"
    assert [text[:500] for _, text in said] == ["x" * 500]


def test_a_cgroup_gets_the_limits_where_the_agent_may_make_one(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("9:cpu:/\n0::/agent\n")
    assert own_cgroup(tmp_path, own) is None
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "cgroup.subtree_control").write_text("cpu memory pids\n")
    parent = own_cgroup(tmp_path, own)
    assert parent == tmp_path / "agent"
    made = make_cgroup(parent, "x", WorkLimits(memory_mb=3, processes_max=7))
    assert ((made / "memory.max").read_text(), (made / "pids.max").read_text()) == (str(3 << 20), "7")


# ------------------------------------------------------------------------------------------------ functions


@pytest.fixture
async def function(tmp_path: Path) -> AsyncIterator[PythonFunction]:
    made = PythonFunction("tests.agent.programs.own_functions:behave", tmp_path / "scratch", WorkLimits(), {})
    yield made
    await made.close()


async def test_a_function_runs_in_a_process_that_stays_warm(function: PythonFunction, tmp_path: Path) -> None:
    await function.warm_up()
    first, second = (await run(function, tmp_path, b"who"))[0], (await run(function, tmp_path, b"who"))[0]
    assert isinstance(first, bytes)
    assert first == second
    assert int(first.split()[0]) != os.getpid()
    output, said = await run(function, tmp_path, b"plain")
    assert (output, (50, "half") in said) == (b"plain", True)
    archive, _ = await run(function, tmp_path, b"files")
    assert isinstance(archive, bytes)
    assert archive[257:262] == b"ustar"


async def test_a_function_that_fails_names_why_and_one_that_dies_or_hangs_is_replaced(
    function: PythonFunction, tmp_path: Path
) -> None:
    before, _ = await run(function, tmp_path, b"who")
    assert (await run(function, tmp_path, b"invalid"))[0] == Failed("INVALID_INPUT: not this")
    assert (await run(function, tmp_path, b"wrong"))[0] == Failed("PROVIDER_FAIL: ValueError: wrong")
    assert (await run(function, tmp_path, b"who"))[0] == before
    died, _ = await run(function, tmp_path, b"die")
    assert died == Failed("PROVIDER_FAIL: its process exit code 3")
    began = time.monotonic()
    hung, _ = await run(function, tmp_path, b"hang", timeout_ms=300)
    assert hung == Failed("TIME_OUT: not done after 300 ms")
    assert time.monotonic() - began < 30
    assert (await run(function, tmp_path, b"who"))[0] != before


# ------------------------------------------------------------------------------------------------ HTTP


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server in the shape of OpenAI's: it streams, or says whose fault it is."""
    with closing(writer), suppress(ConnectionError):
        await say(reader, writer)


async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.lower().splitlines() if line.startswith(b"content-length"))
    body = await reader.readexactly(length)
    status = body[:3] if body[:3].isdigit() else b"200"
    writer.write(b"HTTP/1.1 %s x\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" % status)
    for part in (b"data: one\n\n", b"data: " + body):
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    server = await asyncio.start_server(answer, "127.0.0.1", free_port())
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat/completions"


async def test_a_server_gets_the_input_and_its_stream_is_passed_on(url: str, tmp_path: Path) -> None:
    executor = HttpServerExecutor(url, WorkLimits())
    output, said = await run(executor, tmp_path, b"hi")
    assert isinstance(output, bytes)
    assert output == b"data: one\n\ndata: hi"
    assert "".join(text for _, text in said) == output.decode()
    for status, kind, code in ((422, Failed, "INVALID_INPUT"), (429, Declined, "DECLINED"), (500, Failed, "PROVIDER")):
        found, said = await run(executor, tmp_path, b"%d" % status)
        assert isinstance(found, kind)
        assert (found.reason.startswith(code), said) == (True, [])
    small = HttpServerExecutor(url, WorkLimits(output_bytes_max=5))
    assert (await run(small, tmp_path, b"hi"))[0] == Failed("OUTPUT_TOO_LARGE: more than 5 bytes")
    gone, _ = await run(HttpServerExecutor("http://127.0.0.1:9/x", WorkLimits()), tmp_path, b"hi")
    assert isinstance(gone, Declined)
    for each in (executor, small):
        await each.close()


# ------------------------------------------------------------------------------------------------ options


def test_options_name_work_and_what_cannot_work_is_refused_by_name(tmp_path: Path) -> None:
    read = read_option(WorkSource.EXEC, "wc=wc -c")
    assert isinstance(read, OwnExecutor)
    assert (read.kind, read.name, read.target, why_not_own(read)) == (Kind.COMPUTE, "wc", "wc -c", None)
    assert (Kind.COMPUTE, "wc") in make_executors([read], tmp_path, 0)
    http = read_option(WorkSource.HTTP, "oak=http://127.0.0.1:1/v1")
    assert isinstance(http, OwnExecutor)
    assert http.kind is Kind.AI
    other = read_option(WorkSource.HTTP, "COMPUTE:a:b=http://127.0.0.1:1/v1")
    assert isinstance(other, Refused)
    for source, option in ((WorkSource.EXEC, "wc"), (WorkSource.EXEC, "TEA:wc=wc"), (WorkSource.PYTHON, "=a:b")):
        assert isinstance(read_option(source, option), Refused)
    for name, target in (
        ("exec", "no-such-program-here"),
        ("python", "nothing"),
        ("http", "ftp://x"),
        ("plugin", "x"),
    ):
        assert isinstance(why_not_own(OwnExecutor(source=WorkSource(name), name="x", target=target)), Refused)


@pytest.mark.rule("LEA-006")
async def test_an_executor_that_cannot_work_is_found_and_its_offers_are_declined(tmp_path: Path, url: str) -> None:
    gone = HttpServerExecutor(f"http://127.0.0.1:{free_port()}/", WorkLimits())
    made = program(tmp_path, "cat")
    executors = {(Kind.AI, "up"): HttpServerExecutor(url, WorkLimits()), (Kind.AI, "gone"): gone}
    registry = ExecutorRegistry({**executors, (Kind.COMPUTE, "x"): made}, slots={("AI", "up"): 1})
    await probe_all(registry)
    assert registry.unhealthy == {("AI", "gone")}
    (tmp_path / "program.sh").unlink()
    await probe_all(registry)
    slots = Slots(registry, total=3)
    assert slots.why_not(("COMPUTE", "x"), b"1") == "UNHEALTHY: x"
    assert slots.why_not(("AI", "up"), b"1") == ""
    slots.expect(b"1", ("AI", "up"))
    assert slots.why_not(("AI", "up"), b"1") == ""
    assert slots.why_not(("AI", "up"), b"2") == "BUSY: up"
    slots.expect(b"2", ("AI", "other"))
    slots.expect(b"3", ("AI", "other"))
    assert slots.why_not(("AI", "third"), b"4") == "FULL"
    slots.clear()
    runs = [LeaseRun(AcceptedOffer(each, each, "AI", 0, b"", "attested", 1)) for each in (b"5", b"6")]
    for run in runs:
        run.executor_key = ("AI", "up")
    slots.count_running(runs)
    assert slots.why_not(("AI", "up"), b"7") == "BUSY: up"
    slots.expect(b"8", ("AI", "other"))
    assert slots.why_not(("AI", "third"), b"9") == "FULL"
    runs[0].end("LOST")
    slots.count_running(runs)
    assert slots.why_not(("AI", "third"), b"9") == ""
