"""Stored words are literals: what is on disk and under hashes stays as it is, whatever Python calls it."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from holdfast.core import state_machine
from holdfast.core.base import values
from holdfast.core.chain.model import BlockStatus, TxKind
from holdfast.core.escrow.model import ReservationStatus, TransferKind, TransferStatus
from holdfast.core.evidence.model import DeadLetterStatus, SessionEnd
from holdfast.core.job.model import JobState
from holdfast.core.key.model import Role
from holdfast.core.lease.model import LeaseStatus
from holdfast.core.policy import MatchOrder, Policy, ReadBack
from holdfast.core.proof.messages import VerifierFault
from holdfast.core.provider.model import ProviderStatus
from holdfast.core.result.model import ResultStatus
from holdfast.core.retention.model import Pass
from holdfast.core.schedule.model import ScheduleState
from holdfast.core.state import PARTS
from holdfast.core.tables import TABLES

PINNED: Final = Path(__file__).parent / "stored_words.json"
ENUMS: Final[tuple[type[Enum], ...]] = (
    *(BlockStatus, TxKind, ReservationStatus, DeadLetterStatus, SessionEnd, JobState, Role, LeaseStatus, MatchOrder),
    *(ReadBack, VerifierFault, ProviderStatus, ResultStatus, Pass, values.Kind, values.Tier, values.Network),
    *(TransferKind, TransferStatus, ScheduleState),
)


def policy_fields(kind: type[msgspec.Struct], prefix: str = "") -> list[str]:
    found: list[str] = []
    for field in msgspec.structs.fields(kind):
        is_group = isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
        found += policy_fields(field.type, f"{prefix}{field.name}.") if is_group else [prefix + field.encode_name]
    return found


def words() -> dict[str, Any]:
    """Everything that is stored by name or number, as it is now."""
    return {
        "events": {str(kind.__struct_config__.tag): kind.public_name for kind in state_machine.EVENTS},
        "enums": {kind.__name__: [member.value for member in kind] for kind in ENUMS},
        "parts": [part.stored for part in PARTS],
        "tables": {name: [*table.columns, *table.packed] for name, table in TABLES.items()},
        "policy": policy_fields(Policy),
    }


@pytest.mark.rule("ENG-001", "ENG-003", "ENG-004")
@pytest.mark.parametrize("kind", ["events", "enums", "parts", "tables", "policy"])
def test_stored_words_are_the_pinned_ones(kind: str) -> None:
    """New ones are added to the file by hand; a changed or missing one is a format that old data does not have."""
    assert words()[kind] == json.loads(PINNED.read_text("utf-8"))[kind]


@pytest.mark.rule("ENG-004")
def test_every_column_is_a_field_of_its_record() -> None:
    for name, table in TABLES.items():
        assert len(table.columns) == len(table.record.__struct_fields__), name


@pytest.mark.rule("ENG-003")
def test_every_part_of_the_state_has_a_stored_name_of_its_own() -> None:
    assert len({part.stored for part in PARTS}) == len(PARTS) == len({part.path for part in PARTS})
