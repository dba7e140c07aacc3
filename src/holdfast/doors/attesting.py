"""Whether an attestation holds (PRV-001): its key, its time and its claims here, its evidence by a plug-in of its name.

`self-signed` is built in. Another one is a function under the entry point group `holdfast.attestors`: it gets the
attestation and whoever verifies Ed25519 signatures, and says why not, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Final

from holdfast.core.provider.decide import support_of
from holdfast.core.refusal import Refused
from holdfast.wire.acts import Attestation, to_sign_attestation

GROUP: Final = "holdfast.attestors"
SELF_SIGNED: Final = "self-signed"
Verify = Callable[[bytes, bytes, bytes], bool]
"""Public key, message, signature."""
Attestor = Callable[[Attestation, Verify], str | None]


def self_signed(told: Attestation, verify: Verify) -> str | None:
    """The provider vouches for itself: worth as much as its stake."""
    return None if verify(told.public, to_sign_attestation(told), told.evidence) else "its signature does not fit"


BUILT_IN: Final[Mapping[str, Attestor]] = {SELF_SIGNED: self_signed}


def attestors() -> dict[str, Attestor]:
    """The built-in one and all that are installed."""
    return {**BUILT_IN, **{each.name: each.load() for each in entry_points(group=GROUP)}}


def why_not_attested(
    told: Attestation, public: bytes, capabilities: bytes, times: tuple[int, int], known: Mapping[str, Attestor]
) -> Refused | None:
    """All that can be said without looking at the evidence; `times` are now and the skew allowed, in milliseconds."""
    now_ms, skew_ms = times
    checks = (
        (told.verifier in known, f"no verifier {told.verifier!r:.40}", f"there are {', '.join(sorted(known))}"),
        (told.public == public, "it is another key's", "attest the key that registers"),
        (told.not_before_ms < told.not_after_ms, "it ends before it begins", ""),
        (now_ms >= told.not_before_ms - skew_ms, "it does not hold yet", "compare the clocks"),
        (now_ms < told.not_after_ms + skew_ms, "it is over", "attest anew"),
        (told.claims == support_of(capabilities), "it claims other capabilities", "attest what is registered"),
    )
    no = next(((says, hint) for holds, says, hint in checks if not holds), None)
    return None if no is None else refused(*no)


def refused(says: str, hint: str = "") -> Refused:
    return Refused("PRV-001", f"attestation: {says}", hint, "AttestationRefused")
