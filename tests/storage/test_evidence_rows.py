"""Evidence on every store: read from any sequence, with tables that lag or not, pruned, and in order afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.simulation.world import SimulatedClock, SimulatedFiles, stop_engine
from tests.storage.stores import JOURNALS, TABLES, Place

from holdfast.api.evidence.reader import SessionReader, dead_letter_bytes
from holdfast.core.base.canonical import H
from holdfast.core.base.event import PAYLOAD_TAG
from holdfast.core.base.values import Digest, EventNo, Network
from holdfast.core.evidence.messages import RejectedRecord, ResolveDeadLetter, StoreEvidence
from holdfast.core.evidence.model import NO_PROVIDER, SessionEnd
from holdfast.core.policy import EvidencePolicy, Policy, UnstakedEvidence
from holdfast.core.state_digest import digest
from holdfast.engine import queries
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted
from holdfast.engine.recover import recover
from holdfast.history.check import check
from holdfast.history.full_journal import FullJournal
from holdfast.workers.evidence_pruner import EvidencePruner

POLICY = msgspec.structs.replace(
    Policy.for_network(Network.DEVELOPMENT),
    evidence=EvidencePolicy(unstaked=UnstakedEvidence.OPEN, retain_days=1, prune_rows_max=3),
)
DAY_MS = 86_400_000


@pytest.fixture(params=["sqlite", "postgres", "simulated"])
async def engine(request: pytest.FixtureRequest, place: Place) -> AsyncIterator[Engine]:
    journal, tables = JOURNALS[request.param](place), TABLES[request.param](place)
    clock = SimulatedClock()
    engine = Engine(journal(), tables(), SimulatedFiles(), clock, POLICY)
    await engine.start()
    yield engine
    await stop_engine(engine)


def lines(first: int, last: int) -> list[bytes]:
    return [b'{"sequence":%d,"text":"%s"}' % (number, b"x" * (40 * number)) for number in range(first, last + 1)]


async def take(engine: Engine, first: int, last: int, session: str = "s1", **told: object) -> None:
    packed = b"\n".join([*lines(first, last), b""])
    outcome = await engine.submit(StoreEvidence(NO_PROVIDER, "c", session, first, last, packed, **told))  # type: ignore[arg-type]
    assert isinstance(outcome, Accepted), outcome


@pytest.mark.rule("EVD-002", "ENG-004", "ENG-007")
@pytest.mark.parametrize("drained", [0, 3, 8], ids=["all in the journal", "some in the tables", "all in the tables"])
async def test_records_are_read_from_any_sequence_on(engine: Engine, drained: int) -> None:
    """The later ones are large and lie beside their batch."""
    for number in range(8):
        await take(engine, 10 * number + 1, 10 * number + 10)
        await take(engine, 10 * number + 1, 10 * number + 10, "s2")
        if number < drained:
            await engine.wait_tables()
    stored = SessionReader(engine, "c", "s1")
    for first, last in [(1, 80), (35, 36), (36, 80), (80, 80), (71, 75), (1, 1), (9, 12)]:
        found = [each async for each in stored.lines(first, last)]
        assert found == list(enumerate(lines(first, last), start=first))
    assert [each async for each in stored.lines(81, 90)] == []


@pytest.mark.rule("EVD-008", "EVD-007", "ENG-003")
async def test_what_is_pruned_leaves_the_tables_and_everything_still_agrees(engine: Engine) -> None:
    raw = b"y" * 5_000
    rejected = (RejectedRecord(2, "Malformed", "no record", raw, len(raw), Digest(H(PAYLOAD_TAG, raw))),)
    for number in range(7):
        await take(engine, 10 * number + 1, 10 * number + 10)
    await take(engine, 71, 80, ending=SessionEnd.TERMINATED)
    await take(engine, 1, 10, "s2", rejected=rejected)
    await engine.wait_tables()
    clock = engine._clock
    assert isinstance(clock, SimulatedClock)
    clock.monotonic += DAY_MS
    pruner = EvidencePruner(engine)
    await pruner.run_once()
    assert pruner.pruned == 80
    (event,) = engine.undurable_state.dead_letters
    assert await dead_letter_bytes(engine, event) == raw
    await engine.submit(ResolveDeadLetter(event, "seen"))
    await engine.wait_tables()
    left = await queries.page(engine, "evidence", {"channel": "c"}, 0, 100)
    assert [(row.session, row.first_sequence) for row in left.rows] == [("s2", 1)]
    marks = await queries.page(engine, "watermark", {"channel": "c"}, "", 100)
    assert [(row.session, row.acked, row.pruned, row.ending) for row in marks.rows] == [
        ("s1", 80, 80, 2),
        ("s2", 10, 0, 0),
    ]
    dead_letters = await queries.page(engine, "dead_letter", {"status": "SETTLED"}, EventNo(0), 100)
    assert [(row.sequence, row.note) for row in dead_letters.rows] == [(2, "seen")]
    long = FullJournal(engine.journal, SimulatedFiles())
    findings = await check(long, engine.tables, SimulatedFiles(), POLICY)
    assert [finding for finding in findings if not finding.is_good] == []
    found = await recover(engine.journal, engine._table_writer, SimulatedFiles(), POLICY)
    assert digest(found.state) == digest(engine.undurable_state)
