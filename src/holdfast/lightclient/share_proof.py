"""Shares of a large result, checked against the commitment in the result's leaf (DA-001)."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.base.errors import Corrupt
from holdfast.lightclient.da.commitment import DaCommitment, Sample, why_not_sample
from holdfast.lightclient.headers import VerificationFailed, is_u64, parse_hex, unreadable
from holdfast.lightclient.result_proof import ResultLeaf


def parse(values: object, where: str) -> Sample | None:
    """The shares in a proof as `holdfast result prove-shares` prints it; None where it has none."""
    shown = values.get("da") if isinstance(values, Mapping) else None
    if shown is None:
        return None
    if (
        not isinstance(shown, Mapping)
        or not {"namespace", "root", "length", "start", "shares", "nodes"} <= shown.keys()
    ):
        raise _unreadable(where, "namespace, root, length, start, shares and nodes are expected")
    if not all(is_u64(shown[name]) for name in ("length", "start")):
        raise _unreadable(where, "length and start are numbers")
    if not isinstance(shown["shares"], list) or not isinstance(shown["nodes"], list):
        raise _unreadable(where, "shares and nodes are lists")
    namespace, root = (parse_hex(shown[name], f"{where}: da: {name}") for name in ("namespace", "root"))
    shares, nodes = (
        tuple(parse_hex(each, f"{where}: da: {name}") for each in shown[name]) for name in ("shares", "nodes")
    )
    return Sample(DaCommitment(namespace, root, shown["length"]), shown["start"], shares, nodes)


def check(leaf: ResultLeaf, sample: Sample) -> None:
    """VerificationFailed where the shares are not part of the bytes that the chain has a commitment to."""
    if leaf.da_commitment is None:
        raise VerificationFailed("the chain holds no commitment to the bytes of this result")
    if sample.commitment.length != leaf.size:
        raise VerificationFailed(f"the shares are of {sample.commitment.length} bytes, the chain holds {leaf.size}")
    if reason := why_not_sample(leaf.da_commitment, sample):
        raise VerificationFailed(f"the shares are not part of this result: {reason}")


def _unreadable(where: str, reason: str) -> Corrupt:
    return unreadable(f"{where}: da", reason, "DA-001", "it is what `holdfast result prove-shares` prints")
