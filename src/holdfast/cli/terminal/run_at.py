"""Times as people write them, for jobs that must not run before one (JOB-013): 2026-12-01T09:00Z, or in 2h."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from holdfast.cli.terminal.clock import now_ms
from holdfast.cli.terminal.durations import parse_duration_ms
from holdfast.cli.terminal.reporting import refuse
from holdfast.core.base.errors import Refused

At = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="Not before this time: 2026-12-01T09:00Z. [default: now]")
]
In = Annotated[str | None, typer.Option("--in", metavar="DURATION", help="Not before this time from now: 90m, 2h.")]


def parse_run_at_ms(at: str | None, in_: str | None) -> int:
    """The time before which a job is not assigned, in milliseconds; 0 where neither is given."""
    if at is not None and in_ is not None:
        refuse(Refused("JOB-013", "--at and --in: pass one of them", name="InvalidParams"))
    if in_ is not None:
        return now_ms() + parse_duration_ms("--in", in_)
    return 0 if at is None else parse_time_ms("--at", at)


def parse_time_ms(option: str, text: str) -> int:
    """A time of ISO 8601 in milliseconds; one without a zone is in UTC."""
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        message = f"{option}: {text!r:.40} is not a time"
        refuse(Refused("JOB-013", message, "write 2026-12-01T09:00Z or 2026-12-01T09:00+01:00", "InvalidParams"))
    in_zone = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return int(in_zone.timestamp() * 1000)
