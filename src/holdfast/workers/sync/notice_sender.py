"""Sends the notices of this node's records (NTC-004): at once, and again until every validator has confirmed them.

It also tells which heights wait for a key that is no validator any more (NTC-005).
"""

from __future__ import annotations

from typing import Final

import structlog

from holdfast.core.archive.confirm import missing_validators
from holdfast.core.archive.decide import pending_under_old_keys
from holdfast.core.base.values import Height
from holdfast.core.blob.model import Blob, BlobStatus, all_blobs, live_blob, place_of
from holdfast.engine.loop import Engine
from holdfast.engine.queries.archive.stored_blobs import stored_blobs
from holdfast.ports.sync import Peers
from holdfast.wire.peer_messages import encode_message
from holdfast.workers.sync.owner_service import OwnerService

INTERVAL_MS: Final = 500
ALARM_MS: Final = 600_000
"""How often an alarm is repeated."""
_log = structlog.get_logger()


class NoticeSender:
    """One run: new records, and those whose confirmations are overdue."""

    starts_at_once = True
    interval_ms = INTERVAL_MS

    def __init__(self, engine: Engine, service: OwnerService, peers: Peers) -> None:
        self._engine, self._service, self._peers = engine, service, peers
        self._sent_ms: dict[bytes, int] = {}
        """When each notice was sent last, by the place of its blob; a restart sends what is unconfirmed again."""
        self._alarmed_ms: int | None = None
        self.sent = 0

    async def run_once(self) -> None:
        now_ms = self._engine.now_ms()
        self._tell_pending(now_ms)
        if not self._peers.names():
            return
        state, due_ms = self._engine.undurable_state, now_ms - self._engine.policy.archive.notice_resend_ms
        new = {place_of(live.blob.height, live.blob.number) for live in all_blobs(state) if _is_archived(live.blob)}
        unconfirmed = {place for place, each in state.notices_unconfirmed.items() if missing_validators(state, each)}
        self._service.forget_sent(except_=unconfirmed)
        for place in sorted(new | unconfirmed):
            last_ms = self._sent_ms.get(place)
            if last_ms is None or (place in unconfirmed and last_ms <= due_ms):
                await self._send(place, now_ms)
        self._sent_ms = {place: ms for place, ms in self._sent_ms.items() if place in new or place in unconfirmed}

    async def _send(self, place: bytes, now_ms: int) -> None:
        height, number = Height(int.from_bytes(place[:8], "big")), int.from_bytes(place[8:], "big")
        live = live_blob(self._engine.undurable_state, height, number)
        if live is None:  # its bytes are gone, and it has left memory
            live = next((each for each in await stored_blobs(self._engine, height) if each.blob.number == number), None)
        notice = None if live is None else self._service.notice_of(live.blob)
        self._sent_ms[place] = now_ms
        if notice is not None:
            self._service.record_sent(place)
            await self._peers.broadcast(encode_message(notice))
            self.sent += 1

    def _tell_pending(self, now_ms: int) -> None:
        """NTC-005: the alarm names the key and the heights."""
        pending = pending_under_old_keys(self._engine.undurable_state)
        if not pending:
            self._alarmed_ms = None
        elif self._alarmed_ms is None or now_ms - self._alarmed_ms >= ALARM_MS:
            self._alarmed_ms = now_ms
            for key, heights in pending.items():
                _log.error("old_key_pending", key=key.hex(), heights=heights[:100], count=len(heights))


def _is_archived(blob: Blob) -> bool:
    return blob.status is BlobStatus.ARCHIVED and not blob.is_pruned
