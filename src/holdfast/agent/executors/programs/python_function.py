"""`--python`: a function in warm processes. The interpreter and the function's imports start once, not for each job."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import structlog

from holdfast.agent.executors.contract import ExecutorIsolation, Report, Work, WorkDeclined, WorkFailed
from holdfast.agent.executors.programs import python_child
from holdfast.agent.executors.programs.limits import WorkLimits
from holdfast.agent.executors.programs.process import ContainedProcess, signal_name
from holdfast.agent.executors.programs.program import canonical_json
from holdfast.agent.executors.programs.scratch import Scratch
from holdfast.workloads.invalid_input import InvalidJobInput

START_S: Final = 60.0
INVALID, DECLINED = "InvalidJobInput", "WorkDeclined"
"""Exceptions with these names, or derived from them, say whose fault it is."""
_log = structlog.get_logger()


def _no_report(_: int | None, __: str) -> None:
    return


class _WarmProcess:
    """One process that has loaded the function."""

    def __init__(self, root: Path, limits: WorkLimits) -> None:
        self._contained, self._home = ContainedProcess(limits, _no_report), Scratch(root)

    async def start(self, target: str, paths: list[str], environment: Mapping[str, str]) -> None:
        await asyncio.to_thread(self._home.make)
        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, "-u", str(Path(python_child.__file__)), target, *paths]
        await self._contained.start(command, self._home.work, environment, stdin=pipe, stdout=pipe)
        async with asyncio.timeout(START_S):
            await self._answer(_no_report)

    async def call(self, request: dict[str, Any], report: Report) -> dict[str, Any]:
        process = self._contained.process
        assert process is not None
        assert process.stdin is not None
        self._contained.report = report
        process.stdin.write(json.dumps(request).encode() + b"\n")
        await process.stdin.drain()
        try:
            return await self._answer(report)
        except asyncio.CancelledError:
            waiting = asyncio.ensure_future(self._contained.wait())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            raise
        finally:
            self._contained.report = _no_report

    async def _answer(self, report: Report) -> dict[str, Any]:
        process = self._contained.process
        assert process is not None
        assert process.stdout is not None
        while line := await process.stdout.readline():
            message: dict[str, Any] = json.loads(line)
            if "progress" not in message:
                return message
            percent, text = message["progress"]
            report(percent, text)
        code = await self._contained.wait()
        await self._contained.end()
        how = f"ended by {signal_name(-code)}" if code < 0 else f"exit code {code}"
        said = f": {self._contained.last_line}" if self._contained.last_line else ""
        raise WorkFailed(f"PROVIDER_FAIL: its process {how}{said}")

    async def close(self) -> None:
        await self._contained.end()
        await asyncio.to_thread(self._home.remove)


class PythonFunction:
    """A process for every job that runs at a time; one that was not ended by its job serves the next."""

    isolation = ExecutorIsolation.ASYNC

    def __init__(self, target: str, scratch: Path, limits: WorkLimits, environment: Mapping[str, str]) -> None:
        self._target, self._root, self._limits, self._environment = target, scratch, limits, dict(environment)
        self._paths = [os.getcwd()]  # noqa: PTH109 - where the agent was started
        self._idle: list[_WarmProcess] = []

    async def warm_up(self) -> None:
        """Start one process, so that the first job need not wait; raises where the function cannot be loaded."""
        self._idle.append(await self._start())

    async def run_async(self, work: Work) -> bytes:
        process = self._idle.pop() if self._idle else await self._start()
        scratch = Scratch(self._root)
        is_reusable = False
        try:
            await asyncio.to_thread(scratch.make)
            request = await asyncio.to_thread(_request_of, work, scratch)
            answer = await process.call(request, work.report)
            is_reusable = True
            _check(answer)
            return await asyncio.to_thread(scratch.read_output, self._limits.output_bytes_max)
        except OSError as fault:
            raise WorkFailed(f"PROVIDER_FAIL: {fault.strerror}: {fault.filename}") from fault
        finally:
            if is_reusable:
                self._idle.append(process)
            else:
                await asyncio.shield(process.close())
            await asyncio.shield(asyncio.to_thread(scratch.remove))

    async def _start(self) -> _WarmProcess:
        process = _WarmProcess(self._root, self._limits)
        try:
            await process.start(self._target, self._paths, self._environment)
        except BaseException:
            await asyncio.shield(process.close())
            raise
        return process

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()


def _request_of(work: Work, scratch: Scratch) -> dict[str, Any]:
    payload = work.payload
    file = Path(payload.input_file)
    if not payload.input_file:
        file = scratch.folder / "spec"
        file.write_text(canonical_json(payload.spec), "utf-8")
    scratch.stdout.touch()
    return {
        "spec": payload.spec,
        "task_id": work.task_id.hex(),
        "deadline_ms": work.deadline_ms,
        "media_type": "application/json" if payload.input is None else payload.input.media_type,
        "input_file": str(file),
        "output_dir": str(scratch.output),
        "stdout": str(scratch.stdout),
    }


def _check(answer: dict[str, Any]) -> None:
    if "failed" not in answer:
        return
    names, message = answer["failed"]
    if INVALID in names:
        raise InvalidJobInput(message)
    if DECLINED in names:
        raise WorkDeclined(message)
    if message.startswith(f"[Errno {errno.EFBIG}]"):
        raise WorkFailed("OUTPUT_TOO_LARGE: the function writes more than it may")
    raise WorkFailed(f"PROVIDER_FAIL: {names[0]}: {message}")
