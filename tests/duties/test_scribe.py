"""The scribe: every record once in the as-run log of its channel, whatever is let go of or broken meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.doors.agents import House, housed
from tests.doors.legacy_sender import Air
from tests.simulated.world import DEVELOPMENT, SimulatedFiles, World

from holdfast.core.evidence.marks import Mark
from holdfast.core.evidence.sessions import PruneEvidence
from holdfast.core.policy import EvidencePolicy
from holdfast.doors.stored import kept_records
from holdfast.duties.scribe import Scribe
from holdfast.engine import read
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted

pytestmark = pytest.mark.rule("EVD-009")
AT_ONCE = msgspec.structs.replace(DEVELOPMENT, evidence=EvidencePolicy(retain_days=0))


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with housed(tmp_path, World(AT_ONCE)) as house:
        yield house


async def told(house: House, channel: str) -> None:
    """A session of four records in several rows, with its end."""
    air = Air(house, channel)
    stream = await air.greeted()
    for first in (1, 3):
        await stream.say(*air.some(first, first + 1))
        await stream.until(first + 1)
    await stream.say(air.message(5, "channel_terminated"))
    await stream.until(5)
    await house.engine.projector.drain()


async def prune_first(house: House, channel: str) -> None:
    page = await read.page(house.engine, "evidence", {"channel": channel}, 0, 1)
    row = page.rows[0]
    outcome = await house.engine.submit(PruneEvidence(channel, row.session, row.last_sequence, (row.event,)))
    assert isinstance(outcome, Accepted)
    await house.engine.projector.drain()


def written(files: SimulatedFiles) -> list[int]:
    raw = b"".join(content for name, content in sorted(files.files.items()) if name.endswith(".jsonl"))
    return sorted(msgspec.json.decode(line)["sequence"] for line in raw.splitlines())


@pytest.mark.rule("EVD-008")
async def test_records_that_are_let_go_of_while_they_are_read_are_no_hole_in_the_rest(house: House) -> None:
    await told(house, "classic-1")
    asked = list[int]()

    async def lines(engine: Engine, mark: Mark, first: int, last: int) -> AsyncIterator[tuple[int, bytes]]:
        if not asked:
            await prune_first(house, "classic-1")  # the weeder was faster
        asked.append(first)
        async for found in kept_records(engine, mark, first, last):
            yield found

    folders: dict[str, SimulatedFiles] = defaultdict(SimulatedFiles)
    await Scribe(house.engine, house.world.clock, folders.__getitem__, lines).look()
    first, again = asked
    assert 1 == first < again < 4
    assert written(folders["classic-1"]) == list(range(again, 6))


@pytest.mark.parametrize(
    ("name", "raw"), [("written.json", b"{"), ("1970-01-01.asrun.jsonl", b"a remark\n"), ("1970-01-01.asrun", b"\xff")]
)
async def test_a_log_that_somebody_has_changed_keeps_no_other_one(house: House, name: str, raw: bytes) -> None:
    folders: dict[str, SimulatedFiles] = defaultdict(SimulatedFiles)
    for channel in ("classic-1", "classic-2"):
        await told(house, channel)
    folders["classic-1"].files[name] = raw
    scribe = Scribe(house.engine, house.world.clock, folders.__getitem__, kept_records)
    await scribe.look()
    assert folders["classic-1"].files[name] == raw
    assert written(folders["classic-2"]) == [1, 2, 3, 4, 5]
    del folders["classic-1"].files[name]
    await scribe.look()
    assert written(folders["classic-1"]) == [1, 2, 3, 4, 5]
