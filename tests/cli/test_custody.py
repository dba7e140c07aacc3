"""The chain of custody that `job show` prints."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.cli.job.custody import chain_of_custody


@pytest.mark.rule("JOB-012")
@pytest.mark.parametrize(("detail", "says"), [("INVALID_INPUT: line 3", "INVALID_INPUT: line 3"), ("", "ACK_TIMEOUT")])
def test_an_attempt_that_failed_is_shown_with_what_its_provider_said(detail: str, says: str) -> None:
    job: dict[str, Any] = {"height": 1, "event": 2, "enqueue_ms": 3, "caller": "alice", "settled_height": None}
    job |= {"ended_ms": None, "charged": None}
    lease = {"provider_id": "ab" * 32, "id": "cd" * 32, "t_start_ms": 4, "attempt": 0, "acked_ms": None}
    lease |= {"submitted": None, "submitted_ms": None, "status": "CANCELLED", "reason": "ACK_TIMEOUT"}
    lease |= {"detail": detail, "ended_ms": 5}
    *_, last = chain_of_custody({"job": job, "result": None, "attempts": [lease]})
    assert (last.at_ms, last.proof) == (5, f"lease CANCELLED: {says}")
