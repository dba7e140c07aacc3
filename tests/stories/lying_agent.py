"""An agent as `patient` is, but what it answers to circuits is false, and it is the first to answer."""

from __future__ import annotations

from unittest.mock import patch

from tests.stories.waiting_agent import WaitingExecutor, registry_with

from holdfast.agent.executors.contract import CancelSignal
from holdfast.cli import main
from holdfast.core.base.canonical import canonical
from holdfast.core.job.spec import Payload


class LyingExecutor(WaitingExecutor, frozen=True):
    """Well formed, signed, and false."""

    def run(self, payload: Payload, cancel: CancelSignal) -> bytes:
        return canonical({"counts": {"11": payload.spec["shots"]}})


if __name__ == "__main__":
    with patch("holdfast.cli.agent.make_registry", return_value=registry_with(LyingExecutor())):
        main()
