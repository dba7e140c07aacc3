"""A proof of a provider's work as it is sent and signed, and the nullifier that lets it count only once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec

from holdfast.core.base.canonical import H, HashDomain, NotCanonical, canonical, decode, hash_from, hash_prefix
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Digest, Height, LeaseId, ProviderId, TaskId

PROOF_TAG: Final = "holdfast.proof.v1"
LINK_TAG: Final = "holdfast.link.v1"
NULLIFIER: Final = HashDomain("animica.proof.nullifier", (1,))


class ProofType(IntEnum):
    """PRF-001: the kind of work, as the number that is hashed."""

    AI = 1
    QUANTUM = 2
    COMPUTE = 3


def window_of(enqueue_height: Height, window_blocks: int) -> int:
    """PRF-001: the window that a job enqueued at that height belongs to."""
    return enqueue_height // window_blocks


def nullifier(type: ProofType, window: int, body: object, version: int = 1) -> Digest:
    """PRF-001: one proof has one nullifier, no matter who submits it."""
    return packed_nullifier(type, window, canonical(body), version)


def packed_nullifier(type: int, window: int, body: bytes, version: int = 1) -> Digest:
    """The same of a body that is canonical bytes already."""
    return hash_from(_nullifier_prefix(type, window, version), body)


@lru_cache(maxsize=256)
def _nullifier_prefix(type: int, window: int, version: int) -> bytes:
    return NULLIFIER.prefix_at(version, int(type), window)


def link_of(envelope: Envelope) -> bytes:
    """A proof's content without its window: for one task it is equal exactly where the nullifier is (RES-001)."""
    return hash_from(hash_prefix(LINK_TAG, envelope.type), envelope.body)


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """PRF-001: a proof as it is sent: the proof method, the canonical body and the signature."""

    type: int
    method: str
    body: bytes
    """Canonical map: task_id, lease_id, provider, output_digest, output_size, metrics, and media_type if declared."""
    signature: bytes


MEDIA_TYPE: Final = r"\A([A-Za-z0-9!#$&^_.+-]{1,63}/[A-Za-z0-9!#$&^_.+-]{1,63}(; ?[!-~ ]{1,63})?)?\Z"
"""RES-009: type/subtype, with parameters; all of it printable and short."""


class ProofBody(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """The fields of a proof's body."""

    task_id: TaskId
    lease_id: LeaseId
    provider: ProviderId
    output_digest: Digest
    output_size: int
    metrics: dict[str, int | str] = {}
    media_type: Annotated[str, msgspec.Meta(pattern=MEDIA_TYPE)] = ""
    """RES-009: of the output, as the agent declares it; empty where it does not."""


def body_of(
    task_id: bytes, lease_id: bytes, provider: bytes, digest: bytes, size: int, metrics: Any, media_type: str = ""
) -> bytes:
    """The canonical body; `metrics` is a map of integers and texts."""
    fields = {"lease_id": lease_id, "metrics": metrics, "output_digest": digest, "output_size": size}
    declared = {"media_type": media_type} if media_type else {}
    return canonical(fields | declared | {"provider": provider, "task_id": task_id})


def declared_media_type(envelope: Envelope) -> str:
    """RES-009: empty where the body, which was read before, declares none."""
    body = read_body(envelope.body)
    return body.media_type if isinstance(body, ProofBody) else ""


def quorum_body(
    task_id: bytes, n: int, m: int, digest: bytes, size: int, votes: Iterable[tuple[int, bytes, bytes]]
) -> bytes:
    """LEA-009: the canonical body of a proof by quorum: index, lease and provider of each that agrees, by index.

    It is not signed: each of those leases has a signed proof, from which anyone can compute this one.
    """
    fields = {"m": m, "n": n, "output_digest": digest, "output_size": size, "task_id": task_id}
    return canonical(fields | {"votes": [list(vote) for vote in sorted(votes)]})


def signed_bytes(envelope_type: int, method: str, body: bytes) -> bytes:
    """What the provider signs (PRV-003): the lease id in the body makes it valid for this lease alone."""
    return H(PROOF_TAG, envelope_type, method.encode(), body)


@lru_cache(maxsize=4_096)  # the API reads it, then the decision and the verdict do
def read_body(raw: bytes) -> ProofBody | Refused:
    """The body, or a refusal with its fault."""
    if (body := _read_common_form(raw)) is not None:
        return body
    try:
        return msgspec.convert(decode(raw), ProofBody, builtin_types=(bytes,))
    except (NotCanonical, msgspec.ValidationError) as fault:
        return Refused("PRF-001", f"body: {fault}", name="InvalidParams")


_COMMON_FORM: Final = re.compile(
    rb"(?:\xa6|(\xa7))\x67metrics(.+?)"
    rb"\x67task_id\x58\x20(.{32})\x68lease_id\x58\x20(.{32})\x68provider\x58\x20(.{32})"
    rb"(?(1)\x6amedia_type(.{1,200}?))\x6boutput_size(.{1,9})\x6doutput_digest\x58\x20(.{32})",
    re.DOTALL,
)
"""A map of six entries, or of seven: then it has a media type."""
_is_media_type: Final = re.compile(MEDIA_TYPE).search


def _read_common_form(raw: bytes) -> ProofBody | None:
    """A fast path for a body with exactly the keys and ids of 32 bytes, as `body_of` writes it.

    Canonical bytes have one order: the bytes between the values are known and are compared, not decoded. None where
    anything differs; then the full decoder reads the body and finds its faults.
    """
    if (found := _COMMON_FORM.fullmatch(raw)) is None:
        return None
    has_type, metrics, task_id, lease_id, provider, media_type, size, digest = found.groups()
    try:
        metrics, media_type, size = decode(metrics), decode(media_type) if has_type else "", decode(size)
    except NotCanonical:
        return None
    if type(size) is not int or type(media_type) is not str or not _is_media_type(media_type):
        return None
    if not _is_plain_map(metrics):
        return None
    return ProofBody(task_id, lease_id, provider, digest, size, metrics, media_type)  # type: ignore[arg-type]


def _is_plain_map(metrics: object) -> bool:
    """A map from text to integers and text; a truth value is neither."""
    return type(metrics) is dict and all(
        type(key) is str and type(value) in (int, str) for key, value in metrics.items()
    )


pack: Final = msgspec.msgpack.Encoder().encode
unpack: Final = msgspec.msgpack.Decoder(Envelope).decode
