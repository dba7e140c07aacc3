"""The command line without a terminal: readers that go away or were never there, and bytes that are no text."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.stories.node_process import HOLDFAST, NodeProcess

from holdfast.client.node_socket import NodeSocket

WITHIN_S = 30
BAD_INPUT, GONE = 2, 1


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[NodeProcess]:
    found = NodeProcess(tmp_path / "data")
    try:
        await found.up()
        yield found
    finally:
        found.end()


def run_shell(*words: str | bytes, shell: str = "", environ: dict[str, str] | None = None) -> tuple[int, str, str]:
    """What `holdfast` answers; `shell` redirects its streams as a shell does."""
    command = [os.fsencode(word) for word in (HOLDFAST, *words)]
    if shell:
        command = [b"bash", b"-c", b'"$0" "$@" ' + shell.encode(), *command]
    done = subprocess.run(command, capture_output=True, timeout=WITHIN_S, env=os.environ | (environ or {}), check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def run_without_reader(*words: str) -> tuple[int, str]:
    """Its exit code and what it says on standard error, where the reader of its pipe has left before it speaks."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([HOLDFAST, *words], stdout=writer, stderr=subprocess.PIPE, timeout=WITHIN_S, check=False)
    finally:
        os.close(writer)
    return done.returncode, done.stderr.decode()


@pytest.mark.rule("RPC-001")
async def test_a_reader_that_goes_away_ends_it_quietly_and_no_node_is_blamed(node: NodeProcess) -> None:
    for verb in (("events",), ("events", "--no-follow"), ("status",), ("key", "list")):
        assert run_without_reader(*verb, "--data", str(node.data)) == (GONE, "")


@pytest.mark.rule("ENG-006")
async def test_a_cursor_beyond_the_last_event_is_refused_also_by_who_does_not_follow(node: NodeProcess) -> None:
    code, out, says = run_shell("events", "--after", "999999", "--no-follow", "--data", str(node.data))
    assert (code, out) == (1, "")
    assert "has not happened" in says


@pytest.mark.rule("RPC-001")
async def test_bytes_that_are_not_text_are_named_in_a_sentence(node: NodeProcess) -> None:
    for words in (("job", "show", b"caf\xe9"), ("account", "reserve", "alice", "5", "--memo", b"\xff")):
        code, _, says = run_shell(*words, "--data", bytes(node.data))
        assert (code, "is not UTF-8 text" in says, "Traceback" in says) == (BAD_INPUT, True, False), says


@pytest.mark.rule("RPC-001")
def test_a_closed_standard_input_is_neither_a_proof_nor_a_payload() -> None:
    for words in (
        ("verify", "-"),
        ("job", "enqueue", "--caller", "alice", "--file", "-"),
        ("job", "quote", "--file", "-"),
    ):
        code, _, says = run_shell(*words, shell="<&-")
        assert (code, "standard input is closed" in says, says.count("\n")) == (BAD_INPUT, True, 1), says


@pytest.mark.rule("RPC-001")
def test_without_standard_error_the_exit_code_still_tells() -> None:
    assert run_shell("job", "quote", shell="2>&-") == (BAD_INPUT, "", "")
    assert run_shell("up", "--network", "moon", shell="2>&-") == (BAD_INPUT, "", "")


@pytest.mark.rule("RPC-001")
async def test_a_node_runs_without_standard_error(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with subprocess.Popen(["bash", "-c", 'exec "$0" up --data "$1" 2>&- >&- <&-', HOLDFAST, data]) as one:
        async with NodeSocket(data, WITHIN_S) as node:
            assert (await node.status())["role"] == "owner"
        one.terminate()


@pytest.mark.rule("RPC-001")
def test_a_sign_that_the_terminal_cannot_show_is_spelt_out(tmp_path: Path) -> None:
    _, out, says = run_shell("doctor", "--data", str(tmp_path), environ={"PYTHONIOENCODING": "ascii"})
    assert (out.isascii(), "\\u2714" in out, says) == (True, True, "")


@pytest.mark.rule("JOB-003", "RES-008", "CHN-001")
def test_a_file_without_an_end_and_one_nested_beyond_reason_are_refused(tmp_path: Path) -> None:
    deep = tmp_path / "deep.json"
    deep.write_text('{"a":' * 5_000 + "1" + "}" * 5_000)
    for words in (("job", "quote", "--file"), ("job", "enqueue", "--file"), ("verify",)):
        for file, why in ((deep, "nested too deeply"), ("/dev/zero", "more than 64 MiB")):
            code, _, says = run_shell(*words, str(file))
            assert (code, why in says, says.count("\n")) == (BAD_INPUT, True, 1), says


@pytest.mark.rule("SEC-001")
async def test_a_token_goes_into_a_file_not_into_a_folder(node: NodeProcess) -> None:
    code, _, says = run_shell("key", "create", "--account", "alice", "--output", ".", "--data", str(node.data))
    assert (code, "is a folder" in says) == (75, True), says
    assert run_shell("key", "list", "--data", str(node.data))[1].count("\n") == 1, "no key was made"


def test_ctrl_c_while_it_loads_shows_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    command = [sys.executable, "-m", "holdfast", "--version"]
    environ = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, timeout=WITHIN_S, env=environ, check=False)
    assert (done.returncode, done.stderr) == (130, b"")


def test_it_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "holdfast", "--version"], capture_output=True, check=True)
    assert done.stdout.startswith(b"holdfast ")
