"""The chain of custody that `job show` prints."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.cli.job.custody import LEASE_ENDS, chain_of_custody
from holdfast.engine.metrics.event_metrics import ENDED_WITHOUT_RESULT


@pytest.mark.rule("JOB-012")
@pytest.mark.parametrize(
    ("reason", "detail", "says"),
    [
        ("INVALID_INPUT", "INVALID_INPUT: line 3", "INVALID_INPUT: line 3"),
        ("PROVIDER_FAIL", "PROVIDER_FAIL: exit code 3", "PROVIDER_FAIL: exit code 3"),
        (
            "PROVIDER_FAIL",
            "",
            "PROVIDER_FAIL: the provider could not run it: `holdfast job logs` and its agent's log say more",
        ),
        ("busy", "", "busy"),
    ],
)
def test_an_attempt_that_failed_is_shown_with_what_its_provider_said(reason: str, detail: str, says: str) -> None:
    job: dict[str, Any] = {"height": 1, "event": 2, "enqueue_ms": 3, "caller": "alice", "settled_height": None}
    job |= {"ended_ms": None, "charged": None}
    lease = {"provider_id": "ab" * 32, "id": "cd" * 32, "t_start_ms": 4, "attempt": 0, "acked_ms": None}
    lease |= {"submitted": None, "submitted_ms": None, "status": "CANCELLED", "reason": reason}
    lease |= {"detail": detail, "ended_ms": 5}
    *_, last = chain_of_custody({"job": job, "result": None, "attempts": [lease]})
    assert (last.at_ms, last.proof) == (5, f"lease CANCELLED: {says}")


@pytest.mark.rule("RTY-001")
def test_every_end_of_a_lease_without_a_result_is_explained_in_words() -> None:
    assert LEASE_ENDS.keys() == ENDED_WITHOUT_RESULT
