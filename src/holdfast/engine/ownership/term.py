"""The first batch of a term (ENG-001): it says who owns the journal, and how long no node did."""

from __future__ import annotations

from contextlib import suppress

from holdfast.core import journal_codec
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.event import Batch, JournalHead, OwnershipTaken
from holdfast.core.base.values import Term
from holdfast.ports import Journal


def first_batch(head: JournalHead, owner: str, api_address: str, now_ms: int) -> tuple[OwnershipTaken, Batch]:
    """The event and its batch, which follows `head`: no earlier owner can append after it."""
    event = OwnershipTaken(
        term=Term(head.term + 1),
        owner=owner,
        api_address=api_address,
        outage_ms=now_ms - head.time_ms if head.number else 0,
        at_ms=now_ms,
    )
    return event, journal_codec.pack(head, event.term, [event], now_ms)


async def is_replaced(journal: Journal, first: Batch, term: Term) -> bool:
    """ENG-008: whether somebody else owns the journal now. `first` began our `term`, or was to begin a later one.

    The lock says less: it may be held by our own connection, which is ending.
    """
    with suppress(Unavailable):
        tip = await journal.tip()
        return tip.term > first.term or (tip.term == first.term > term and tip.hash != first.hash)
    return False
