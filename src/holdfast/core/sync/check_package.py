"""Whether a package is the next block (SYN-001): header, leaves, and what stands for each blob, in this order.

Every hash that a follower stores is below a root that a validator of the block's height has signed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from holdfast.core.archive.check_notice import BlobFacts, NoticeGround, why_not_notice
from holdfast.core.base.canonical import decode as decode_canonical
from holdfast.core.base.errors import Refused
from holdfast.core.base.merkle import root
from holdfast.core.base.records import record_from
from holdfast.core.base.values import Height, VerifySignature
from holdfast.core.blob.framing import BLOB_BYTES, versioned_hash
from holdfast.core.chain.header import Header, SignedHeader, why_not_next
from holdfast.core.chain.model import TxKind
from holdfast.core.sync.package import ArchivedBlob, BlobLeaf, BlockPackage, BlockPayload, PackageKind, decode_leaf
from holdfast.core.validator.apply import succeed
from holdfast.core.validator.messages import ADDED, REMOVED, SUCCEEDED
from holdfast.core.validator.model import AddressOf, ValidatorSet

_SIZES: Final = (32, 48, 32)


class PackageGround(msgspec.Struct, frozen=True):
    """What a follower knows before the block."""

    head: SignedHeader
    validators: ValidatorSet
    verify: VerifySignature
    address_of: AddressOf
    succeeded: Mapping[bytes, list[bytes]] = {}
    """Takeovers in later blocks: an old height may be archived by whoever took over then."""


class CheckedPackage(msgspec.Struct, frozen=True):
    """A block that follows ours, with the leaves of its blobs and the set of validators after it."""

    signed: SignedHeader
    payload: BlockPayload
    leaves: tuple[BlobLeaf, ...]
    validators: ValidatorSet


def check_package(ground: PackageGround, package: BlockPackage) -> CheckedPackage | Refused:
    """The next block, or the first check that it fails. The KZG of sidecars is checked by whoever can."""
    checked = check_block(ground, package)
    if isinstance(checked, Refused):
        return checked
    return _WHY_NOT[package.kind](ground, package, checked) or checked


def check_block(ground: PackageGround, package: BlockPackage) -> CheckedPackage | Refused:
    """Header and leaves alone: enough to know who the validators are."""
    signed, header = package.signed, package.signed.header
    if reason := why_not_next(ground.head, signed, ground.verify):
        return _refuse(reason, "BadHeader")
    if not ground.validators.is_member(header.proposer, header.height):
        message = f"block {header.height} is signed by {header.proposer.hex()}, no validator of its height"
        return _refuse(message, "UnknownValidator")
    payload = package.payload or BlockPayload()
    if refusal := _why_not_payload(header, payload, is_given=package.payload is not None):
        return refusal
    try:
        leaves = tuple(decode_leaf(raw) for raw in payload.blobs)
        validators = validators_after(ground.validators, payload)
    except ValueError as fault:
        return _refuse(f"a leaf of block {header.height} cannot be read: {fault}", "BadLeaf")
    if not all(_is_whole(leaf) for leaf in leaves):
        return _refuse(f"a blob of block {header.height} has a hash that is not its commitment's", "BadLeaf")
    return CheckedPackage(signed, payload, leaves, validators)


def _why_not_payload(header: Header, payload: BlockPayload, *, is_given: bool) -> Refused | None:
    for what, leaves, count, root_ in (
        ("transactions", payload.transactions, header.tx_count, header.tx_root),
        ("results", payload.results, header.result_count, header.result_root),
        ("blobs", payload.blobs, header.blob_count, header.blob_root),
    ):
        if not is_given and count:
            return _refuse(f"block {header.height} has {count} {what}, the package none", "PayloadMissing")
        if len(leaves) != count or root(leaves) != root_:
            return _refuse(f"the {what} of block {header.height} do not have its root", "PayloadMismatch")
    return None


def _is_whole(leaf: BlobLeaf) -> bool:
    sizes = (len(leaf.versioned_hash), len(leaf.commitment), len(leaf.keccak))
    return sizes == _SIZES and versioned_hash(leaf.commitment) == leaf.versioned_hash


def validators_after(before: ValidatorSet, payload: BlockPayload) -> ValidatorSet:
    """The set that the transactions of a block leave behind; ValueError where one cannot be read."""
    since, ended, successors = dict(before.since), dict(before.ended), dict(before.successors)
    for raw in payload.transactions:
        kind, _, subject, content = msgspec.convert(decode_canonical(raw), tuple[str, int, bytes, bytes])
        if kind != TxKind.VALIDATOR:
            continue
        change, value = msgspec.convert(decode_canonical(content), tuple[str, int | bytes])
        if change == ADDED and isinstance(value, int):
            since.setdefault(subject, Height(value))
        elif change == REMOVED and isinstance(value, int):
            ended.setdefault(subject, Height(value))
        elif change == SUCCEEDED and isinstance(value, bytes):
            succeed(successors, value, subject)
        else:
            raise ValueError(f"an unknown change of the validators: {change!r:.40}")
    return ValidatorSet(since, ended, successors)


# ------------------------------------------------------------------------------------------------ what stands for blobs


def _why_not_full(_: PackageGround, package: BlockPackage, checked: CheckedPackage) -> Refused | None:
    height, leaves = checked.signed.header.height, checked.leaves
    if len(package.sidecars) != len(leaves):
        message = f"block {height} has {len(leaves)} blobs, the package the bytes of {len(package.sidecars)}"
        return _refuse(message, "SidecarMissing")
    if any(len(sidecar.raw) != BLOB_BYTES for sidecar in package.sidecars):
        return _refuse(f"a blob of block {height} does not have {BLOB_BYTES} bytes", "SidecarMismatch")
    return None


def _why_not_archived(ground: PackageGround, package: BlockPackage, checked: CheckedPackage) -> Refused | None:
    header, leaves = checked.signed.header, checked.leaves
    archived = [each for each in package.archived if each is not None]
    if len(package.archived) != len(leaves) or len(archived) != len(leaves):
        message = f"block {header.height} has {len(leaves)} blobs, the package receipts of {len(archived)}"
        return _refuse(message, "ReceiptMissing")
    validators = later_validators(ground)
    for number, (leaf, each) in enumerate(zip(leaves, archived, strict=True)):
        if refusal := _why_not_receipt(header.height, number, each):
            return refusal
        facts = record_from(BlobFacts, leaf, proposer=header.proposer)
        block = NoticeGround(header.chain_id, validators, header.height, facts)
        outcome = why_not_notice(block, each.notice, ground.verify, ground.address_of)
        if isinstance(outcome, Refused):
            return outcome
    return None


def later_validators(ground: PackageGround) -> ValidatorSet:
    """The set that the notices of an archived block are checked with: whoever took over later counts, too."""
    known = ground.validators
    return ValidatorSet(known.since, known.ended, {**known.successors, **ground.succeeded})


def _why_not_receipt(height: Height, number: int, each: ArchivedBlob) -> Refused | None:
    notice, receipt = each.notice, each.receipt
    if (notice.height, notice.blob_index) != (height, number):
        return _refuse(f"the notice for blob {number} of block {height} is about another blob", "NoticeMismatch")
    if (receipt.storage_id, receipt.provider_id) != (notice.locator, notice.provider_id):
        return _refuse(f"the receipt of blob {number} of block {height} is not its notice's", "ReceiptMismatch")
    return None


def _why_not_metadata(_: PackageGround, package: BlockPackage, checked: CheckedPackage) -> Refused | None:
    if checked.leaves:
        message = f"block {checked.signed.header.height} has {len(checked.leaves)} blobs, the package only its header"
        return _refuse(message, "PayloadMissing")
    return None


_WHY_NOT: Final[Mapping[PackageKind, Callable[[PackageGround, BlockPackage, CheckedPackage], Refused | None]]] = {
    PackageKind.FULL: _why_not_full,
    PackageKind.ARCHIVED: _why_not_archived,
    PackageKind.METADATA_ONLY: _why_not_metadata,
}


def _refuse(message: str, name: str) -> Refused:
    return Refused("SYN-001", message, "another peer is asked", name)
