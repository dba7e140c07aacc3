"""What inputs of jobs need from the world (JOB-003): bytes by digest, each usable by who uploaded all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, Digest
from holdfast.ports import OutputReader


class AgedInput(NamedTuple):
    """An input that was not used for a while."""

    account: AccountId
    digest: Digest
    is_named: bool
    """Whether a job named it."""


class Inputs(Protocol):
    """Inputs on this node. What one account uploaded is unknown to every other, also where the bytes are the same."""

    async def offset(self, account: AccountId, digest: Digest) -> tuple[int, bool]:
        """How many bytes this account has uploaded, and whether they are all."""
        ...

    async def write(self, account: AccountId, digest: Digest, offset: int, part: bytes) -> Refused | None:
        """Append to an upload at its offset; refused where the offset is another one."""
        ...

    async def finish(self, account: AccountId, digest: Digest, size: int) -> Refused | None:
        """All bytes came: held, durable when this returns None. Bytes of another digest are deleted and refused."""
        ...

    async def put_small(self, account: AccountId, digest: Digest, raw: bytes) -> None:
        """Hold an input that came with its job; durable when this returns. The caller has hashed it."""
        ...

    async def use(self, account: AccountId, digest: Digest) -> int | None:
        """A job is about to name it: its size, or None where this account has not uploaded it."""
        ...

    async def open(self, digest: Digest) -> OutputReader | None:
        """To read it; None where no account has uploaded it."""
        ...

    async def list_aged(self, unnamed_before_ms: int, named_before_ms: int, limit: int) -> Sequence[AgedInput]: ...

    async def touch(self, inputs: Sequence[AgedInput], now_ms: int) -> None:
        """These are in use now."""
        ...

    async def delete(self, inputs: Sequence[AgedInput], unnamed_before_ms: int, named_before_ms: int) -> int:
        """Delete those that were not used meanwhile; returns how many."""
        ...

    async def delete_uploads(self, before_ms: int) -> int:
        """Delete uploads that were not continued since."""
        ...
