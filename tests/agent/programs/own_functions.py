"""Functions that tests offer as work."""

from __future__ import annotations

import os
import time
from typing import Any

STARTED = time.monotonic_ns()


class InvalidJobInput(Exception):
    """By its name: the job is the fault."""


def double(data: bytes) -> bytes:
    return data + data


def behave(data: bytes, job: Any) -> bytes | str | None:
    """Whatever the input says."""
    match data:
        case b"who":
            return f"{os.getpid()} {STARTED}"
        case b"files":
            (job.output_dir / "b").write_text("2")
            (job.output_dir / "a").write_text("1")
            return None
        case b"invalid":
            raise InvalidJobInput("not this")
        case b"wrong":
            raise ValueError("wrong")
        case b"die":
            os._exit(3)
        case b"hang":
            time.sleep(60)
    job.progress(50, "half")
    print("printed")
    return data
