"""Checks attestations (PRV-001): key, time and claims here, the evidence by the attestor that the attestation names.

`self-signed` is built in. Others are functions under the entry point group `holdfast.attestors`: a function gets the
attestation and a verifier of Ed25519 signatures, and returns why the evidence is refused, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Final

from holdfast.api.signatures import why_not_signed
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import VerifySignature
from holdfast.core.provider.decide import capabilities_digest
from holdfast.wire.signed_messages import Attestation, to_sign_attestation

ENTRY_POINT_GROUP: Final = "holdfast.attestors"
SELF_SIGNED: Final = "self-signed"
Attestor = Callable[[Attestation, VerifySignature], str | None]


def self_signed(attestation: Attestation, verify: VerifySignature) -> str | None:
    """The provider vouches for itself; its stake is the only security."""
    refusal = why_not_signed(verify, attestation.public, to_sign_attestation(attestation), attestation.evidence)
    return None if refusal is None else refusal.message


BUILT_IN: Final[Mapping[str, Attestor]] = {SELF_SIGNED: self_signed}


def load_attestors() -> dict[str, Attestor]:
    """The built-in attestor and all that are installed."""
    return {**BUILT_IN, **{each.name: each.load() for each in entry_points(group=ENTRY_POINT_GROUP)}}


def why_not_attested(
    attestation: Attestation, public: bytes, capabilities: bytes, times: tuple[int, int], known: Mapping[str, Attestor]
) -> Refused | None:
    """All checks that need not look at the evidence; `times` are now and the allowed skew, in milliseconds."""
    now_ms, skew_ms = times
    checks = (
        (
            attestation.verifier in known,
            f"no verifier {attestation.verifier!r:.40}",
            f"there are {', '.join(sorted(known))}",
        ),
        (attestation.public == public, "it is for another key", "attest the key that registers"),
        (attestation.not_before_ms < attestation.not_after_ms, "it ends before it begins", ""),
        (now_ms >= attestation.not_before_ms - skew_ms, "it is not valid yet", "compare the clocks"),
        (now_ms < attestation.not_after_ms + skew_ms, "it has expired", "make a new one"),
        (
            attestation.claims == capabilities_digest(capabilities),
            "it claims other capabilities",
            "attest what is registered",
        ),
    )
    failed = next(((message, hint) for holds, message, hint in checks if not holds), None)
    return None if failed is None else attestation_refused(*failed)


def attestation_refused(message: str, hint: str = "") -> Refused:
    return Refused("PRV-001", f"attestation: {message}", hint, "AttestationRefused")
