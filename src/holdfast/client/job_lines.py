"""Many jobs as lines of a bulk request: each has its own nonce and key, drawn once, so that a line can be repeated."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from holdfast.client.answers import JobReceipt
from holdfast.client.errors import NodeRefused

NONCE_MAX: Final = 2**53
"""Nonces are drawn below it: programs in JavaScript hold such numbers exactly."""
LINES_AT_ONCE: Final = 1_000
BYTES_AT_ONCE: Final = 8 << 20
KEY_BYTES: Final = 16


class JobRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One job to enqueue: the parameters of `cap.enqueue`."""

    payload: Mapping[str, Any]
    max_fee: int
    caller: str | None = None
    """The account whose job it is, where an operator enqueues on its behalf."""
    nonce: int | None = None
    idempotency_key: str | None = None
    input: bytes | None = None
    """At most 64 KiB; `payload["input"]` may state their media type, or name an input that was uploaded (JOB-003)."""
    not_before_ms: int = 0
    """Milliseconds since 1970: it is not assigned before (JOB-013); 0 is at once."""


class JobsRefused(Exception):
    """Some jobs of a bulk request were refused; the others of their request are in the queue."""

    def __init__(self, receipts: dict[int, JobReceipt], refused: dict[int, NodeRefused]) -> None:
        first = min(refused)
        super().__init__(
            f"{len(refused)} of {len(refused) + len(receipts)} jobs, the first is {first}: {refused[first]}"
        )
        self.receipts, self.refused = receipts, refused
        """By the place of the job among those that were passed."""


def repeatable(request: JobRequest) -> JobRequest:
    """The same with a nonce and a key: sent twice, it is one job."""
    return msgspec.structs.replace(
        request,
        nonce=secrets.randbelow(NONCE_MAX) if request.nonce is None else request.nonce,
        idempotency_key=request.idempotency_key or secrets.token_hex(KEY_BYTES),
    )


def encode_groups(requests: Iterable[JobRequest]) -> Iterator[dict[int, bytes]]:
    """Lines by their place, as many as one request carries; the next are drawn when these are in the queue."""
    group, size = dict[int, bytes](), 0
    for place, request in enumerate(requests):
        line = msgspec.json.encode(repeatable(request))
        if group and (len(group) >= LINES_AT_ONCE or size + len(line) > BYTES_AT_ONCE):
            yield group
            group, size = {}, 0
        group[place] = line
        size += len(line) + 1
    if group:
        yield group


def windows(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """The items in their order, at most `size` at a time."""
    iterator = iter(items)
    while window := list(islice(iterator, size)):
        yield window
