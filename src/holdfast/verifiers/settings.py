"""The settings of verifiers (PRF-002): how many run, what one may cost, how much is checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

_Ppm = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class VerifierSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one node. Nodes may differ, since a verdict is journaled and not computed again."""

    processes: int = 2
    """Processes in which verifiers compute."""
    seconds_max: int = 30
    """A verifier that takes longer is killed."""
    memory_mib_max: int = 1_024
    """Memory of one such process, the interpreter included."""
    tries: int = 3
    """How often a proof is checked before its verifier counts as failed."""
    recompute_ppm: int = 1_000_000
    """The share of results proved by `recompute` that is computed again."""
    traps_right_ppm: int = 900_000
    """The share of a circuit's traps that must have the right answer."""


LEAVES: Final[Mapping[str, Any]] = {
    "processes": Annotated[int, msgspec.Meta(ge=1, le=256)],
    "seconds_max": Annotated[int, msgspec.Meta(ge=1, le=86_400)],
    "memory_mib_max": Annotated[int, msgspec.Meta(ge=256, le=1_048_576)],
    "tries": Annotated[int, msgspec.Meta(ge=1, le=10)],
    "recompute_ppm": _Ppm,
    "traps_right_ppm": _Ppm,
}
"""The type and bounds of each setting, by name."""
