"""What agents sign and nodes verify (PRV-003): the messages, and the bytes that are signed."""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

import msgspec

from holdfast.core.base.canonical import H, NotCanonical, canonical, decode
from holdfast.core.base.errors import Refused

REGISTER_TAG: Final = "holdfast.register.v1"
OPEN_TAG: Final = "holdfast.open.v1"
ACTS_TAG: Final = "holdfast.acts.v1"
OUTPUT_TAG: Final = "holdfast.output.v1"
GET_INPUT_TAG: Final = "holdfast.getinput.v1"
EVIDENCE_TAG: Final = "holdfast.evidence.v1"
DECLARE_TAG: Final = "holdfast.declare.v1"
ATTESTATION_TAG: Final = "holdfast.attestation.v1"
FAIL_TAG: Final = "holdfast.fail.v1"
ACCEPT_TAG: Final = "holdfast.accept.v1"
OUTPUT_INLINE_BYTES_MAX: Final = 16 << 10
"""An output up to this size may come with the record that completes its lease; a larger one is uploaded before."""


class Attestation(msgspec.Struct, frozen=True):
    """PRV-001: a statement that a key has these capabilities and versions for this time."""

    verifier: str
    """The verifier whose rules the evidence is checked by."""
    public: bytes
    not_before_ms: int
    not_after_ms: int
    claims: bytes
    """Digest of the capabilities."""
    versions: str = ""
    evidence: bytes = b""


class Registration(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a provider registers."""

    nonce: bytes
    public: bytes
    name: str
    account: str
    capabilities: dict[str, dict[str, Any]]
    region: str
    price: int | dict[str, int]
    """Of a unit of work; a map has it by model, and that of all others under `*`."""
    slots: int
    attested_until_ms: int
    attestation: Attestation | None = None
    invitation: bytes = b""
    """The secret of an operator's invitation, and when it ends (SEC-002)."""
    invitation_expires_ms: int = 0
    instance: bytes = b""
    """Tells the agent's folder from every other one (RCV-002)."""


class Declaration(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of: drain, undrain, retire, unstake, rotate; the fields that it needs are set."""

    nonce: bytes
    public: bytes
    act: str
    reason: str = ""
    amount: int = 0
    request: bytes = b""
    new_public: bytes = b""


class AgentAct(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of: ack, renew, decline, beat; the fields that it needs are set."""

    act: str
    lease_id: bytes = b""
    renewal: int = 0
    reason: str = ""
    slots: int = 0
    load: int = 0
    versions: str = ""
    support: bytes = b""


class ActBatch(msgspec.Struct, frozen=True):
    """Several acts on one stream. The count prevents a replay."""

    nonce: bytes
    count: int
    acts: list[AgentAct]


def pack_message(value: Registration | Declaration | ActBatch) -> bytes:
    """The canonical body that is signed."""
    return canonical(msgspec.to_builtins(value, builtin_types=(bytes,)))


S = TypeVar("S", Registration, Declaration, ActBatch)


def read_registration(body: bytes) -> Registration | Refused:
    return _read(body, Registration)


def read_declaration(body: bytes) -> Declaration | Refused:
    return _read(body, Declaration)


def read_acts(body: bytes) -> ActBatch | Refused:
    return _read(body, ActBatch)


def _read(body: bytes, kind: type[S]) -> S | Refused:
    try:
        return msgspec.convert(decode(body), kind, builtin_types=(bytes,))
    except (NotCanonical, msgspec.ValidationError) as fault:
        return Refused("PRV-003", f"body: {fault}", name="InvalidParams")


def to_sign_registration(body: bytes) -> bytes:
    return H(REGISTER_TAG, body)


def to_sign_declaration(body: bytes) -> bytes:
    return H(DECLARE_TAG, body)


def to_sign_attestation(attestation: Attestation) -> bytes:
    """All fields except `evidence`, which holds the signature."""
    fields = msgspec.to_builtins(attestation, builtin_types=(bytes,))
    del fields["evidence"]
    return H(ATTESTATION_TAG, canonical(fields))


def to_sign_open(nonce: bytes, provider_id: bytes, instance: bytes = b"") -> bytes:
    return H(OPEN_TAG, nonce, provider_id, *((instance,) if instance else ()))


def to_sign_acts(body: bytes) -> bytes:
    return H(ACTS_TAG, body)


def to_sign_output(lease_id: bytes, digest: bytes, size: int) -> bytes:
    return H(OUTPUT_TAG, lease_id, digest, size)


def to_sign_get_input(lease_id: bytes, offset: int) -> bytes:
    return H(GET_INPUT_TAG, lease_id, offset)


def to_sign_hello(nonce: bytes, channel_id: str, session_id: str) -> bytes:
    return H(EVIDENCE_TAG, nonce, channel_id.encode(), session_id.encode())


def to_sign_failure(lease_id: bytes, reason: str) -> bytes:
    """A failure is reported as evidence; the signature proves that the provider reported it."""
    return H(FAIL_TAG, lease_id, reason.encode())


def to_sign_acceptance(lease_id: bytes) -> bytes:
    """An accepted lease is reported as evidence, too: delivered, it is the ACK (LEA-003)."""
    return H(ACCEPT_TAG, lease_id)


def invitation_token(secret: bytes, expires_ms: int) -> str:
    """An invitation as an operator hands it out."""
    return f"hfi_{expires_ms}_{secret.hex()}"


def read_invitation(token: str) -> tuple[bytes, int]:
    """The secret of an invitation and when it ends; nothing where there is none. ValueError where it is no token."""
    if not token:
        return b"", 0
    if (parts := _INVITATION.fullmatch(token)) is None:
        raise ValueError("this is not an invitation")
    return bytes.fromhex(parts[2]), int(parts[1])


_INVITATION: Final = re.compile(r"hfi_([0-9]{1,15})_([0-9a-f]{64})")
