"""Hostile peers: whatever is wrong with a package is refused by its name, the next peer is asked, nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from tests.workers.sync.conftest import Joined
from tests.workers.sync.sync_nodes import KEYS, OWNER

from holdfast.adapters.keys.keccak import address_of
from holdfast.core.archive.notice import ArchiveNotice, notice_root
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.base.values import Digest, Height
from holdfast.core.chain.header import SignedHeader, header_hash
from holdfast.core.sync.followed import BytesStatus
from holdfast.core.sync.package import ArchivedBlob, ArchiveReceipt, BlockPackage, PackageKind
from holdfast.ports.sync import PeerService
from holdfast.wire.packages import decode_package, encode_package

Change = Callable[[BlockPackage], BlockPackage | bytes]
replace = msgspec.structs.replace


class HostilePeer:
    """Serves another node's packages, changed."""

    def __init__(self, honest: PeerService, change: Callable[[Height, bytes], bytes | None]) -> None:
        self._honest, self._change = honest, change

    async def final_height(self) -> Height:
        return await self._honest.final_height()

    async def package(self, height: Height) -> bytes | None:
        raw = await self._honest.package(height)
        return None if raw is None else self._change(height, raw)

    async def blob(self, height: Height, number: int) -> bytes | None:
        return bytes(131_072)

    async def notices(self, height: Height) -> Sequence[bytes]:
        return [b"\xff" * 40, b""]

    async def receive(self, messages: Sequence[bytes]) -> None:
        pass


def at(target: Height, change: Change) -> Callable[[Height, bytes], bytes]:
    def changed(height: Height, raw: bytes) -> bytes:
        if height != target:
            return raw
        package = decode_package(raw)
        assert isinstance(package, BlockPackage)
        made = change(package)
        return made if isinstance(made, bytes) else encode_package(made)

    return changed


def resigned(package: BlockPackage, **header: Any) -> BlockPackage:
    """Another header with a good hash and a good signature, of a key that is no validator."""
    other = replace(package.signed.header, proposer=KEYS[3].public, **header)
    return replace(package, signed=SignedHeader(other, header_hash(other), KEYS[3].sign(header_hash(other))))


def with_notice(package: BlockPackage, *, key: int = 0, **changed: Any) -> BlockPackage:
    (archived,) = package.archived
    assert archived is not None
    notice: ArchiveNotice = replace(archived.notice, archived_by=address_of(KEYS[key].public), **changed)
    notice = replace(notice, signature=KEYS[key].sign(notice_root(notice)))
    receipt = ArchiveReceipt(notice.locator, notice.provider_id)
    return replace(package, archived=(replace(archived, receipt=receipt, notice=notice),))


def elsewhere(archived: ArchivedBlob | None) -> ArchivedBlob:
    assert archived is not None
    return replace(archived, receipt=ArchiveReceipt("elsewhere", "file"))


def forged(package: BlockPackage) -> BlockPackage:
    (archived,) = package.archived
    assert archived is not None
    return replace(package, archived=(replace(archived, notice=replace(archived.notice, signature=bytes(64))),))


def other_leaf(package: BlockPackage) -> BlockPackage:
    assert package.payload is not None
    return replace(package, payload=replace(package.payload, blobs=(package.payload.blobs[0][:-1] + b"\0",)))


def poisoned(package: BlockPackage) -> BlockPackage:
    return replace(
        package, sidecars=tuple(replace(each, raw=b"\0" + each.raw[1:-1] + b"\7") for each in package.sidecars)
    )


FULL: list[tuple[str, Change]] = [
    ("Malformed", lambda package: encode_package(package)[:-1]),
    ("Malformed", lambda _: b"\xff" * 100),
    ("BadHeader", lambda package: replace(package, signed=replace(package.signed, signature=bytes(64)))),
    ("BadHeader", lambda package: resigned(package, height=package.signed.header.height + 1)),
    ("UnknownValidator", resigned),
    ("PayloadMissing", lambda package: replace(package, payload=None)),
    ("PayloadMismatch", other_leaf),
    ("SidecarMissing", lambda package: replace(package, sidecars=())),
    ("SidecarMismatch", lambda package: replace(package, sidecars=(replace(package.sidecars[0], raw=b"short"),))),
    ("SidecarMismatch", lambda package: replace(package, sidecars=(replace(package.sidecars[0], proof=b""),))),
    ("SidecarMismatch", poisoned),
    ("ReceiptMissing", lambda package: replace(package, kind=PackageKind.ARCHIVED, sidecars=())),
    ("PayloadMissing", lambda package: replace(package, kind=PackageKind.METADATA_ONLY)),
]
ARCHIVED: list[tuple[str, Change]] = [
    ("ReceiptMissing", lambda package: replace(package, archived=(None,))),
    ("ReceiptMissing", lambda package: replace(package, archived=())),
    ("BadSignature", forged),
    ("UnknownValidator", lambda package: with_notice(package, key=3)),
    ("NoticeMismatch", lambda package: with_notice(package, blob_index=1)),
    ("ChainMismatch", lambda package: with_notice(package, chain_id=7)),
    ("CommitmentMismatch", lambda package: with_notice(package, kzg_commitment=bytes(48))),
    ("KeccakMismatch", lambda package: with_notice(package, blob_keccak=Digest(bytes(32)))),
    ("HashMismatch", lambda package: with_notice(package, versioned_hash=bytes(32))),
    (
        "ReceiptMismatch",
        lambda package: replace(package, archived=tuple(map(elsewhere, package.archived))),
    ),
    ("SidecarMissing", lambda package: replace(package, kind=PackageKind.FULL, archived=())),
    ("PayloadMissing", lambda package: replace(package, kind=PackageKind.METADATA_ONLY, archived=(), payload=None)),
]


async def refused_then_synced(joined: Joined, height: Height, name: str, change: Change) -> None:
    follower = joined.add("ash")
    honest = joined.proposer.service
    joined.network.leave(OWNER)
    joined.network.join("hostile", HostilePeer(honest, at(height, change)))
    await follower.run()
    assert await follower.height() == height - 1  # up to the block before it, and nothing of this one
    assert await follower.blobs(height) == []
    assert set(follower.follower.metrics.failures) <= {name, "NTC-001", "InvalidParams"}
    assert follower.follower.metrics.failures[name] == 1
    assert follower.packs == []
    joined.network.join(OWNER, honest)
    await follower.run()
    assert await follower.height() == await honest.final_height()
    assert len(await follower.blobs(height)) == 1


@pytest.mark.rule("SYN-001")
@pytest.mark.parametrize(("name", "change"), FULL, ids=[f"{name}-{at}" for at, (name, _) in enumerate(FULL)])
async def test_a_full_package_that_is_wrong_is_refused_and_the_next_peer_is_asked(
    joined: Joined, name: str, change: Change
) -> None:
    height = await joined.proposer.add_blobs()
    await refused_then_synced(joined, height, name, change)


@pytest.mark.rule("SYN-001")
@pytest.mark.parametrize(("name", "change"), ARCHIVED, ids=[f"{name}-{at}" for at, (name, _) in enumerate(ARCHIVED)])
async def test_an_archived_package_that_is_wrong_is_refused_and_the_next_peer_is_asked(
    joined: Joined, name: str, change: Change
) -> None:
    height = await joined.proposer.add_blobs()
    await joined.proposer.archive_now()
    await joined.proposer.pruner.run_once()
    await refused_then_synced(joined, height, name, change)


@pytest.mark.rule("SYN-001")
async def test_peers_that_are_away_have_nothing_or_say_nonsense_are_passed_over(joined: Joined) -> None:
    height = await joined.proposer.add_blobs()
    follower, honest = joined.add("ash"), joined.proposer.service
    joined.network.leave(OWNER)
    joined.network.join("empty", HostilePeer(honest, lambda *_: None))
    joined.network.join("away", HostilePeer(honest, _away))
    joined.network.join("liar", HostilePeer(honest, lambda *_: b"\0"))
    joined.network.join(OWNER, honest)
    await follower.run()
    assert (await follower.blobs(height))[0].bytes_status is BytesStatus.HERE
    assert follower.follower.metrics.failures["Malformed"] == 1  # then it is asked last
    for raw in (b"", b"\1", b"\2\xff", b"\7" * 90_000):
        await follower.follower.receive([raw])
        await joined.proposer.service.receive([raw])
    assert not isinstance(await follower.follower.package(height), Refused)


def _away(*_: object) -> bytes:
    raise Unavailable("SYN-001", "the connection broke")
