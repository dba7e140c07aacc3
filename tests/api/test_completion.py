"""From a proof to the command that hands it in: what is no proof, or none that the node could keep, is refused."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.api.completion import BODY_BYTES_MAX, build_completion
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import ProviderId
from holdfast.core.proof.envelope import Envelope, body_of, read_body
from holdfast.core.proof.messages import SubmitCompletion
from holdfast.core.result import result_digest
from holdfast.engine.queries.jobs import AttemptsInMemory

OUT = b"out"
ID = ProviderId(b"p" * 32)


class OneOutputBlobs:
    """A warm tier that holds one output."""

    async def size(self, digest: bytes) -> int | None:
        return len(OUT) if digest == result_digest(OUT) else None

    async def was_sent(self, lease_id: bytes, digest: bytes) -> bool:
        return True


class NoJobs:
    """A node that knows no lease."""

    async def query_durable(self, _: object) -> AttemptsInMemory:
        return AttemptsInMemory([], are_all=True)


def proof(metrics: dict[str, Any], size: int = len(OUT)) -> Envelope:
    body = body_of(b"t" * 32, b"l" * 32, ID, result_digest(OUT), size, metrics)
    return Envelope(1, "attested", body, b"s" * 64)


@pytest.mark.rule("PRF-001", "ENG-007")
@pytest.mark.parametrize(("more", "is_taken"), [(-1, True), (0, True), (1, False), (4 << 20, False)])
async def test_a_proof_has_a_size_limit(more: int, is_taken: bool) -> None:
    """It is kept in memory and in its batch: metrics of some mebibytes would be, too."""
    filled = BODY_BYTES_MAX - len(proof({"a": "x" * 1_000}).body) + 1_000
    told = proof({"a": "x" * (filled + more)})
    assert len(told.body) == BODY_BYTES_MAX + more or more == 4 << 20
    read_body.cache_clear()
    found = await build_completion(OneOutputBlobs(), NoJobs(), ID, told)  # type: ignore[arg-type]
    assert isinstance(found, SubmitCompletion) == is_taken
    if isinstance(found, Refused):
        assert (found.rule, found.name) == ("PRF-001", "TooLarge")
        assert read_body.cache_info().currsize == 0


@pytest.mark.rule("RCV-001")
async def test_a_result_is_submitted_only_with_the_bytes_that_it_names() -> None:
    no = await build_completion(OneOutputBlobs(), NoJobs(), ID, proof({}, size=4))  # type: ignore[arg-type]
    assert isinstance(no, Refused)
    assert no.rule == "RCV-001"
