"""`holdfast agent` that also runs circuits: each is the path of a file, and it is done when that file is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from holdfast.agent.executors.built_in import BUILT_IN
from holdfast.agent.executors.contract import CancelSignal, ExecutorIsolation
from holdfast.agent.executors.registry import ExecutorRegistry
from holdfast.cli import main
from holdfast.core.base.canonical import canonical
from holdfast.core.base.values import Kind
from holdfast.core.job.spec import Payload


def circuit_after(file: Path) -> str:
    """A circuit that is run when this file is there."""
    return f"// {file}\nOPENQASM 3; qubit[2] q; bit[2] c; h q[0]; c = measure q;"


class WaitingExecutor(msgspec.Struct, frozen=True):
    """As long as it takes, so that a story decides when work is under way and when it is done."""

    isolation: ExecutorIsolation = ExecutorIsolation.THREAD

    @property
    def capability(self) -> dict[str, Any]:
        return {"gates": ["h"], "depth_max": 10, "width_max": 10}

    def run(self, payload: Payload, cancel: CancelSignal) -> bytes:
        awaited = Path(payload.spec["circuit"].splitlines()[0].removeprefix("// "))
        while not awaited.exists() and not cancel.wait(0.02):
            pass
        return canonical({"counts": {"00": payload.spec["shots"]}})


def registry_with(circuits: WaitingExecutor) -> ExecutorRegistry:
    """What every agent has, and this."""
    return ExecutorRegistry({**BUILT_IN, (Kind.QUANTUM, "circuit"): circuits})


if __name__ == "__main__":
    with patch("holdfast.cli.agent.make_registry", return_value=registry_with(WaitingExecutor())):
        main()
