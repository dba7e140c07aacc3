"""Which methods of proof a node knows (PRF-002): those built in, and what is installed beside it under a name.

A package plugs in with entry points: `holdfast.verifiers` for whole methods (a function that takes the checker of
signatures and gives a `Method`), `holdfast.recomputers` for work that `recompute` can do again.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, Final

import structlog

from holdfast.core.proof.finding import Method
from holdfast.verifiers.attested import Verify, attested
from holdfast.verifiers.recompute import recompute
from holdfast.verifiers.settings import VerifierSettings
from holdfast.verifiers.traps import traps

METHODS: Final = "holdfast.verifiers"
RECOMPUTERS: Final = "holdfast.recomputers"
_log = structlog.get_logger()


def methods(verify: Verify, settings: VerifierSettings) -> Mapping[str, Method]:
    """All methods by name. Each judges one proof by itself; what several providers agree on is no matter of these."""
    found = {
        "attested": attested(verify),
        "traps": traps(verify, settings.traps_right_ppm),
        "recompute": recompute(verify, _plugged(RECOMPUTERS), settings.recompute_ppm),
    }
    for name, make in _plugged(METHODS).items():
        if name in found:
            _log.warning("a plug-in has a name that is built in, and is not used", group=METHODS, name=name)
            continue
        found[name] = make(verify)
    return found


def _plugged(group: str) -> dict[str, Any]:
    """What is installed under this name. One that cannot be loaded is named and left out: its jobs have no verifier."""
    loaded: dict[str, Any] = {}
    for entry in entry_points(group=group):
        try:
            loaded[entry.name] = entry.load()
        except Exception as fault:
            _log.warning("a plug-in cannot be loaded", group=group, name=entry.name, because=str(fault))
    return loaded
