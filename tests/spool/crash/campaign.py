"""Which histories are walked through on which layout: a share of them every day, very many in full."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from tests.spool.crash.actions import histories
from tests.spool.crash.explore import Explorer
from tests.spool.crash.spool_run import Setup

from holdfast.spool import Mode, SpoolPolicy

logging.getLogger("holdfast.spool").setLevel(logging.CRITICAL)  # a full disk is no news here

CAPPED = SpoolPolicy(channel_bytes_max=3_500, reserve_bytes=1_000)
ROOMY = SpoolPolicy(channel_bytes_max=1 << 20, reserve_bytes=600)
SETUPS = {
    setup.name: setup
    for setup in (
        Setup("plain"),
        Setup("segments", 600),
        Setup("one-segment", 4_096),
        Setup("always-near-window", None, mode=Mode.ALWAYS, window=64),
        Setup("capped", None, CAPPED),
        Setup("capped-segments", 600, CAPPED),
        Setup("full-disk", None, ROOMY, capacity=2_600),
        Setup("full-disk-segments", 600, ROOMY, capacity=3_000),
    )
}


class Plan(NamedTuple):
    """For one setup: in which words it crashes at every point, in which every call fails, in which writes are torn."""

    crashes: tuple[str, ...]
    """At every call of the last action, in every way; and once more at every call of the recovery."""
    faults: tuple[str, ...] = ()
    """Each call of the last action fails, in every way; from then on the power or the process may fail, too."""
    torn: tuple[str, ...] = ()
    """Every write of the last action, at every byte."""
    tears: int = 1
    """In how many places a write is torn elsewhere, besides the ends of its lines."""


SHORT = tuple(histories("EBHT", 2))
LONGER = ("oBHC", "oBHX", "oBAL", "oBHF", "oBHCE", "oBHCK")
"""Whole acks, late acks, compaction and what follows them."""
TWO_SESSIONS = ("oEN", "oEFAN", "oEFN", "oENE")
"""One that is kept, one that may go, one that is finished and not delivered, one beside which another is written."""
AT_THE_CAP = ("oBBO", "oOA", "oON", "oOAEE")

EVERY_DAY = {
    "plain": Plan((*SHORT, *LONGER, *TWO_SESSIONS), ("o", "oE", "oBHC"), ("oE", "oB")),
    "segments": Plan(
        (*histories("EHT", 2), "oB", "oBE", "oTB", "oXTA", *LONGER, *TWO_SESSIONS[:3]),
        ("o", "oE", "oEFAN"),
        ("oE", "oB"),
    ),
    "one-segment": Plan(("o", "oE", "oB", "oBT", "oTE", "oBHX"), ("oE",), ("oE",)),
    "always-near-window": Plan(("o", "oE", "oBB", "oBT"), ("oE",), ("oE",)),
    "capped": Plan((*AT_THE_CAP, "oEEEBB", "oEFANE"), ("oOA",)),
    "capped-segments": Plan(AT_THE_CAP, ("oOA",)),
    "full-disk": Plan(AT_THE_CAP, ("oOA",)),
    "full-disk-segments": Plan(AT_THE_CAP, ("oOA",)),
}

COMMON, SOME, CLOSE_TO_THE_CAP = "EBAHLCXRKTUFN", "EBHCXF", "EAHCRTOFN"
TWO, NEAR, FAULTS = tuple(histories(COMMON, 2)), tuple(histories(CLOSE_TO_THE_CAP, 2)), tuple(histories(SOME, 2))
THREE = (*TWO, *histories("EBAHCXRTFN", 3), *LONGER, *TWO_SESSIONS)
TORN = tuple(histories("EBXF", 3))

IN_FULL = {
    "plain": Plan(THREE, FAULTS, TORN),
    "segments": Plan(THREE, FAULTS, TORN),
    "one-segment": Plan((*TWO, *LONGER), tuple(histories(SOME, 1)), TORN),
    "always-near-window": Plan((*TWO, *LONGER), tuple(histories(SOME, 1)), TORN),
    "capped": Plan((*NEAR, *AT_THE_CAP, "oEEEBB", "oEFANO"), ("oO", "oOA"), ("oO",)),
    "capped-segments": Plan((*NEAR, *AT_THE_CAP, "oEFANO"), ("oO", "oOA"), ("oO",)),
    "full-disk": Plan((*NEAR, *AT_THE_CAP, "oEFANO"), ("oOA",), ("oO",)),
    "full-disk-segments": Plan((*NEAR, *AT_THE_CAP, "oEFANO"), ("oOA",), ("oO",)),
}


def steps(explorer: Explorer, plan: Plan) -> Iterator[tuple[str, Callable[[], object]]]:
    """What a plan says, in order, each word once."""
    walks = (("crashes", explorer.explore), ("faults", explorer.faults), ("torn writes", explorer.torn))
    for (what, walk), chosen in zip(walks, plan[:3], strict=True):
        for word in dict.fromkeys(chosen):
            yield f"{what} in {word}", partial(walk, word)


def explore(setup: Setup, plan: Plan) -> Explorer:
    """All of a plan; a broken invariant is raised, with the walk in which it did not."""
    explorer = Explorer(setup, plan.tears)
    with rare_gc():
        for says, step in steps(explorer, plan):
            try:
                step()
            except AssertionError as broken:
                broken.add_note(f"{setup.name}: {says}")
                raise
    return explorer


@contextmanager
def rare_gc() -> Iterator[None]:
    """Tens of thousands of spools come and go: looking for their garbage each time would take a third of the run."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
