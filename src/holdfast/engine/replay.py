"""The chain computed once more from the journal alone: each header and signature, of orphaned blocks, too (CHN-006)."""

from __future__ import annotations

import msgspec

from holdfast.core import law
from holdfast.core.chain.acts import BlockSealed, BlockUndone
from holdfast.core.chain.blocks import Block, signed_of
from holdfast.core.chain.header import Verify, why_not_next
from holdfast.core.event import Batch, Event, Tip, check_follows, tip_of
from holdfast.core.policy import Policy
from holdfast.core.refusal import Corrupt, Refused
from holdfast.core.state import State
from holdfast.core.values import BatchNo, ChainId
from holdfast.engine.chapters import Progress
from holdfast.engine.longjournal import LongJournal
from holdfast.engine.project import drop_images

_CHANGED = "the journal was changed, or made by another version: holdfast db check says more"


class Replayed(msgspec.Struct):
    """What a replay came to."""

    events: int = 0
    batches: int = 0
    blocks: int = 0
    """Sealed ever; those that were taken back are among them."""
    orphaned: int = 0
    transactions: int = 0
    """On the active chain."""
    height: int = 0
    hash: bytes = b""
    proposers: set[bytes] = msgspec.field(default_factory=set)


async def replay(
    journal: LongJournal, policy: Policy, verify: Verify, progress: Progress | None = None
) -> Replayed | Refused:
    """Fold everything from genesis; Corrupt names the first block that is not what its events give."""
    if floor := await journal.floor():
        says = f"batches 1 to {floor} were deleted from the archive, a replay begins at the first"
        return Refused("CHN-006", says, "bring the chapters back, or replay an export that has them")
    asked, done, state, tip = policy.chain_id, Replayed(), State(policy), Tip()
    end = (await journal.tip()).number
    async for batch in journal.read(BatchNo(0), end):
        tip = _fold(state, tip, batch, verify, done)
        drop_images(state)
        if progress is not None:
            progress(tip)
    if state.policy.chain_id != asked:  # the journal says which policy counted; whoever asks for another is told
        says = f"the journal is of chain {state.policy.chain_id}, not {asked}"
        raise Corrupt("CHN-006", says, "chain_id must be the one the chain was begun with")
    head = state.chain.head
    done.events, done.batches, done.height, done.hash = tip.last, tip.number, head.height, head.hash
    return done


def _fold(state: State, tip: Tip, batch: Batch, verify: Verify, done: Replayed) -> Tip:
    check_follows(tip, batch)
    for event in law.unpack(batch):
        before = state.chain.head
        _undo(state, event, done)
        try:
            law.apply(state, event)  # computes the header again and compares its hash
        except Corrupt:
            raise
        except Exception as fault:
            raise Corrupt("ENG-001", f"event {state.last_event} cannot have happened: {event!r:.200}") from fault
        if isinstance(event, BlockSealed):
            _check(before, state, verify)
            done.blocks += 1
            done.transactions += state.chain.head.tx_count
            done.proposers.add(event.proposer)
    return tip_of(batch)


def _check(before: Block, state: State, verify: Verify) -> None:
    chain_id = ChainId(state.policy.chain_id)
    if why := why_not_next(signed_of(before, chain_id), signed_of(state.chain.head, chain_id), verify):
        raise Corrupt("CHN-006", why, _CHANGED)


def _undo(state: State, event: Event, done: Replayed) -> None:
    if isinstance(event, BlockUndone) and event.hash:
        done.orphaned += 1
        done.transactions -= state.chain.head.tx_count
