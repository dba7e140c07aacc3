"""`holdfast agent`, but what it answers is false, and it is the first to answer: for stories about those who lie."""

from __future__ import annotations

from typing import cast

import msgspec

from holdfast.agent.executors import BUILT_IN, Cancel, Executor, Where, echo_of
from holdfast.cli import main
from holdfast.core.job.spec import Payload
from holdfast.core.values import Kind


class Lie(msgspec.Struct, frozen=True):
    """Well formed, signed, and false."""

    where: Where = Where.THREAD

    def run(self, payload: Payload, cancel: Cancel) -> bytes:
        return echo_of(payload) + b"?"


if __name__ == "__main__":
    known = cast(dict[tuple[Kind, str], Executor], BUILT_IN)
    known |= {(Kind.AI, "echo"): Lie(), (Kind.AI, "sleep"): Lie()}
    main()
