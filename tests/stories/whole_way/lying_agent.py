"""`holdfast agent` whose models and circuits answer what is false: well formed, signed, and wrong."""

from __future__ import annotations

from unittest.mock import patch

from holdfast.agent.executors.built_in import Circuit, Echo
from holdfast.agent.executors.contract import CancelSignal, ExecutorIsolation
from holdfast.agent.executors.registry import ExecutorRegistry
from holdfast.cli import main
from holdfast.core.base.canonical import canonical, decode
from holdfast.core.base.values import Kind
from holdfast.core.job.spec import CIRCUIT, WorkPayload

FLIPPED = str.maketrans("01", "10")


class LyingEcho(Echo, frozen=True):
    """Says something else."""

    def run(self, payload: WorkPayload, cancel: CancelSignal) -> bytes:
        return super().run(payload, cancel)[::-1] + b"!"


class LyingCircuit(Circuit, frozen=True):
    """Every shot measured the opposite."""

    def run(self, payload: WorkPayload, cancel: CancelSignal) -> bytes:
        measured: dict[str, list[str]] = decode(super().run(payload, cancel))  # type: ignore[assignment]
        return canonical({"shots": [shot.translate(FLIPPED) for shot in measured["shots"]]})


if __name__ == "__main__":
    registry = ExecutorRegistry(
        {(Kind.AI, "echo"): LyingEcho(), (Kind.QUANTUM, CIRCUIT): LyingCircuit(isolation=ExecutorIsolation.THREAD)}
    )
    with patch("holdfast.cli.agent.make_registry", return_value=registry):
        main()
