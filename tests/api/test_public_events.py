"""Events by their public names: the keys that the sources print, every event in one table or the other, who sees it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from holdfast.api.derived_events import DERIVED
from holdfast.api.http.event_fanout import EventFrame
from holdfast.api.node_access import ANONYMOUS, Principal
from holdfast.api.public_events import (
    ALIASES,
    INTERNAL_EVENTS,
    NAMES_BY_STATUS,
    EventFilter,
    event_filter,
    event_names,
    public_name,
)
from holdfast.core import state_machine
from holdfast.core.archive.messages import BlobArchived, BlobsPruned
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Event
from holdfast.core.base.values import AccountId, Amount, Digest, EventNo, Height, KeyId, LeaseId, ProviderId, TaskId
from holdfast.core.key.messages import KeyRevoked
from holdfast.core.key.model import Role
from holdfast.core.lease.messages import JobAssigned, LeaseClosed, LeaseRenewed
from holdfast.core.lease.model import LeaseStatus
from holdfast.core.proof.messages import ProofAccepted
from holdfast.core.provider.messages import HeartbeatReceived, ProviderSlashed
from holdfast.core.queue.messages import JobCancelled, JobExpired
from holdfast.core.retention.messages import WarmDropped
from holdfast.engine.event_stream import StoredEvent

pytestmark = pytest.mark.rule("EVT-001")
JOB, OAK, LEASE, OUTPUT = TaskId(b"j" * 32), ProviderId(b"p" * 32), LeaseId(b"l" * 32), Digest(b"d" * 32)
ALICE = AccountId("alice")
AUDITOR = Principal("b" * 16, Role.AUDITOR)
COMPLETED = ProofAccepted(
    JOB, LEASE, OAK, Digest(b"n" * 32), OUTPUT, 5, AccountId("oak"), Amount(1), 9_000, Height(9), "attested",
    caller=ALICE, height=Height(4),
)  # fmt: skip
SOURCE: dict[str, tuple[Event, dict[str, object]]] = {
    "jobAssigned": (
        JobAssigned(LEASE, JOB, OAK, 0, 1, 600_001, 360_001, 5_001, 2, 9),
        {"jobId": JOB.hex(), "providerId": OAK.hex(), "leaseId": LEASE.hex(), "deadline": 600_001},
    ),
    "jobCompleted": (
        COMPLETED,
        {"jobId": JOB.hex(), "providerId": OAK.hex(), "leaseId": LEASE.hex(), "digest": OUTPUT.hex()},
    ),
    "jobExpired": (JobExpired(JOB, "TTL", 1), {"jobId": JOB.hex(), "reason": "TTL"}),
    "leaseRenewed": (
        LeaseRenewed(LEASE, 900_001, 1, False, JOB),
        {"leaseId": LEASE.hex(), "deadline": 900_001, "jobId": JOB.hex()},
    ),
    "leaseCancelled": (
        LeaseClosed(LEASE, LeaseStatus.CANCELLED, "ACK_TIMEOUT", 1, True, 2, 0, JOB),
        {"leaseId": LEASE.hex(), "reason": "ACK_TIMEOUT", "jobId": JOB.hex()},
    ),
    "leaseExpired": (
        LeaseClosed(LEASE, LeaseStatus.EXPIRED, "LEASE_EXPIRED", 1, True, 2, 0, JOB),
        {"leaseId": LEASE.hex(), "reason": "LEASE_EXPIRED", "jobId": JOB.hex()},
    ),
    "providerSlashed": (
        ProviderSlashed(OAK, "EQUIVOCATION", Amount(25), "SEVERE", 9, 1, 1),
        {"providerId": OAK.hex(), "reason": "EQUIVOCATION", "penalty": 25},
    ),
    "cap.jobCompleted": (
        COMPLETED,
        {"task_id": JOB.hex(), "result_digest": OUTPUT.hex(), "height_resolved": 4},
    ),
}


def seen(event: Event, view: EventFilter) -> dict[str, Any] | None:
    frame = EventFrame(StoredEvent(EventNo(7), 1_000, event)).for_subscriber(view)
    return None if frame is None else json.loads(frame.json)


def test_every_event_has_a_camel_case_public_name_of_its_own() -> None:
    nameless = [kind.__name__ for kind in state_machine.EVENTS if "public_name" not in vars(kind)]
    assert nameless == []
    assert [
        name for name in map(public_name, state_machine.EVENTS) if not re.fullmatch(r"(cap\.)?[a-z][a-zA-Z]+", name)
    ] == []
    assert set(state_machine.EVENTS) > INTERNAL_EVENTS


def test_no_two_events_share_a_name() -> None:
    told = [public_name(kind) for kind in (*state_machine.EVENTS, *DERIVED)] + [*ALIASES.values()]
    told += [name for statuses in NAMES_BY_STATUS.values() for name in statuses.values()]
    assert len(set(told)) == len(told)
    assert event_names() == sorted(told)


@pytest.mark.parametrize("name", SOURCE)
def test_the_names_of_the_sources_carry_their_keys(name: str) -> None:
    event, keys = SOURCE[name]
    told = seen(event, EventFilter(frozenset({name}), principal=AUDITOR))
    assert told is not None
    assert (told["number"], told["type"]) == (7, name)
    assert told["event"].items() >= keys.items()


def test_one_event_has_one_name_for_who_asks_for_all_and_the_other_for_who_asks_for_it() -> None:
    everything, both = (
        EventFilter(principal=AUDITOR),
        EventFilter(frozenset({"jobCompleted", "cap.jobCompleted"}), principal=AUDITOR),
    )
    for view, name in ((everything, "jobCompleted"), (both, "jobCompleted")):
        told = seen(COMPLETED, view)
        assert told is not None
        assert told["type"] == name
    frame = EventFrame(StoredEvent(EventNo(7), 1_000, COMPLETED))
    under = EventFilter(frozenset({"cap.jobCompleted"}), principal=AUDITOR)
    assert frame.for_subscriber(under) is frame.for_subscriber(under), "encoded once, under this name, too"
    assert seen(SOURCE["leaseExpired"][0], EventFilter(frozenset({"leaseCancelled"}), principal=AUDITOR)) is None


@pytest.mark.rule("SEC-001")
def test_what_is_not_public_is_shown_to_those_who_look_after_the_node_and_to_whom_it_names() -> None:
    public = event_filter(ANONYMOUS, None, is_public=True)
    alice = event_filter(Principal("a" * 16, Role.REQUESTER, ALICE), None, is_public=False)
    auditor = event_filter(Principal("b" * 16, Role.AUDITOR), None, is_public=False)
    assert not isinstance(public, Refused)
    assert not isinstance(alice, Refused)
    assert not isinstance(auditor, Refused)
    for event in (KeyRevoked(KeyId("k"), 1), HeartbeatReceived(OAK, 1, 1)):
        assert [view.fields(event) is not None for view in (public, alice, auditor)] == [False, False, True]
    ended = JobCancelled(JOB, "CANCELLED", 1)
    assert [view.fields(ended) for view in (public, alice)] == [frozenset({"id"}), None]
    assert auditor.fields(ended) == frozenset({"id", "reason", "ended_ms"})
    assert alice.fields(COMPLETED) is not None


@pytest.mark.rule("EVT-002")
def test_that_bytes_of_a_block_are_archived_or_pruned_is_shown_to_every_subscriber() -> None:
    events: dict[str, Event] = {
        "blobArchived": BlobArchived(Height(4), 0, "oak", "ar://x", b"", 1, "SIGNED", b""),
        "blobsPruned": BlobsPruned(Height(4)),
        "cap.warmDropped": WarmDropped(EventNo(9), 1, 5, 0, 0),
    }
    for principal in (ANONYMOUS, Principal("a" * 16, Role.REQUESTER, ALICE)):
        for name, event in events.items():
            shown = EventFilter(frozenset({name}), principal)
            assert (shown.topic(event), shown.fields(event)) == (name, frozenset(event.__struct_fields__))


def test_a_name_that_is_none_is_refused_with_the_nearest() -> None:
    no = event_filter(ANONYMOUS, ["jobAssignd"], is_public=True)
    assert isinstance(no, Refused)
    assert (no.name, no.hint) == ("InvalidParams", "did you mean jobAssigned?")
