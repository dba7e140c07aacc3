"""What the hot way puts together or takes apart by hand is what the general way would give."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.commands import DEVELOPMENT

from holdfast.core.base.canonical import H, HashDomain, NotCanonical, canonical, decode, packed_bytes, packed_int
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import make_payload, payload_digest
from holdfast.core.base.values import AccountId, EventNo, Tier
from holdfast.core.chain.model import TxKind, tx_leaf
from holdfast.core.proof.envelope import ProofBody, body_of, read_body
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue

IDS = (b"t" * 32, b"l" * 32, b"p" * 32, b"d" * 32)
EDGES = (0, 1, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**64 - 1)


def read_generally(raw: bytes) -> ProofBody | str:
    """The general way alone: decoded, then converted."""
    try:
        return msgspec.convert(decode(raw), ProofBody, builtin_types=(bytes,))
    except (NotCanonical, msgspec.ValidationError) as fault:
        return f"body: {fault}"


def read_fast(raw: bytes) -> ProofBody | str:
    found = read_body(raw)
    return found.message if isinstance(found, Refused) else found


@pytest.mark.rule("PRF-001")
@pytest.mark.parametrize(
    "metrics", [{}, {"ms": 5}, {"ms": -1, "gpu": "a"}, {"ok": True}, {"ms": None}, {"at": {"a": 1}}, {1: 2}, [1], "ms"]
)
@pytest.mark.parametrize("size", [0, 23, 24, 2**40, -1, "three", True])
def test_a_body_says_the_same_read_quickly_and_read_with_care(metrics: object, size: object) -> None:
    raw = body_of(*IDS, size, metrics)  # type: ignore[arg-type]

    assert read_fast(raw) == read_generally(raw)


@pytest.mark.rule("PRF-001", "RES-009")
@pytest.mark.parametrize("media_type", ["text/plain; charset=utf-8", "a/b", "text", "a/b\n", "é/b", "a/" + "b" * 64, 3])
def test_a_declared_media_type_is_read_quickly_as_with_care(media_type: object) -> None:
    raw = body_of(*IDS, 3, {"ms": 5}, media_type)  # type: ignore[arg-type]
    is_valid = media_type in ("text/plain; charset=utf-8", "a/b")

    assert read_fast(raw) == read_generally(raw)
    assert isinstance(read_body(raw), ProofBody) == is_valid


@pytest.mark.rule("PRF-001")
@pytest.mark.parametrize("media_type", ["", "text/plain"])
def test_a_body_that_is_cut_or_changed_anywhere_is_read_as_with_care(media_type: str) -> None:
    whole = body_of(*IDS, 300, {"ms": 5, "gpu": "a"}, media_type)

    for at in range(len(whole)):
        changed = whole[:at] + bytes([whole[at] ^ 0x01]) + whole[at + 1 :]
        for raw in (whole[:at], changed, whole + whole[:at]):
            assert read_fast(raw) == read_generally(raw), (at, raw)


@pytest.mark.rule("PRF-001")
@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_body_with_an_id_of_another_length_is_read_as_with_care(at: int, length: int) -> None:
    task, lease, provider, digest = (b"x" * length if at == each else id_ for each, id_ in enumerate(IDS))
    raw = body_of(task, lease, provider, digest, 3, {"ms": 5})

    assert read_fast(raw) == read_generally(raw)


@pytest.mark.rule("CHN-001")
@pytest.mark.parametrize("kind", TxKind)
@pytest.mark.parametrize("number", EDGES)
def test_the_leaf_of_a_transaction_is_the_canonical_array_of_four(kind: TxKind, number: int) -> None:
    for about in (b"", b"a" * 23, b"a" * 24, b"a" * 64, b"a" * 300):
        leaf = tx_leaf(kind, EventNo(number), b"s" * 32, about)

        assert leaf == canonical([kind.value, number, b"s" * 32, about])


@pytest.mark.rule("CAN-002")
@pytest.mark.parametrize("value", EDGES)
def test_one_integer_and_one_string_of_bytes_have_the_bytes_that_canonical_gives(value: int) -> None:
    assert packed_int(value) == canonical(value)
    assert packed_bytes(b"x" * min(value, 70_000)) == canonical(b"x" * min(value, 70_000))


@pytest.mark.rule("CAN-003")
def test_an_id_of_one_version_has_the_tag_of_that_version() -> None:
    domain = HashDomain("holdfast.test", (1, 2))

    assert domain.make_at(1, b"a", 7) == H("holdfast.test.v1", b"a", 7)
    assert domain.make(b"a", 7) == domain.make_at(2, b"a", 7) == H("holdfast.test.v2", b"a", 7)


@pytest.mark.rule("ENG-007")
def test_a_prepared_job_carries_the_digest_that_its_event_names() -> None:
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "units": 2}
    command = build_enqueue(DEVELOPMENT, AccountId("alice"), Tier.FREE, payload, 100, 1)

    assert isinstance(command, Enqueue)
    assert command.digest == payload_digest(command.payload)
    assert make_payload(command.payload, 10**6, command.digest) == make_payload(command.payload, 10**6)
