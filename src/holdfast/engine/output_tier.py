"""Where the bytes of an accepted output go besides the warm tier (TIER-001, DA-001)."""

from __future__ import annotations

import msgspec

from holdfast.core.base.values import AccountId
from holdfast.core.proof.messages import RecordVerdict
from holdfast.lightclient.da import commitment_of


def attach_bytes(verdict: RecordVerdict, caller: AccountId, output: bytes, inline_max: int) -> RecordVerdict:
    """TIER-001: small outputs go into the store, too, if policy says so; DA-001: larger ones get a commitment."""
    if len(output) <= inline_max:
        return msgspec.structs.replace(verdict, output=output if inline_max else None)
    return msgspec.structs.replace(verdict, da_commitment=commitment_of(caller.encode(), output))
