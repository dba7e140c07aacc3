"""Signatures of many messages, verified in groups before the messages are checked one after the other (NTC-002).

One signature takes longer than all other checks of a notice. So they are verified in processes, some groups at a time,
and the checks that follow ask for the answer. Their order and their refusals stay as they are, and messages are taken
in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import structlog

from holdfast.core.archive.confirm import ack_root
from holdfast.core.archive.notice import ArchiveNotice, notice_root
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import VerifySignature
from holdfast.core.validator.model import AddressOf, ValidatorSet
from holdfast.ports.sync import Signatures, SignedBytes
from holdfast.wire.peer_messages import NoticeConfirmation

FEW: Final = 8
"""Fewer are verified here, in about a millisecond: a call to a process costs as much."""
GROUP_MAX: Final = 64
"""Messages that are decoded and checked before others get a turn, and signatures of one call."""
AHEAD_MAX: Final = 8
"""Groups whose signatures are verified at a time, however many messages a sender sends."""
PeerMessage = ArchiveNotice | NoticeConfirmation
_log = structlog.get_logger()


async def take_in_groups(messages: Sequence[bytes], take: Callable[[Sequence[bytes]], Awaitable[None]]) -> None:
    """All messages of a sender: while one group is checked the signatures of the next are verified."""
    groups = [messages[start : start + GROUP_MAX] for start in range(0, len(messages), GROUP_MAX)]
    for start in range(0, len(groups), AHEAD_MAX):
        await asyncio.gather(*(take(group) for group in groups[start : start + AHEAD_MAX]))


class SignatureGroups:
    """One node's way to verify what peers have signed. Without processes signatures are verified here, in steps."""

    def __init__(self, signatures: Signatures | None, verify: VerifySignature, address_of: AddressOf) -> None:
        self._signatures, self._verify, self._address_of = signatures, verify, address_of
        self._taking = asyncio.Lock()

    @asynccontextmanager
    async def in_order(
        self, validators: ValidatorSet, messages: Iterable[PeerMessage]
    ) -> AsyncIterator[VerifySignature]:
        """While messages are taken: how their signatures are verified. Others wait, those that came first first."""
        verifying = asyncio.ensure_future(self.verify_ahead(validators, messages))
        try:
            async with self._taking:
                yield await verifying
        finally:
            verifying.cancel()

    async def verify_ahead(self, validators: ValidatorSet, messages: Iterable[PeerMessage]) -> VerifySignature:
        """`verify`, with the answers about these messages at hand; of who is no validator none is needed."""
        signed = [each for message in messages if (each := self._signed(validators, message)) is not None]
        if len(signed) < FEW:
            return self._verify
        groups = [signed[start : start + GROUP_MAX] for start in range(0, len(signed), GROUP_MAX)]
        answers = await asyncio.gather(*(self._answers(group) for group in groups))
        known = dict(zip(signed, (is_good for group in answers for is_good in group), strict=True))

        def verify(key: bytes, message: bytes, signature: bytes) -> bool:
            is_good = known.get(SignedBytes(key, message, signature))
            return self._verify(key, message, signature) if is_good is None else is_good

        return verify

    def _signed(self, validators: ValidatorSet, message: PeerMessage) -> SignedBytes | None:
        if isinstance(message, NoticeConfirmation):
            is_known = message.key in validators.since
            return SignedBytes(message.key, ack_root(message.root), message.signature) if is_known else None
        key = validators.key_at(message.height, message.archived_by, self._address_of)
        return None if key is None else SignedBytes(key, notice_root(message), message.signature)

    async def _answers(self, group: Sequence[SignedBytes]) -> list[bool]:
        if self._signatures is not None:
            try:
                return await self._signatures.verify_signatures(group)
            except Unavailable as fault:
                _log.warning("signatures_verified_here", reason=str(fault))
        answers = list[bool]()
        for start in range(0, len(group), FEW):
            answers += [self._verify(*each) for each in group[start : start + FEW]]
            await asyncio.sleep(0)  # others get a turn
        return answers
