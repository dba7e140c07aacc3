"""The chain recomputed from the journal alone: every header and signature, also of orphaned blocks (CHN-006)."""

from __future__ import annotations

import msgspec

from holdfast.core import journal_codec
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.event import Batch, Event, JournalHead, check_follows, head_of
from holdfast.core.base.values import BatchNo, ChainId, Height, VerifySignature
from holdfast.core.chain.header import why_not_next
from holdfast.core.chain.messages import BlockRolledBack, BlockSealed, RollbackStarted
from holdfast.core.chain.model import Block, signed_of
from holdfast.core.policy import Policy
from holdfast.core.state import State
from holdfast.history.archive_segments import ProgressCallback
from holdfast.history.full_journal import FullJournal

_CHANGED = "the journal was changed, or made by another version: run holdfast db check"


class ReplayReport(msgspec.Struct):
    """The outcome of a replay."""

    events: int = 0
    batches: int = 0
    blocks: int = 0
    """All that were ever sealed, including those that were rolled back."""
    orphaned: int = 0
    transactions: int = 0
    """On the active chain."""
    height: int = 0
    hash: bytes = b""
    proposers: set[bytes] = msgspec.field(default_factory=set)


async def replay(
    journal: FullJournal, policy: Policy, verify: VerifySignature, progress: ProgressCallback | None = None
) -> ReplayReport | Refused:
    """Fold everything from genesis; Corrupt names the first block whose events do not give its header."""
    if trimmed := await journal.trimmed_until():
        message = f"batches 1 to {trimmed} were deleted from the archive, a replay begins at the first"
        return Refused("CHN-006", message, "bring the segments back, or replay an export that has them")
    expected, report, state, head = policy.chain_id, ReplayReport(), State(policy), JournalHead()
    end = (await journal.tip()).number
    state.record_nothing()
    async for batch in journal.read(BatchNo(0), end):
        head = _fold(state, head, batch, verify, report)
        if progress is not None:
            progress(head)
    if state.policy.chain_id != expected:  # the fold adopted the policy in the journal
        message = f"the journal is of chain {state.policy.chain_id}, not {expected}"
        raise Corrupt("CHN-006", message, "chain_id must be that of the chain's first block")
    block = state.chain.head
    report.events, report.batches, report.height, report.hash = head.last, head.number, block.height, block.hash
    return report


def _fold(state: State, head: JournalHead, batch: Batch, verify: VerifySignature, report: ReplayReport) -> JournalHead:
    check_follows(head, batch)
    for event in journal_codec.unpack(batch):
        before = state.chain.head
        _count_orphaned(state, event, report)
        journal_codec.apply_stored(state, event)  # recomputes the header and compares its hash
        if isinstance(event, BlockSealed):
            _check_header(before, state, verify)
            report.blocks += 1
            report.transactions += state.chain.head.tx_count
            report.proposers.add(event.proposer)
    return head_of(batch)


def _check_header(before: Block, state: State, verify: VerifySignature) -> None:
    chain_id = ChainId(state.policy.chain_id)
    if reason := why_not_next(signed_of(before, chain_id), signed_of(state.chain.head, chain_id), verify):
        raise Corrupt("CHN-006", reason, _CHANGED)


def _count_orphaned(state: State, event: Event, report: ReplayReport) -> None:
    """A rollback in steps orphans all its blocks when it starts; one decision orphans them one by one."""
    chain = state.chain
    height = event.height if isinstance(event, RollbackStarted) else None
    if isinstance(event, BlockRolledBack) and event.hash and chain.head.height == event.height:
        height = Height(event.height - 1)
    if height is not None:
        orphaned = [sealed.block for at, sealed in chain.unfinalized.items() if height < at <= chain.head.height]
        report.orphaned += len(orphaned)
        report.transactions -= sum(block.tx_count for block in orphaned)
