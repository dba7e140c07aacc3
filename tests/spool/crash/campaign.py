"""Which histories are walked through on which layout: a share every day, many more in full."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from tests.spool.crash.cuts import contents
from tests.spool.crash.disk import ROOT, Content, SimulatedDisk
from tests.spool.crash.explore import Explorer, words
from tests.spool.crash.laws import Broken, Promises
from tests.spool.crash.life import CHANNEL, Life, Setup
from tests.spool.crash.rot import Rot

from holdfast.spool import Mode, Spool, SpoolPolicy, channel
from holdfast.spool.names import Place

logging.getLogger("holdfast.spool").setLevel(logging.CRITICAL)  # a full disk is no news here

CAPPED = SpoolPolicy(channel_bytes_max=3_500, reserve_bytes=1_200)
ROOMY = SpoolPolicy(channel_bytes_max=1 << 20, reserve_bytes=600)
PLAIN, SEGMENTS, ONE = Setup("plain"), Setup("segments", 600), Setup("one-segment", 4_096)
SETUPS = {
    setup.name: setup
    for setup in (
        PLAIN,
        SEGMENTS,
        ONE,
        Setup("always-near-window", None, mode=Mode.ALWAYS, window=64),
        Setup("capped", None, CAPPED),
        Setup("capped-segments", 600, CAPPED),
        Setup("full-disk", None, ROOMY, capacity=2_600),
        Setup("full-disk-segments", 600, ROOMY, capacity=3_000),
    )
}
COMMON, AT_THE_CAP = "EBAHLCXRKTUF", "EAHCRTOF"


class Plan(NamedTuple):
    """For one setup: which letters, how long the words of crashes and of faults, in how many places a write is torn."""

    letters: str
    crashes: int
    faults: int
    tears: int


EVERY_DAY = {
    "plain": Plan("EBHT", 2, 1, 1),
    "segments": Plan("EBHT", 2, 1, 1),
    "one-segment": Plan("EBT", 2, 1, 1),
    "always-near-window": Plan("B", 2, 1, 1),
}


def plan(setup: Setup, *, full: bool) -> Plan:
    """In full all words of three deeds, every day those of two, of fewer kinds."""
    is_roomy = setup.policy not in (CAPPED, ROOMY)
    if full:
        return Plan(COMMON, 3, 2, 2) if is_roomy else Plan(AT_THE_CAP, 3, 2, 2)
    return EVERY_DAY.get(setup.name, Plan("AO", 2, 0, 1))


LONGER = ("oBHC", "oBHX", "oBAL", "oBHCE", "oBHF", "oBHCK")
"""Longer words that are always walked: whole acks, late acks, compaction and what follows them."""
ROTTEN = ("oBEBE", "oBEHE", "oBAXEE", "oTEEB")


def steps(explorer: Explorer, chosen: Plan) -> Iterator[tuple[str, Callable[[], object]]]:
    """The shortest words first, then the chosen longer ones, then all others; each with its crashes and its faults."""
    every = list(words(chosen.letters, max(chosen.crashes, chosen.faults)))
    is_chosen = explorer.setup in (PLAIN, SEGMENTS) or chosen.crashes > 2
    longer = [word for word in LONGER if is_chosen and word not in every]
    for word in sorted(every + longer, key=lambda word: (len(word) > 2, word not in LONGER, len(word))):
        if len(word) <= chosen.crashes + 1 or word in longer:
            yield f"crashes in {word}", partial(explorer.history, word)
        if len(word) <= chosen.faults + 1 or word in longer:
            yield f"faults in {word}", partial(explorer.faults, word)


def explored(setup: Setup, chosen: Plan) -> Explorer:
    """All of a plan; a law that does not hold is raised."""
    explorer = Explorer(setup, chosen.tears)
    with collecting_rarely():
        for _, step in steps(explorer, chosen):
            step()
    return explorer


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Tens of thousands of spools come and go: looking for their garbage each time would take a third of the run."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


DELETED = ("oEFA", "oBFA", "oBHFA")
"""Finished, and every record acked: the next session of the channel lets go of it."""


def deletion(setup: Setup, word: str) -> set[Content]:
    """Open another session beside a finished one; whatever a crash leaves, the old one is finished or gone."""
    ended = Explorer(setup, 1).lived(word)
    ended.close()
    found: set[Content] = set()
    other = Life(setup._replace(name="other"), ended.disk, Promises())
    other.point = lambda: found.update(contents(ended.disk, 1))
    assert isinstance(other.opened(), Spool)
    for content in found:
        disk = SimulatedDisk(content)
        for session in channel.sessions(disk, ROOT / CHANNEL):
            standing = channel.standing(disk, Place(ROOT / CHANNEL, CHANNEL, session))
            if session == setup.name and not (standing.is_finished and standing.may_go):
                raise Broken("what is let go of never looks unfinished", repr(sorted(dict(content))))
    if setup.name in channel.sessions(ended.disk, ROOT / CHANNEL):
        raise Broken("what may go is let go of", "it is still there")
    return found


def rotten(setup: Setup, every: int) -> Rot:
    """Damage in what each of these histories leaves; of so many bytes one gets a bit flipped."""
    rot = Rot(setup, every)
    for word in ROTTEN:
        rot.damaged(word)
    return rot
