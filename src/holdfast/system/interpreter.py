"""Settings of the interpreter for a process that owns a journal, or writes its tables."""

from __future__ import annotations

import gc
import sys
from typing import Final

COLLECT_EVERY: Final = 50_000
"""New objects between two collections: rows and events on their way are many, and in no cycle."""
SWITCH_S: Final = 0.0005
"""The thread of the journal needs a moment often; by default it would wait ten times as long for the interpreter."""


def tune_collector() -> None:
    """What was loaded lives long: without this the collector would walk it again and again and stop the loop."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY)


def tune_owner() -> None:
    tune_collector()
    sys.setswitchinterval(SWITCH_S)
