"""The run of `make` gives what version 0.3 gave: event numbers and tags, ids, blocks, result leaves and balances.

`pinned_0_3.json` was collected from the code of version 0.3 and is never made again. Jobs and leases stand there with
the event that is their row's key. One thing differs since: version 0.3 made the money of final blocks available and
evicted their records by one event (125); now the former is an event of its own (126), and the latter follows when the
tables hold what leaves. In this run seven of the ten events 125 are 126 today; all numbers stay.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from tests.golden.make import LIVES_OF_0_3, make
from tests.simulation.world import DEVELOPMENT, SimulatedFiles

from holdfast.core import journal_codec
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import BatchNo
from holdfast.core.chain.model import Block
from holdfast.core.job.model import Job
from holdfast.core.lease.model import Lease
from holdfast.core.result.model import LogLeaf
from holdfast.core.state import State
from holdfast.history.archive_segments import SegmentFolder

HERE: Final = Path(__file__).parent
EVENTS_PER_LINE: Final = 40
FINAL_TXS_EVICTED, SETTLEMENTS_FINALIZED = 125, 126


class Collected(msgspec.Struct):
    """What a run gave, in the order in which rows changed batch by batch."""

    tags: list[int] = []
    blocks: list[list[object]] = []
    leaves: list[list[object]] = []
    jobs: dict[int, str] = {}
    """Ids by the event that is the row's key."""
    leases: dict[int, str] = {}
    accounts: list[list[object]] = []

    def add_row(self, key: Any, row: object) -> None:
        match row:
            case Block():
                roots = (row.hash, row.tx_root, row.result_root, row.log_root)
                self.blocks.append([row.height, *(root.hex() for root in roots), row.status.value])
            case LogLeaf():
                self.leaves.append([row.place, row.raw.hex()])
            case Job():
                self.jobs.setdefault(key, row.id.hex())
            case Lease():
                self.leases.setdefault(key, row.id.hex())


async def collect() -> Collected:
    files, collected = SimulatedFiles(), Collected()
    await make(files, LIVES_OF_0_3)
    state, head = State(DEVELOPMENT), JournalHead()
    async for batch in SegmentFolder(files).read(BatchNo(0)):
        tags = [event[0] for event in msgspec.msgpack.decode(batch.body)]
        collected.tags += [FINAL_TXS_EVICTED if tag == SETTLEMENTS_FINALIZED else tag for tag in tags]
        head = journal_codec.fold(state, head, (batch,))
        for rows in state.touched.values():
            for key, row in rows.items():
                collected.add_row(key, row)
            rows.clear()
    accounts = sorted(state.ledger.accounts.values(), key=lambda account: account.owner)
    collected.accounts = [msgspec.to_builtins(account) for account in accounts]
    return collected


@pytest.mark.rule("ENG-001", "ENG-003", "CHN-006", "JOB-001", "LEA-001")
async def test_the_run_gives_exactly_what_version_0_3_gave() -> None:
    collected = await collect()
    pinned = json.loads((HERE / "pinned_0_3.json").read_text())
    tags = collected.tags
    assert [tags[at : at + EVENTS_PER_LINE] for at in range(0, len(tags), EVENTS_PER_LINE)] == pinned["events"]
    assert collected.blocks == pinned["blocks"]
    assert collected.leaves == pinned["leaves"]
    assert collected.accounts == pinned["accounts"]
    assert [list(job) for job in collected.jobs.items()] == pinned["jobs"]
    assert [list(lease) for lease in collected.leases.items()] == pinned["leases"]
