"""`--exec`: a program of the provider. Input on standard input, output on standard output or in files."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from holdfast.agent.executors.contract import ExecutorIsolation, Work, WorkDeclined, WorkFailed
from holdfast.agent.executors.programs.limits import WorkLimits
from holdfast.agent.executors.programs.process import ContainedProcess, signal_name
from holdfast.agent.executors.programs.scratch import Scratch
from holdfast.core.job.spec import WorkPayload
from holdfast.workloads.invalid_input import InvalidJobInput

EX_DATAERR, EX_TEMPFAIL = 65, 75
"""Exit codes: the job's input is invalid; declined."""
SIGXFSZ: Final = 25


def canonical_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def work_environment(work: Work, output: Path) -> dict[str, str]:
    return {
        "HOLDFAST_SPEC": canonical_json(work.payload.spec),
        "HOLDFAST_OUTPUT_DIR": str(output),
        "HOLDFAST_TASK_ID": work.task_id.hex(),
        "HOLDFAST_DEADLINE_MS": str(work.deadline_ms),
    }


def open_input(payload: WorkPayload, folder: Path) -> int:
    """The input of the job, else its spec as JSON, to read."""
    path = Path(payload.input_file)
    if not payload.input_file:
        path = folder / "spec"
        path.write_text(canonical_json(payload.spec), "utf-8")
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


class ProgramExecutor:
    """Runs a command for each job; `args` of a COMPUTE job are appended to it."""

    isolation = ExecutorIsolation.ASYNC

    def __init__(self, command: list[str], scratch: Path, limits: WorkLimits, environment: Mapping[str, str]) -> None:
        self._command, self._root, self._limits, self._environment = command, scratch, limits, dict(environment)

    async def probe(self) -> str:
        """Why it cannot run; empty where it can."""
        program = self._command[0]
        return "" if await asyncio.to_thread(os.access, program, os.X_OK) else f"{program} cannot be run"

    async def run_async(self, work: Work) -> bytes:
        scratch = Scratch(self._root)
        process = ContainedProcess(self._limits, work.report)
        try:
            await asyncio.to_thread(scratch.make)
            code = await self._run(work, scratch, process)
            await process.end()
            if code and scratch.stdout.stat().st_size >= self._limits.output_bytes_max:
                code = -SIGXFSZ  # a program that ignores the signal fails to write
            check_exit(code, process, self._limits)
            return await asyncio.to_thread(scratch.read_output, self._limits.output_bytes_max)
        except OSError as fault:
            raise WorkFailed(f"PROVIDER_FAIL: {fault.strerror}: {fault.filename}") from fault
        finally:
            await asyncio.shield(_clean_up(process, scratch))

    async def _run(self, work: Work, scratch: Scratch, process: ContainedProcess) -> int:
        spec = work.payload.spec
        args = [str(arg) for arg in spec.get("args", ())] if "runtime" in spec else []
        stdin = await asyncio.to_thread(open_input, work.payload, scratch.folder)
        stdout = os.open(scratch.stdout, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            environment = self._environment | work_environment(work, scratch.output)
            await process.start([*self._command, *args], scratch.work, environment, stdin=stdin, stdout=stdout)
        finally:
            os.close(stdin)
            os.close(stdout)
        return await process.wait()


async def _clean_up(process: ContainedProcess, scratch: Scratch) -> None:
    await process.end()
    await asyncio.to_thread(scratch.remove)


def check_exit(code: int, process: ContainedProcess, limits: WorkLimits) -> None:
    """What an exit code means; returns where the work was done."""
    said = f": {process.last_line}" if process.last_line else ""
    if code == 0:
        return
    if code == EX_DATAERR:
        raise InvalidJobInput(process.last_line or "the program calls it invalid")
    if code == EX_TEMPFAIL:
        raise WorkDeclined(process.last_line or "the program declines")
    if code == -SIGXFSZ:
        raise WorkFailed(f"OUTPUT_TOO_LARGE: more than {limits.output_bytes_max} bytes")
    if process.is_out_of_memory():
        raise WorkFailed(f"OUT_OF_MEMORY: more than {limits.memory_mb} MiB")
    if code < 0:
        raise WorkFailed(f"PROVIDER_FAIL: ended by {signal_name(-code)}{said}")
    raise WorkFailed(f"PROVIDER_FAIL: exit code {code}{said}")
