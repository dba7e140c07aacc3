"""Whether the large payloads that events speak of lie beside their batch, whole (ENG-007)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.core.canon import H
from holdfast.core.event import PAYLOAD_TAG, Attachment, Event, Payload

Spoken = tuple[int, Payload]
"""Number of an event, and a payload that it names by digest only."""


def spoken_of(first: int, events: Iterable[Event]) -> Iterator[Spoken]:
    """The payloads that must lie beside the batch whose events these are."""
    for number, event in enumerate(events, start=first):
        for name in event.__struct_fields__:
            value = getattr(event, name)
            if isinstance(value, Payload) and value.inline is None:
                yield number, value


def not_there(spoken: Iterable[Spoken], attached: Iterable[Attachment]) -> Iterator[str]:
    """Which of them are missing or are not the bytes that were meant, each in a few words."""
    raw_of = {each.digest: each.raw for each in attached}
    for number, payload in spoken:
        raw = raw_of.get(payload.digest)
        if raw is None:
            yield f"the payload of event {number} is missing"
        elif len(raw) != payload.size or H(PAYLOAD_TAG, raw) != payload.digest:
            yield f"the payload of event {number} is damaged"
