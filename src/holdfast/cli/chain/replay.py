"""`holdfast chain replay`: every header computed once more from the node's journal."""

from __future__ import annotations

import asyncio
import time

from holdfast.adapters.keys.signing import verify
from holdfast.cli.chain.look import counted
from holdfast.cli.db.opened import Data, File, Progress, opened
from holdfast.cli.speak import configured, given, told
from holdfast.core.refusal import Refused
from holdfast.engine.replay import Replayed
from holdfast.engine.replay import replay as replay_all


def replay(data: Data = None, config: File = None) -> None:
    """Fold the journal from genesis and compute every header again: roots, beacon, hash, signature.

    Blocks that were taken back are computed, too. It reads beside a running node or without one, from either store and
    from the archive; the first block that is not what its events give is named, with exit code 74.
    """
    settings = configured(config, {"data": data}, with_stores=True)
    progress, began = Progress("replaying"), time.monotonic()

    async def work() -> Replayed | Refused:
        async with opened(settings) as db:
            return await replay_all(db.journal, db.policy, verify, progress)

    with told():
        try:
            done = given(asyncio.run(work()))
        finally:
            progress.end()
        took_s = time.monotonic() - began
        print(f"the journal gives the chain: {counted(done.blocks, 'block')} computed again, {done.orphaned} orphaned")
        print(f"head    {done.height}, {done.hash.hex()}")
        print(f"on it   {counted(done.transactions, 'transaction')}")
        print(f"folded  {done.events} events in {done.batches} batches, {took_s:.1f} s")
        for proposer in sorted(done.proposers):
            print(f"signed  {proposer.hex()}")
