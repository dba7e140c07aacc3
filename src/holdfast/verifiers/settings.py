"""What an operator may turn about verifiers (PRF-002): how many run, what one may cost, how much is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

_Ppm = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class VerifierSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One node's; another node may have others, since a verdict is journaled and not computed again."""

    processes: int = 2
    """Verifiers that compute run in so many processes at a time."""
    seconds_max: int = 30
    """One that takes longer is killed."""
    memory_mib_max: int = 1_024
    """What one of these processes may take, the interpreter included."""
    tries: int = 3
    """So often a proof is looked at before its verifier counts as broken."""
    recompute_ppm: int = 1_000_000
    """So many of a million results that are proved by `recompute` are computed again."""
    traps_right_ppm: int = 900_000
    """This share of a circuit's traps must have the right answer."""


LEAVES: Final[Mapping[str, Any]] = {
    "processes": Annotated[int, msgspec.Meta(ge=1, le=256)],
    "seconds_max": Annotated[int, msgspec.Meta(ge=1, le=86_400)],
    "memory_mib_max": Annotated[int, msgspec.Meta(ge=256, le=1_048_576)],
    "tries": Annotated[int, msgspec.Meta(ge=1, le=10)],
    "recompute_ppm": _Ppm,
    "traps_right_ppm": _Ppm,
}
"""What can be set, by name."""
